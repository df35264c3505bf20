"""The Redis that all workers share, and their unreliable connections to it.

Commands and scripts run on a model of Redis, in this process and under the simulation's clock. The
workers use the real engine, with its scripts and retries; only its :class:`Node` is the
simulation's. Commands and replies are delayed, and may be lost or late.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

import msgspec
from redis import exceptions

from scheduler_worker.backends.redis import engine
from scheduler_worker.backends.redis.engine import MICRO, RedisState
from scheduler_worker.backends.redis.nodes import OneNode, Script, ScriptReply
from scheduler_worker.model.claims import FencingToken
from scheduler_worker.ports import (
    Change,
    Changes,
    Clock,
    LockGrant,
    Seen,
    Transaction,
    Written,
)
from tests.simulation.history import History
from tests.simulation.machine import Machine, Thread
from tests.support.redis_model import Keyspace, Scripts

T = TypeVar("T")

BEGINNING_S = 1_700_000_000.0
REPEATED_FOR_S = 1.0
"""For how long the engine repeats a command."""
SLOWEST_S = 0.4
"""How long a call or an answer takes that takes long."""
LATEST_S = 2.5
"""After how long a call comes to the store that its caller had given up."""
CLOCK_SLACK_S = 2.5
"""By how much a time may be wrong where a plan sets the store's clock."""
ROUNDING_S = 1e-3
PREFIX = "sim"

SCRIPTS = Scripts()
_NOTHING = Changes(epoch="", version=0, now_s=0.0, entries=[])


class Call(NamedTuple):
    """A call of the worker to the engine, for the history."""

    number: int
    what: str
    facts: dict[str, Any]


class Run(NamedTuple):
    """The effect of a script."""

    who: str
    scope: str
    call: Call
    args: Sequence[Any]
    before: Mapping[bytes, bytes]
    """``meta`` before it ran, and afterwards."""
    after: Mapping[bytes, bytes]
    value: Any
    is_repeated: bool
    """Whether it answered by memory."""


