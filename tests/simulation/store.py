"""The store that all workers share, and their lines to it, which fail in every way a network can.

The store is the memory engine in a process of its own. A line sends calls there and answers back,
each of which takes its time, may be lost, and may come late; as the engine for many processes
does, it repeats a call whose answer was lost, for a while, and the store recognises the repetition.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from greenlet import GreenletExit

from scheduler_worker.backends.memory import MemoryState, _Scope
from scheduler_worker.errors import SchedulerWorkerError, StaleFencingToken, StateUnavailable
from scheduler_worker.ports import (
    Change,
    Changes,
    Characteristics,
    Clock,
    Grant,
    Seen,
    Transaction,
    Written,
)
from tests.simulation.history import History
from tests.simulation.machine import Machine, Process, Thread

T = TypeVar("T")

BEGINNING_S = 1_700_000_000.0
REPEATED_FOR_S = 1.0
"""For how long a line repeats a call."""
SLOWEST_S = 0.4
"""How long a call or an answer takes that takes long."""
LATEST_S = 2.5
"""After how long a call comes to the store that its caller had given up."""


class Store:
    """The memory engine, with everything that it did in the history; it is its own clock."""

    def __init__(self, machine: Machine, history: History, *, hold_timeout_s: float) -> None:
        self.machine = machine
        self.history = history
        self.is_up = True
        self.life = 0
        self.state = MemoryState(self, hold_timeout_s=hold_timeout_s)
        self.process = Process("store")
        self._told: dict[str, Seen] = {}

    def time_s(self) -> float:
        return BEGINNING_S + self.machine.now_s

    def monotonic_s(self) -> float:
        return self.machine.now_s

    # What it does, as the history knows it

    def acquire(self, who: str, scope: str, **asked: Any) -> Grant:
        grant = self.state.acquire(scope, **asked)
        self.history.add(
            who, "holds", grant=grant, ends_s=grant.ends_at_s, changed=self.changed(scope)
        )
        return grant

    def commit(
        self, who: str, grant: Grant, transactions: Sequence[Transaction], keep_at: int | None
    ) -> Written:
        try:
            written = self.state.commit(grant, transactions, keep_at=keep_at)
        except StaleFencingToken:
            self.history.add(who, "is too late", grant=grant)
            raise
        changed = self.changed(grant.scope)
        self.history.add(
            who,
            "commits",
            grant=grant,
            turn=grant.turn or None,
            written=written,
            transactions=transactions,
            changed=changed,
        )
        return written

    def release(self, who: str, grant: Grant) -> None:
        self.state.release(grant)
        self.history.add(who, "releases", grant=grant, changed=self.changed(grant.scope) or None)

    def write(
        self, who: str, scope: str, transactions: Sequence[Transaction], once: str | None
    ) -> Written:
        written = self.state.write(scope, transactions, once=once)
        changed = self.changed(scope)
        self.history.add(
            who,
            "writes",
            scope=scope,
            once=once,
            written=written,
            transactions=transactions,
            changed=changed,
        )
        return written

    def changed(self, scope: str) -> list[Change]:
        """What changed since the history was last told, by key."""
        found = self.state.changes(scope, self._told.get(scope, Seen()))
        self._told[scope] = Seen(found.epoch, found.version)
        return sorted(found.entries)

    # What becomes of it

    def remember(self) -> Mapping[str, _Scope]:
        """All that it holds now."""
        return copy.deepcopy(self.state._scopes)

    def go_down(self) -> None:
        self.is_up = False
        self.machine.kill(self.process)

    def come_up(self, kept: Mapping[str, _Scope] | None = None) -> None:
        """With all data; or with what it held once, as if nothing had been written since.

        Numbers that were given out are never given out again, for they are times where it matters.
        """
        self.is_up, self.process = True, Process("store")
        self.life += 1
        if kept is None:
            self.history.add("store", "is back")
            return
        if not kept:
            self.state._epoch += "'"
        scopes = self.state._scopes
        for name, lost in scopes.items():
            found = scopes[name] = kept.get(name) or _Scope(1_000)
            found.version, found.token = lost.version + 1, lost.token
            found.holder, found.watchers = None, 0
            found.queue.clear()
        self._told.clear()
        held = {name: self.changed(name) for name in scopes}
        self.history.add("store", "lost data", held=held)


class Faults:
    """What is wrong with one worker's line just now."""

    def __init__(self) -> None:
        self.cut_until_s = 0.0
        self.flaky_until_s = 0.0
        self.flakiness = 0.0


