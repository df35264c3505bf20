"""The shared state in Redis, for any number of workers.

All judgement about time, versions and the queue is in the Lua files beside this one; what is true
there is told in ``docs/state.md``. Here arguments are packed, replies unpacked, and waiters wait.
Nothing here looks into a record.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.connection import Server
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
OLDEST_REDIS = (6, 2)


class RedisState:
    """The :class:`~scheduler_worker.ports.State` of many processes; safe for threads.

    It connects when it is first used. A scope with more than ``max_changes`` changes to tell is
    read in pages. Of deleted records the last ``max_tombstones`` of a scope are remembered; who
    has not looked for longer gets everything. A command that fails for a reason that may pass is
    repeated for ``retry_for_s``, then StateUnavailable is raised.

    ``url`` is ``redis://``, ``rediss://``, ``unix://`` or
    ``redis+sentinel://host:port,host:port/service/db``; ConfigError when it is none of them.
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
    ) -> None:
        self._clock = clock or SystemClock()
        self._prefix = prefix
        self._hold_timeout_s = hold_timeout_s
        self._max_changes = max_changes
        self._max_tombstones = max_tombstones
        self._offer_s = offer_s
        self._server = Server(
            url,
            connect_timeout_s=connect_timeout_s,
            socket_timeout_s=socket_timeout_s,
            retry_for_s=retry_for_s,
        )
        self._known_keys: dict[str, tuple[str, ...]] = {}
        self._waiting: set[str] = set()
        self._waiting_changed = threading.Condition()

    def acquire(
        self, scope: str, *, timeout_s: float, seen: Seen, head_start_s: float = 0.0
    ) -> Grant:
        started_s = self._clock.monotonic_s()
        owner = uuid.uuid4().hex
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
        answer = self._run("commit", grant.scope, args, memo=f"commit:{grant.owner}:{grant.turn}")
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
        life, known = self._server.life, self._known(seen)
        return self._told(scope, life, self._run("changes", scope, (*known, self._max_changes)))

    def await_change(self, scope: str, seen: Seen, *, timeout_s: float) -> bool:
        ends_s = self._clock.monotonic_s() + timeout_s
        with self._waiting_for(scope, uuid.uuid4().hex) as wake_list:
            owner = wake_list.rpartition(":")[2]
            while True:
                left_s = ends_s - self._clock.monotonic_s()
                args = (owner, _micro(max(left_s, 0.0)), *self._known(seen))
                changed, *until_us = self._run("watch", scope, args)
                if changed or left_s <= 0:
                    return bool(changed)
                self._server.wait_for_nudge(wake_list, min(left_s, int(until_us[0]) / MICRO))

    def write(
        self, scope: str, transactions: Sequence[Transaction], *, once: str | None = None
    ) -> Written:
        call = uuid.uuid4().hex
        memo, memo_ms = (f"call:{call}", REPEAT_MS) if once is None else (f"once:{once}", MEMO_MS)
        answer = self._run("write", scope, (call, memo_ms, *_packed(transactions)), memo=memo)
        answered, _, written = answer.partition(b" ")
        is_first = answered == call.encode()
        return _written(written) if is_first else _written(written)._replace(before=-1)

    def ping(self) -> None:
        self._server.call(lambda redis: redis.ping())

    def check(self) -> list[str]:
        """Sentences about settings of the server that endanger what is stored; for an operator.

        Raises StateUnavailable.
        """
        info = self._server.info()
        if info is None:
            return [
                f"Redis at {self._server.address} refuses INFO to this account: its settings are "
                "not checked, and writes lost in a failover may go unnoticed; allow +info"
            ]
        return list(_warnings(self._server.address, info))

    def close(self) -> None:
        self._server.refuse()
        with self._waiting_changed:
            if self._waiting:
                with contextlib.suppress(StateUnavailable):
                    self._server.nudge(self._waiting)
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
        life, known = self._server.life, self._known(seen)
        times_us = (_micro(self._hold_timeout_s), _micro(patience_s))
        args = (owner, *times_us, *known, self._max_changes, _micro(head_start_s))
        granted, *reply = self._run("acquire", scope, args)
        if not granted:
            return int(reply[0]) / MICRO
        number, changes = reply
        token = FencingToken(int(number), changes[0][2].decode())
        return token, self._told(scope, life, changes)

    def _known(self, seen: Seen) -> Seen:
        """What still counts of what the caller has seen, in the store's terms."""
        epoch, _, life = seen.epoch.partition(".")
        return Seen(epoch, seen.version) if life == self._server.life else Seen()

    def _told(self, scope: str, life: str, reply: Sequence[Any]) -> Changes:
        """The changes in a script's reply, which was asked for in this life of the server."""
        if life and life != self._server.life:
            return self.changes(scope, Seen())
        head, *rest = reply
        if not rest:
            return self._in_pages(scope, head)
        (keys, values), reset = rest, bool(head[3])
        return Changes(
            epoch=f"{head[2].decode()}.{self._server.life}",
            version=int(head[0]),
            now_s=int(head[1]) / MICRO,
            entries=[
                Change(key.decode(), int(float(version)), value)
                for key, version, value in zip(keys[::2], keys[1::2], values, strict=True)
                if value is not None or not reset
            ],
            reset=reset,
        )

    def _in_pages(self, scope: str, head: Sequence[Any]) -> Changes:
        """Everything, when it is too much for one reply.

        A record may be newer than its page; then it is also among what changed since the head,
        which is read last and wins.
        """
        life = self._server.life
        found = {change.key: change for change in self._pages(scope)}
        reply = self._run("changes", scope, (head[2], head[0], UNLIMITED))
        later = self._told(scope, life, reply)
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
        base, call = self._base(scope), self._server.call
        cursor, found = call(lambda redis: redis.hscan(f"{base}records", cursor, count=PAGE))
        if not found:
            return cursor, []
        versions = call(lambda redis: redis.zmscore(f"{base}changed", list(found)))
        return cursor, [
            Change(key.decode(), int(version or 0), value)
            for (key, value), version in zip(found.items(), versions, strict=True)
        ]

    def _run(self, script: str, scope: str, args: Sequence[Any], *, memo: str | None = None) -> Any:
        return self._server.run(script, *self._parts(scope, args, memo))

    def _parts(
        self, scope: str, args: Sequence[Any], memo: str | None = None
    ) -> tuple[list[str], list[Any]]:
        """The keys and the arguments that a script expects."""
        keys = list(self._keys(scope))
        if memo is not None:
            keys.append(f"{self._base(scope)}memo:{memo}")
        fresh_epoch = uuid.uuid4().hex  # taken when the scope has none: a new life, a new name
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


def _warnings(address: str, info: Mapping[str, Any]) -> Iterator[str]:
    if not info.get("aof_enabled"):
        yield (
            f"Redis at {address} keeps no append-only file: a restart may forget promises; set "
            "appendonly yes"
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield (
            f"Redis at {address} may evict promises (maxmemory-policy {policy}); set "
            "maxmemory-policy noeviction"
        )
    version = str(info.get("redis_version", ""))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_REDIS:
        yield f"Redis at {address} is of version {version}; 6.2 is the oldest that serves"