class Store:
    """A server and its data, with everything that it did in the history."""

    def __init__(self, machine: Machine, history: History, *, hold_timeout_s: float) -> None:
        self.machine = machine
        self.history = history
        self.hold_timeout_s = hold_timeout_s
        self.is_up = True
        self.loads_until_s = 0.0
        """Until when it answers that it loads its data."""
        self._down_s = 0.0
        self.life = 0
        self.ahead_s = 0.0
        """By how much its clock is wrong."""
        self.keyspace = Keyspace(self._now_us)
        self._blocked: dict[str, list[_Reply]] = {}
        """The waiters by their lists."""
        self._recorded: dict[str, dict[str, int]] = {}
        self._seen_versions: dict[str, bytes | None] = {}
        self._queued: set[int] = set()
        self.numbers = itertools.count()
        """The number of the workers' calls."""

    def time_s(self) -> float:
        return BEGINNING_S + self.machine.now_s + self.ahead_s

    def _now_us(self) -> int:
        return int(self.time_s() * MICRO)

    # Commands

    def run(
        self, who: str, name: str, script: Script, call: Call, keys: Sequence[str], args: Any
    ) -> ScriptReply:
        """Run a script, record its effect in the history, and return its reply."""
        find = self.keyspace.find
        before = dict(find(keys[0]) or {})
        memo = find(keys[8]) if len(keys) > len(engine.KEYS) else None
        value = SCRIPTS.run(script.text, self.keyspace, keys, args)
        run = Run(
            who=who,
            scope=_scope(keys[0]),
            call=call,
            args=args,
            before=before,
            after=find(keys[0]) or {},
            value=value,
            is_repeated=memo is not None and memo == value,
        )
        note = getattr(self, f"_note_{name}", None)
        if note is not None:
            note(run)
        if ended := self.changed(run.scope):
            self.history.add(who, "finds ended", scope=run.scope, changed=ended)
        self._serve_blocked()
        return ScriptReply(value, str(self.life))

    def command(self, *words: Any) -> Any:
        reply = self.keyspace.execute(*words)
        self._serve_blocked()
        return reply

    def block(self, key: str, timeout_s: float, reply: _Reply) -> None:
        """``BLPOP``."""
        self._blocked.setdefault(key, []).append(reply)
        self._serve_blocked()
        self.machine.at(timeout_s, partial(self._unblock, key, reply))

    def _serve_blocked(self) -> None:
        for key in [each for each in self._blocked if self.keyspace.find(each)]:
            self.keyspace.execute("LPOP", key)
            self._unblock(key, self._blocked[key][0])

    def _unblock(self, key: str, reply: _Reply) -> None:
        waiting = self._blocked.get(key, [])
        if reply in waiting:
            waiting.remove(reply)
            if not waiting:
                del self._blocked[key]
            reply.send(None, None)

    # Effects, for the history

    def _note_acquire(self, run: Run) -> None:
        call, after = run.call, run.after
        if not run.value[0]:
            if call.number not in self._queued:
                self._queued.add(call.number)
                self.history.add(run.who, "queues", scope=run.scope, call=call.number, **call.facts)
        elif run.before.get(b"token") != after[b"token"]:
            grant = LockGrant(
                scope=run.scope,
                owner=after[b"holder"].decode(),
                token=FencingToken(int(after[b"token"]), after[b"epoch"].decode()),
                waited_s=0.0,
                granted_at_s=0.0,
                ends_at_s=0.0,
                changes=_NOTHING,
            )
            changed = self.changed(run.scope)
            self.history.add(run.who, "leases", grant=grant, call=call.number, changed=changed)

    def _note_commit(self, run: Run) -> None:
        grant = run.call.facts["grant"]
        if run.value is None:
            self.history.add(run.who, "is too late", grant=grant)
            return
        answer, _, lock = run.value.rpartition(b" ")
        self.history.add(
            run.who,
            "commits",
            turn=grant.commits or None,
            written=engine._written(answer)._replace(kept=lock == b"1", is_free=lock == b"2"),
            is_repeated=run.is_repeated or None,
            changed=self.changed(run.scope),
            **run.call.facts,
        )

    def _note_watch(self, run: Run) -> None:
        if not run.value[0]:
            self.history.add(run.who, "watches", scope=run.scope)

    def _note_leave(self, run: Run) -> None:
        """A caller gives up its lease or its place; possibly long after it asked for that."""
        what = "leaves" if run.call.what == "acquires" else "releases"
        if what == "leaves" or run.before.get(b"holder") != run.after.get(b"holder"):
            self.history.add(
                run.who,
                what,
                scope=run.scope,
                owner=run.args[-1],
                call=run.call.number,
                changed=self.changed(run.scope) or None,
            )

    def _note_write(self, run: Run) -> None:
        written = engine._written(run.value.partition(b" ")[2])
        if run.is_repeated:
            written = written._replace(before=-1)
        changed = self.changed(run.scope)
        self.history.add(run.who, "writes", written=written, changed=changed, **run.call.facts)

    def changed(self, scope: str) -> list[Change]:
        """The changes since the last event in the history, by key."""
        version = (self.keyspace.find(_key(scope, "meta")) or {}).get(b"version")
        if version is not None and self._seen_versions.get(scope) == version:
            return []
        self._seen_versions[scope] = version
        recorded, held = self._recorded.get(scope, {}), self.held(scope)
        self._recorded[scope] = {change.key: change.version for change in held}
        gone = [Change(key, 0, None) for key in recorded.keys() - self._recorded[scope].keys()]
        return sorted(gone + [each for each in held if recorded.get(each.key) != each.version])

    def held(self, scope: str) -> list[Change]:
        values = self.keyspace.find(_key(scope, "records")) or {}
        versions = self.keyspace.find(_key(scope, "changed")) or {}
        return [
            Change(key.decode(), int(versions.get(key, 0)), value)
            for key, value in values.items()
            if key  # else it is no record
        ]

    def scopes(self) -> list[str]:
        ends = "}:records"
        keys = [key.decode() for key in self.keyspace.values]
        return sorted(_scope(key) for key in keys if key.endswith(ends))

    # Faults

    def remember(self) -> Keyspace:
        """A copy of its data, as a replica that lags has it."""
        return self.keyspace.copy()

    def emptied(self) -> Keyspace:
        return Keyspace(self._now_us)

    def go_down(self) -> None:
        self.is_up, self._down_s = False, self.machine.now_s
        blocked, self._blocked = self._blocked, {}
        for reply in (reply for waiting in blocked.values() for reply in waiting):
            reply.lose()

    def come_up(self, kept: Keyspace | None = None) -> None:
        """Restart with all data; or with an earlier copy, as if nothing had been written since.

        It loads as long as it was down.
        """
        self.is_up = True
        self.loads_until_s = 2 * self.machine.now_s - self._down_s
        self.life += 1
        if kept is None:
            self.history.add("store", "is back")
            return
        known = {*self._recorded, *self.scopes()}
        self.keyspace = kept
        self._recorded.clear()
        self._seen_versions.clear()
        held = {scope: self.changed(scope) for scope in sorted(known)}
        holders = {scope: self._owner(scope, b"holder") for scope in sorted(known)}
        last = {scope: self._owner(scope, b"last") for scope in sorted(known)}
        self.history.add("store", "lost data", held=held, holders=holders, last=last)

    def _owner(self, scope: str, field: bytes) -> tuple[str, int]:
        """The owner and token of a cluster's lease, empty if there is none in this field."""
        meta = self.keyspace.find(_key(scope, "meta")) or {}
        return meta.get(field, b"").decode(), int(meta.get(b"token", 0))

    def set_clock(self, by_s: float) -> None:
        self.ahead_s += by_s
        self.history.add("store", "is set", by_s=by_s)