class _Reply:
    """What a thread waits for; it may never come."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.value: Any = None
        self.error: Exception | None = None
        self.came = False
        self.is_awaited = True


class Line:
    """One worker's :class:`~scheduler_worker.ports.State`."""

    characteristics = Characteristics(spans_processes=True, survives_restart=True)

    def __init__(self, store: Store, who: str, clock: Clock, faults: Faults) -> None:
        self._store = store
        self._machine = store.machine
        self._who = who
        self._clock = clock
        self._faults = faults

    # The port

    def acquire(
        self, scope: str, *, timeout_s: float, seen: Seen, head_start_s: float = 0.0
    ) -> Grant:
        asked_s = self._clock.monotonic_s()
        asking = _Asking(self._store, self._who, scope)
        try:
            grant = self._ask(
                partial(asking.serve, timeout_s=timeout_s, seen=seen, head_start_s=head_start_s),
                blocks=True,
            )
        except StateUnavailable:
            self._machine.at(self._delay_s(), partial(self._reach, asking.leave))
            raise
        ends_s = self._clock.monotonic_s() + grant.ends_at_s - self._machine.now_s
        return msgspec.structs.replace(
            grant, ends_at_s=ends_s, waited_s=self._clock.monotonic_s() - asked_s
        )

    def commit(
        self, grant: Grant, transactions: Sequence[Transaction], *, keep_at: int | None = None
    ) -> Written:
        return self._ask(
            lambda: self._store.commit(self._who, grant, transactions, keep_at=keep_at)
        )

    def release(self, grant: Grant) -> None:
        self._ask(lambda: self._store.release(self._who, grant))

    def changes(self, scope: str, seen: Seen) -> Changes:
        return self._ask(lambda: _told(self._store, scope, seen))

    def await_change(self, scope: str, seen: Seen, *, timeout_s: float) -> bool:
        def serve() -> bool:
            known = _known(self._store, seen)
            return self._store.state.await_change(scope, known, timeout_s=timeout_s)

        return self._ask(serve, blocks=True)

    def write(
        self, scope: str, transactions: Sequence[Transaction], *, once: str | None = None
    ) -> Written:
        answers: list[Written] = []

        def serve() -> Written:
            if not answers:
                answers.append(self._store.write(self._who, scope, transactions, once))
            return answers[0]

        return self._ask(serve)

    def ping(self) -> None:
        self._ask(lambda: None)

    def check(self) -> list[str]:
        return []

    def close(self) -> None:
        pass

    # There and back

    def _ask(self, serve: Callable[[], T], *, blocks: bool = False) -> T:
        """What the store answers; a call whose answer is lost is repeated for a while."""
        gives_up_s = self._machine.now_s + self._machine.random.uniform(0.0, REPEATED_FOR_S)
        while True:
            reply = _Reply(self._machine.running)
            self._send(serve, reply, blocks=blocks)
            self._machine.park()
            reply.is_awaited = False
            if reply.error is not None:
                raise reply.error
            if reply.came:
                return reply.value  # type: ignore[no-any-return]
            if self._machine.now_s > gives_up_s:
                self._store.history.add(self._who, "gives up", call="the store does not answer")
                raise StateUnavailable("The store does not answer")

    def _send(self, serve: Callable[[], object], reply: _Reply, *, blocks: bool) -> None:
        arrive = partial(self._arrive, serve, reply, blocks=blocks)
        if self._fails() and self._machine.random.random() < 0.5:
            # It comes, but its caller does not wait that long.
            self._machine.at(self._machine.random.uniform(0.0, LATEST_S), arrive)
            self._lose(reply)
        else:
            self._machine.at(self._delay_s(), arrive)

    def _arrive(self, serve: Callable[[], object], reply: _Reply, *, blocks: bool) -> None:
        if not self._reaches():
            self._lose(reply)
        elif blocks:
            self._machine.spawn(self._store.process, self._answer, serve, reply)
        else:
            self._answer(serve, reply)

    def _answer(self, serve: Callable[[], object], reply: _Reply) -> None:
        try:
            answer, error = serve(), None
        except SchedulerWorkerError as refusal:
            answer, error = None, refusal
        except GreenletExit:
            self._lose(reply)
            raise
        self._machine.at(self._delay_s(), partial(self._come_back, reply, answer, error))

    def _come_back(self, reply: _Reply, answer: object, error: Exception | None) -> None:
        if self._fails() or not self._reaches():
            self._lose(reply)
        elif reply.is_awaited:
            reply.value, reply.error, reply.came = answer, error, True
            self._machine.wake(reply.thread)

    def _lose(self, reply: _Reply) -> None:
        """Its thread finds out that no answer will come."""

        def notice() -> None:
            if reply.is_awaited:
                self._machine.wake(reply.thread)

        self._machine.at(self._machine.random.uniform(0.0, SLOWEST_S), notice)

    def _reach(self, serve: Callable[[], object]) -> None:
        """Say something that is not repeated."""
        if self._reaches() and not self._fails():
            serve()

    def _reaches(self) -> bool:
        return self._store.is_up and self._faults.cut_until_s <= self._machine.now_s

    def _fails(self) -> bool:
        is_flaky = self._faults.flaky_until_s > self._machine.now_s
        return is_flaky and self._machine.random.random() < self._faults.flakiness

    def _delay_s(self) -> float:
        """Mostly a millisecond, now and then much more."""
        dice = self._machine.random
        return dice.uniform(0.0, 0.001) if dice.random() < 0.9 else dice.uniform(0.0, SLOWEST_S)


