"""The shared state in Redis, for any number of workers.

All judgement about time, versions and the queue is in the Lua files beside this one; what is true
there is told in ``docs/state.md``. Here arguments are packed, replies unpacked, and waiters wait.
Nothing here looks into a record.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.advice import advice
from scheduler_worker.backends.redis.connection import Server
from scheduler_worker.backends.redis.nodes import Answer, Node
from scheduler_worker.errors import ClusterLockTimeout, StaleFencingToken, StateUnavailable
from scheduler_worker.model.claims import FencingToken
from scheduler_worker.ports import (
    Change,
    Changes,
    Characteristics,
    Clock,
    Grant,
    Put,
    Seen,
    Transaction,
    Written,
)
from scheduler_worker.unique import unique_hex

KEYS = ("meta", "records", "changed", "expiry", "gone", "queue", "patience", "watchers")
"""The keys of a scope, in the order in which the scripts name them; a memo comes after them."""

MICRO = 1_000_000
MEMO_MS = 600_000
"""How long a commit, or a write with ``once``, is recognised when it comes again."""

REPEAT_MS = 60_000
"""How long any other write is: it is repeated at most for the time of the retries."""

UNLIMITED = 2**52
PAGE = 1_000
CLOSE_S = 2.0


class RedisState:
    """The :class:`~scheduler_worker.ports.State` of many processes; safe for threads.

    It connects when it is first used. A scope with more than ``max_changes`` changes to tell is
    read in pages. Of deleted records the last ``max_tombstones`` of a scope are remembered; who
    has not looked for longer gets everything. A command that fails for a reason that may pass is
    repeated for ``retry_for_s``, then StateUnavailable is raised. So it is when fewer than
    ``wait_replicas`` replicas have got a commit or a write; it is done then, and a repetition finds
    it and waits again.

    ``url`` is ``redis://``, ``rediss://``, ``unix://``,
    ``redis+sentinel://host:port,host:port/service/db`` or ``redis+cluster://host:port,host:port``
    (with TLS ``rediss+...``); ConfigError when it is none of them.
    """

    characteristics = Characteristics(spans_processes=True, survives_restart=True)

    def __init__(
        self,
        url: str,
        *,
        hold_timeout_s: float,
        offer_s: float = 0.5,
        prefix: str = "scheduler_worker",
        clock: Clock | None = None,
        max_changes: int = 50_000,
        max_tombstones: int = 20_000,
        connect_timeout_s: float = 2.0,
        socket_timeout_s: float = 5.0,
        retry_for_s: float = 5.0,
        wait_replicas: int = 0,
    ) -> None:
        self._clock = clock or SystemClock()
        self._prefix = prefix
        self._hold_timeout_s = hold_timeout_s
        self._max_changes = max_changes
        self._max_tombstones = max_tombstones
        self._offer_s = offer_s
        self._wait_replicas = wait_replicas
        self._server = Server(
            url,
            connect_timeout_s=connect_timeout_s,
            socket_timeout_s=socket_timeout_s,
            retry_for_s=retry_for_s,
            wait_replicas=wait_replicas,
        )
        self._known_keys: dict[str, tuple[str, ...]] = {}
        self._waiting: set[str] = set()
        self._waiting_changed = threading.Condition()

    def acquire(
        self, scope: str, *, timeout_s: float, seen: Seen, head_start_s: float = 0.0
    ) -> Grant:
        started_s = self._clock.monotonic_s()
        owner = unique_hex()
        with self._waiting_for(scope, owner) as wake_list:
            while True:
                asked_s = self._clock.monotonic_s()
                left_s = started_s + timeout_s - asked_s
                answer = self._ask(scope, owner, left_s, seen, head_start_s)
                if isinstance(answer, tuple):
                    return Grant(
                        scope=scope,
                        owner=owner,
                        token=answer[0],
                        waited_s=self._clock.monotonic_s() - started_s,
                        ends_at_s=asked_s + self._hold_timeout_s,
                        changes=answer[1],
                    )
                if left_s <= 0:
                    raise ClusterLockTimeout(
                        f"The lock of {scope!r} was not granted within {timeout_s:g} s"
                    )
                self._server.wait_for_nudge(wake_list, min(left_s, answer))

    def commit(
        self, grant: Grant, transactions: Sequence[Transaction], *, keep_at: int | None = None
    ) -> Written:
        token, keep = grant.token, "" if keep_at is None else keep_at
        args = (grant.owner, token.number, token.epoch, MEMO_MS, keep, *_packed(transactions))
        memo = f"commit:{grant.owner}:{grant.turn}"
        answer = self._run("commit", grant.scope, args, memo=memo).value
        if answer is None:
            raise StaleFencingToken(
                f"The hold of {grant.scope!r} with token {token.number} had ended before its "
                "commit; nothing was written"
            )
        written, _, kept = answer.rpartition(b" ")
        return _written(written)._replace(kept=kept == b"1")

    def release(self, grant: Grant) -> None:
        self._run("leave", grant.scope, (grant.owner,))

    def changes(self, scope: str, seen: Seen) -> Changes:
        args = (*_known(seen), self._max_changes)
        return self._told(scope, seen, self._run("changes", scope, args))

    def await_change(self, scope: str, seen: Seen, *, timeout_s: float) -> bool:
        ends_s = self._clock.monotonic_s() + timeout_s
        owner = unique_hex()
        with self._waiting_for(scope, owner) as wake_list:
            while True:
                left_s = ends_s - self._clock.monotonic_s()
                args = (owner, _micro(max(left_s, 0.0)), *_known(seen))
                answer = self._run("watch", scope, args)
                changed, until_us = answer.value
                if changed or answer.life != _life(seen):
                    return True
                if left_s <= 0:
                    return False
                self._server.wait_for_nudge(wake_list, min(left_s, int(until_us) / MICRO))

    def write(
        self, scope: str, transactions: Sequence[Transaction], *, once: str | None = None
    ) -> Written:
        call = unique_hex()
        memo, memo_ms = (f"call:{call}", REPEAT_MS) if once is None else (f"once:{once}", MEMO_MS)
        args = (call, memo_ms, *_packed(transactions))
        answer = self._run("write", scope, args, memo=memo).value
        answered, _, written = answer.partition(b" ")
        is_first = answered == call.encode()
        return _written(written) if is_first else _written(written)._replace(before=-1)

    def ping(self) -> None:
        self._server.of_each(lambda node: node.command("PING"))

    def check(self) -> list[str]:
        said = self._server.of_each(Node.info)
        return [
            sentence
            for name, info in said.items()
            for sentence in advice(f"Redis at {name}", info, self._wait_replicas)
        ]

    def close(self) -> None:
        self._server.refuse()
        with self._waiting_changed:
            if self._waiting:
                with contextlib.suppress(StateUnavailable):
                    for wake_list in self._waiting:
                        self._server.nudge(wake_list)
                self._waiting_changed.wait_for(lambda: not self._waiting, CLOSE_S)
        self._server.disconnect()

    @contextlib.contextmanager
    def _waiting_for(self, scope: str, owner: str) -> Iterator[str]:
        """Inside, the owner may wait at the wake-up list; it gives up everything on an error."""
        wake_list = f"{self._base(scope)}wake:{owner}"
        with self._waiting_changed:
            self._waiting.add(wake_list)
        try:
            yield wake_list
        except BaseException:
            with contextlib.suppress(StateUnavailable):
                self._server.run_once("leave", *self._parts(scope, (owner,)))
            raise
        finally:
            with self._waiting_changed:
                self._waiting.discard(wake_list)
                self._waiting_changed.notify_all()

    def _ask(
        self, scope: str, owner: str, patience_s: float, seen: Seen, head_start_s: float
    ) -> tuple[FencingToken, Changes] | float:
        """What a grant consists of; or the seconds after which to ask again."""
        times_us = (_micro(self._hold_timeout_s), _micro(patience_s))
        args = (owner, *times_us, *_known(seen), self._max_changes, _micro(head_start_s))
        answer = self._run("acquire", scope, args)
        granted, *reply = answer.value
        if not granted:
            return int(reply[0]) / MICRO
        number, changes = reply
        token = FencingToken(int(number), changes[0][2].decode())
        return token, self._told(scope, seen, Answer(changes, answer.life))

    def _told(self, scope: str, seen: Seen, answer: Answer) -> Changes:
        """The changes in an answer to a caller that has seen so much."""
        head, *rest = answer.value
        epoch = f"{head[2].decode()}.{answer.life}"
        if not rest:
            return self._in_pages(scope, Seen(epoch, int(head[0])))
        (keys, values), reset = rest, bool(head[3])
        if not reset and answer.life != _life(seen):
            return self.changes(scope, Seen())
        return Changes(
            epoch=epoch,
            version=int(head[0]),
            now_s=int(head[1]) / MICRO,
            entries=[
                Change(key.decode(), int(float(version)), value)
                for key, version, value in zip(keys[::2], keys[1::2], values, strict=True)
                if value is not None or not reset
            ],
            reset=reset,
        )

    def _in_pages(self, scope: str, begun: Seen) -> Changes:
        """Everything, when it is too much for one reply.

        A record may be newer than its page; then it is also among what changed since it was
        begun, which is read last and wins.
        """
        found = {change.key: change for change in self._pages(scope)}
        answer = self._run("changes", scope, (*_known(begun), UNLIMITED))
        later = self._told(scope, begun, answer)
        if later.reset:
            return later
        found.update((change.key, change) for change in later.entries)
        return Changes(
            epoch=later.epoch,
            version=later.version,
            now_s=later.now_s,
            entries=[change for change in found.values() if change.value is not None],
            reset=True,
        )

    def _pages(self, scope: str) -> Iterator[Change]:
        cursor, page = self._page(scope, 0)
        yield from page
        while cursor:
            cursor, page = self._page(scope, cursor)
            yield from page

    def _page(self, scope: str, cursor: int) -> tuple[int, list[Change]]:
        _, records, changed, *_ = self._keys(scope)
        ask = self._server.command
        following, found = ask(records, "HSCAN", records, cursor, "COUNT", PAGE)
        keys = found[::2]
        versions = ask(changed, "ZMSCORE", changed, *keys) if keys else ()
        return int(following), [
            Change(key.decode(), int(float(version or 0)), value)
            for key, value, version in zip(keys, found[1::2], versions, strict=True)
        ]

    def _run(
        self, script: str, scope: str, args: Sequence[Any], *, memo: str | None = None
    ) -> Answer:
        """What the script answers; one that leaves a memo has written what must last."""
        parts = self._parts(scope, args, memo)
        return self._server.run(script, *parts, lasting=memo is not None)

    def _parts(
        self, scope: str, args: Sequence[Any], memo: str | None = None
    ) -> tuple[list[str], list[Any]]:
        """The keys and the arguments that a script expects."""
        keys = list(self._keys(scope))
        if memo is not None:
            keys.append(f"{self._base(scope)}memo:{memo}")
        fresh_epoch = unique_hex()  # taken when the scope has none: a new life, a new name
        return keys, [fresh_epoch, self._max_tombstones, _micro(self._offer_s), *args]

    def _keys(self, scope: str) -> tuple[str, ...]:
        keys = self._known_keys.get(scope)
        if keys is None:
            base = self._base(scope)
            keys = self._known_keys[scope] = tuple(base + name for name in KEYS)
        return keys

    def _base(self, scope: str) -> str:
        """Begins every key of a scope; what is in braces keeps them on one shard of a cluster."""
        return f"{self._prefix}:{{{quote(scope, safe='@')}}}:"


def _life(seen: Seen) -> str:
    """The second half of a caller's epoch: which life of the server it has seen."""
    return seen.epoch.partition(".")[2]


def _known(seen: Seen) -> Seen:
    """What a caller has seen, in the store's terms."""
    return Seen(seen.epoch.partition(".")[0], seen.version)


def _micro(seconds: float) -> int:
    return int(seconds * MICRO)


def _packed(transactions: Sequence[Transaction]) -> Iterator[Any]:
    """Transactions as ``apply`` in common.lua reads them."""
    yield len(transactions)
    for transaction in transactions:
        yield from (len(transaction.guards), len(transaction.puts))
        for guard in transaction.guards:
            yield from guard
        for put in transaction.puts:
            yield from _packed_put(put)


def _packed_put(put: Put) -> tuple[Any, ...]:
    if put.value is None:
        return put.key, "delete", "", ""
    return put.key, "put", put.value, "" if put.expires_at_s is None else _micro(put.expires_at_s)


def _written(answer: bytes) -> Written:
    """Of ``b"<version> <version before> <a digit for each transaction>"``."""
    version, before, applied = answer.decode().split(" ")
    return Written(int(version), tuple(digit == "1" for digit in applied), int(before))