def _scope(key: str) -> str:
    return unquote(key[key.index("{") + 1 : key.rindex("}")])


def _key(scope: str, name: str) -> str:
    return f"{PREFIX}:{{{quote(scope, safe='@')}}}:{name}"


class Faults(msgspec.Struct):
    """The present faults of one worker's connection."""

    slowness: float
    """How often something takes long on its way, though nothing is wrong."""
    cut_until_s: float = 0.0
    flaky_until_s: float = 0.0
    flakiness: float = 0.0


class Line(RedisState):
    """One worker's state: the real engine over a faulty connection; records its calls."""

    def __init__(
        self, store: Store, who: str, clock: Clock, faults: Faults, **options: Any
    ) -> None:
        self._machine = store.machine
        self.known: Callable[[str], Mapping[str, int]] = lambda _: {}
        """The versions of the records of a cluster that the worker knows."""
        self._calls: dict[Thread, Call] = {}
        self._numbers = store.numbers
        super().__init__(
            f"redis://{who}",
            hold_timeout_s=store.hold_timeout_s,
            prefix=PREFIX,
            clock=clock,
            retry_for_s=REPEATED_FOR_S,
            **options,
        )
        scripts = {id(script): name for name, script in self._server._scripts.items()}
        node: Any = Node(store, who, faults, scripts, self._called)
        self._server._nodes = OneNode("redis", node)

    def acquire(
        self, scope: str, *, timeout_s: float, seen: Seen, priority_boost_s: float = 0.0
    ) -> LockGrant:
        with self._calling("acquires", timeout_s=timeout_s, priority_boost_s=priority_boost_s):
            return super().acquire(
                scope, timeout_s=timeout_s, seen=seen, priority_boost_s=priority_boost_s
            )

    def commit(
        self,
        grant: LockGrant,
        transactions: Sequence[Transaction],
        *,
        at: int | None = None,
        keep: bool = False,
    ) -> Written:
        known = dict(self.known(grant.scope))
        with self._calling("commits", grant=grant, transactions=transactions, known=known):
            return super().commit(grant, transactions, at=at, keep=keep)

    def release(self, grant: LockGrant) -> None:
        with self._calling("releases", grant=grant):
            super().release(grant)

    def write(
        self, scope: str, transactions: Sequence[Transaction], *, once: str | None = None
    ) -> Written:
        with self._calling("writes", scope=scope, once=once, transactions=transactions):
            return super().write(scope, transactions, once=once)

    @contextmanager
    def _calling(self, what: str, **facts: Any) -> Iterator[None]:
        thread = self._machine.running
        self._calls[thread] = Call(next(self._numbers), what, facts)
        try:
            yield
        finally:
            del self._calls[thread]

    def _called(self) -> Call:
        return self._calls.get(self._machine.running) or Call(-1, "looks", {})