class _Asking:
    """One wish for a lock, however often it is repeated."""

    def __init__(self, store: Store, who: str, scope: str) -> None:
        self._store = store
        self._who = who
        self._scope = scope
        self._waiting: Thread | None = None
        self._grant: Grant | None = None

    def serve(self, *, timeout_s: float, seen: Seen, head_start_s: float) -> Grant:
        store = self._store
        if self._grant is None or self._grant.ends_at_s <= store.monotonic_s():
            self._drop_out()
            self._waiting = store.machine.running
            self._grant = store.acquire(
                self._who,
                self._scope,
                timeout_s=timeout_s,
                seen=_known(store, seen),
                head_start_s=head_start_s,
            )
            self._waiting = None
        # A repetition finds its hold, and is told the changes anew.
        told = _told(store, self._scope, seen)
        return msgspec.structs.replace(self._grant, changes=told)

    def leave(self) -> None:
        self._drop_out()
        if self._grant is not None:
            self._store.release(self._who, self._grant)

    def _drop_out(self) -> None:
        if self._waiting is not None:
            self._store.machine.end(self._waiting)
            self._waiting = None


def _known(store: Store, seen: Seen) -> Seen:
    """What still counts of what a caller has seen: nothing from another life of the store."""
    epoch, _, life = seen.epoch.partition(".")
    return Seen(epoch, seen.version) if life == str(store.life) else Seen()


def _told(store: Store, scope: str, seen: Seen) -> Changes:
    found = store.state.changes(scope, _known(store, seen))
    return msgspec.structs.replace(found, epoch=f"{found.epoch}.{store.life}")