class Node:
    """The interface of :class:`scheduler_worker.backends.redis.nodes.Node`."""

    def __init__(
        self,
        store: Store,
        who: str,
        faults: Faults,
        scripts: dict[int, str],
        call: Callable[[], Call],
    ) -> None:
        self._store = store
        self._machine = store.machine
        self._who = who
        self._faults = faults
        self._scripts = scripts
        self._called = call

    def run(
        self, script: Script, keys: Sequence[str], args: Sequence[Any], wait_replicas: int = 0
    ) -> ScriptReply:
        name, call = self._scripts[id(script)], self._called()

        def serve(reply: _Reply) -> None:
            reply.do(lambda: self._store.run(self._who, name, script, call, keys, args))

        answer: ScriptReply = self._ask(serve)
        return answer

    def command(self, *words: Any) -> Any:
        return self._ask(lambda reply: reply.do(lambda: self._store.command(*words)))

    def wait(self, key: str, timeout_s: float) -> None:
        self._ask(lambda reply: self._store.block(key, timeout_s, reply))

    def info(self) -> dict[str, str] | None:
        return None

    def disconnect(self) -> None:
        pass

    # There and back

    def _ask(self, serve: Callable[[_Reply], None]) -> Any:
        reply = _Reply(self, self._machine.running)
        arrive = partial(self._arrive, serve, reply)
        if self.fails() and self._machine.random.random() < 0.5:
            # It comes, but its caller does not wait that long.
            self._machine.at(self._machine.random.uniform(0.0, LATEST_S), arrive)
            reply.lose()
        else:
            self._machine.at(self.delay_s(), arrive)
        self._machine.park()
        reply.is_awaited = False
        if reply.error is not None:
            raise reply.error
        if not reply.came:
            raise exceptions.ConnectionError("the store does not answer")
        return reply.value

    def _arrive(self, serve: Callable[[_Reply], None], reply: _Reply) -> None:
        if self.reaches() and self._store.loads_until_s > self._machine.now_s:
            reply.send(None, exceptions.BusyLoadingError("LOADING"))
        elif self.reaches():
            serve(reply)
        else:
            reply.lose()

    def reaches(self) -> bool:
        return self._store.is_up and self._faults.cut_until_s <= self._machine.now_s

    def fails(self) -> bool:
        is_flaky = self._faults.flaky_until_s > self._machine.now_s
        return is_flaky and self._machine.random.random() < self._faults.flakiness

    def delay_s(self) -> float:
        """Mostly a millisecond, now and then much more."""
        rng = self._machine.random
        is_slow = rng.random() < self._faults.slowness
        return rng.uniform(0.0, SLOWEST_S if is_slow else 0.001)


class _Reply:
    """A reply that a thread waits for; it may never arrive."""

    def __init__(self, node: Node, thread: Thread) -> None:
        self._node = node
        self._machine = node._machine
        self.thread = thread
        self.value: Any = None
        self.error: Exception | None = None
        self.came = False
        self.is_awaited = True

    def do(self, serve: Callable[[], Any]) -> None:
        try:
            answer, error = serve(), None
        except exceptions.ResponseError as refusal:
            answer, error = None, refusal
        self.send(answer, error)

    def send(self, answer: Any, error: Exception | None) -> None:
        """Send it; it arrives after a delay."""
        self._machine.at(self._node.delay_s(), partial(self._come, answer, error))

    def _come(self, answer: Any, error: Exception | None) -> None:
        if self._node.fails() or not self._node.reaches():
            self.lose()
        elif self.is_awaited:
            self.value, self.error, self.came = answer, error, True
            self._machine.wake(self.thread)

    def lose(self) -> None:
        """Its thread finds out that nothing will come."""

        def notice() -> None:
            if self.is_awaited:
                self._machine.wake(self.thread)

        self._machine.at(self._machine.random.uniform(0.0, SLOWEST_S), notice)
