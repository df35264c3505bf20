"""The shared state in Redis, for any number of workers.

The Lua scripts in this package decide about time, versions and the queue; ``docs/state.md``
explains them. This module packs their arguments, unpacks their replies, and waits. It never looks
into a record.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec import structs

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.redis.connection import RedisServer
from scheduler_worker.backends.redis.nodes import RedisNode, ScriptReply
from scheduler_worker.backends.settings import PREFIX
from scheduler_worker.errors import ClusterLockTimeout, StaleFencingToken, StateUnavailable
from scheduler_worker.model.claims import FencingToken
from scheduler_worker.ports import (
    Change,
    Changes,
    Clock,
    EngineGuarantees,
    LockGrant,
    Seen,
    Transaction,
    Written,
)
from scheduler_worker.unique import unique_hex

LOG = logging.getLogger(__name__)

KEYS = ("meta", "records", "changed", "expiry", "gone", "queue", "patience", "watchers")
"""The keys of a scope, in the order that the scripts expect; the memo's key follows them."""

MEMO_MS = 600_000
"""How long a repeated commit, or write with ``once``, is recognised."""

REPEAT_MS = 60_000
"""How long any other repeated write is recognised; only our own retries repeat it."""

UNLIMITED = 2**52
PAGE = 1_000
OLDEST_REDIS = (6, 2)
CLOSE_S = 2.0
MICRO = 1_000_000
JUMP_S = 5.0
"""The smallest difference between the clocks' progress that counts as a jump."""
LOG_EVERY_S = 60.0
"""All scopes of a server see the same jump, which is logged once."""


class RedisState:
    """The :class:`~scheduler_worker.ports.State` of many processes; thread-safe.

    Connects at the first use. A scope with more than ``max_changes`` changes to read is read in
    pages. The last ``max_tombstones`` of a scope are kept. A caller that has missed older ones gets
    everything. A command that fails with a passing error is retried for ``retry_for_s``, then
    StateUnavailable is raised. The same holds if fewer than ``wait_replicas`` replicas have a
    commit or a write. It is stored then, and a retry finds it and waits again.

    ``url`` is ``redis://``, ``rediss://``, ``unix://``,
    ``redis+sentinel://host:port,host:port/service/db`` or ``redis+cluster://host:port,host:port``
    (with TLS ``rediss+...``); ConfigError when it is none of them.
    """

    characteristics = EngineGuarantees(spans_processes=True, survives_restart=True)

    def __init__(
        self,
        url: str,
        *,
        hold_timeout_s: float,
        offer_s: float = 0.5,
        prefix: str = PREFIX,
        clock: Clock | None = None,
        max_changes: int = 50_000,
        max_tombstones: int = 20_000,
        socket_timeout_s: float = 5.0,
        retry_for_s: float = 5.0,
        wait_replicas: int = 0,
    ) -> None:
        self._clock = clock or SystemClock()
        self._hold_timeout_s = hold_timeout_s
        self._max_changes = max_changes
        self._max_tombstones = max_tombstones
        self._hold_us, self._offer_us = _micro(hold_timeout_s), _micro(offer_s)
        self._wait_replicas = wait_replicas
        self._server = RedisServer(
            url,
            socket_timeout_s=socket_timeout_s,
            retry_for_s=retry_for_s,
            wait_replicas=wait_replicas,
        )
        self._base, self._keys = partial(base_of, prefix), partial(_keys, prefix)
        self._pace = Pace(self._clock)
        # The lists on which threads block now. A thread adds its own and removes it; a close wakes
        # them all under the lock, over the network, and then waits until they have gone.
        self._waiting: set[str] = set()
        self._waiting_changed = threading.Condition()

    def acquire(
        self, scope: str, *, timeout_s: float, seen: Seen, priority_boost_s: float = 0.0
    ) -> LockGrant:
        # Blocks the calling thread, on a connection of its own. It holds no lock of the process.
        started_s = self._clock.monotonic_s()
        owner = unique_hex()
        with self._waiting_for(scope, owner) as wake_list:
            while True:
                asked_s = self._clock.monotonic_s()
                left_s = started_s + timeout_s - asked_s
                times_us = (self._hold_us, _micro(left_s))
                limits = (self._max_changes, _micro(priority_boost_s))
                answer = self._run("acquire", scope, (owner, *times_us, *_known(seen), *limits))
                granted, *reply = answer.value
                if granted:
                    number, changes = reply
                    answer = ScriptReply(changes, answer.run_id)
                    return LockGrant(
                        scope=scope,
                        owner=owner,
                        token=FencingToken(int(number), changes[0][2].decode()),
                        changes=self._changes_in(scope, seen, answer, asked_s),
                        waited_s=self._clock.monotonic_s() - started_s,
                        # From before the question: the server's lease begins later, so ours ends
                        # first.
                        granted_at_s=asked_s,
                        ends_at_s=asked_s + self._hold_timeout_s,
                    )
                if left_s <= 0:
                    raise ClusterLockTimeout(
                        f"The lock of {scope!r} was not granted within {timeout_s:g} s"
                    )
                # A nudge may get lost with its server, so ask again after a while in any case.
                self._server.wait_for_nudge(wake_list, min(left_s, int(reply[0]) / MICRO))

    def commit(
        self,
        grant: LockGrant,
        transactions: Sequence[Transaction],
        *,
        at: int | None = None,
        keep: bool = False,
    ) -> Written:
        # The caller holds the replica's lock. It waits for a round trip, or in an outage until the
        # first caller has given up: then all others fail at once.
        token, known = grant.token, ("" if at is None else at, int(keep))
        args = (grant.owner, token.number, token.epoch, MEMO_MS, *known, *_packed(transactions))
        # A retry after a lost reply finds the memo of the first try, and is told its result.
        memo = f"commit:{grant.owner}:{grant.commits}"
        answer = self._run("commit", grant.scope, args, memo=memo).value
        if answer is None:
            raise StaleFencingToken(
                f"The lease of {grant.scope!r} with token {token.number} had ended before its "
                "commit; nothing was written"
            )
        written, _, lock = answer.rpartition(b" ")
        return _written(written)._replace(kept=lock == b"1", is_free=lock == b"2")

    def release(self, grant: LockGrant) -> None:
        self._run("leave", grant.scope, (grant.owner,))

    def changes(self, scope: str, seen: Seen) -> Changes:
        asked_s = self._clock.monotonic_s()
        answer = self._run("changes", scope, (*_known(seen), self._max_changes))
        return self._changes_in(scope, seen, answer, asked_s)

    def await_change(self, scope: str, seen: Seen, *, timeout_s: float) -> bool:
        ends_s = self._clock.monotonic_s() + timeout_s
        owner = unique_hex()
        with self._waiting_for(scope, owner) as wake_list:
            while True:
                left_s = ends_s - self._clock.monotonic_s()
                args = (owner, _micro(max(left_s, 0.0)), *_known(seen))
                answer = self._run("watch", scope, args)
                changed, until_us = answer.value
                # A restarted server may number its versions as before; its run_id tells.
                if changed or answer.run_id != seen.epoch.partition(".")[2]:
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
        # Another call wrote this; the caller's replica must read it, not take it for its own.
        return _written(written) if is_first else _written(written)._replace(before=-1)

    def ping(self) -> None:
        self._server.of_each(lambda node: node.command("PING"))

    def reach(self) -> None:
        self._server.reach()

    def check(self) -> list[str]:
        replies = self._server.of_each(RedisNode.info)
        return [
            sentence
            for name, info in replies.items()
            for sentence in advice(f"Redis at {name}", info, self._wait_replicas)
        ]

    def loses(self) -> str | None:
        replies = self._server.of_each(RedisNode.info)
        names = [name for name, info in replies.items() if info and not _keeps_writes(info)]
        return f"Redis at {', '.join(names)} keeps no append-only file" if names else None

    def close(self) -> None:
        # New calls fail from here on; what was sent is answered or fails.
        self._server.refuse()
        with self._waiting_changed:
            # Blocked calls would wait for their timeouts on connections that are closed under them.
            if self._waiting:
                with contextlib.suppress(StateUnavailable):
                    for wake_list in self._waiting:
                        self._server.nudge(wake_list)
                self._waiting_changed.wait_for(lambda: not self._waiting, CLOSE_S)
        self._server.disconnect()

    @contextlib.contextmanager
    def _waiting_for(self, scope: str, owner: str) -> Iterator[str]:
        """Yield the owner's wake-up list; on an error, leave the queue and release the lock."""
        wake_list = f"{self._base(scope)}wake:{owner}"
        with self._waiting_changed:
            self._waiting.add(wake_list)
        try:
            yield wake_list
        except BaseException:
            with contextlib.suppress(StateUnavailable):
                # Else the lock would be offered to a waiter that is gone.
                self._server.run_once("leave", *self._parts(scope, (owner,)))
            raise
        finally:
            with self._waiting_changed:
                self._waiting.discard(wake_list)
                self._waiting_changed.notify_all()

    def _changes_in(self, scope: str, seen: Seen, answer: ScriptReply, asked_s: float) -> Changes:
        """Unpack the changes in the reply to a question that was asked at ``asked_s``."""
        head, *rest = answer.value
        self._pace.update(scope, int(head[1]), int(head[5]), asked_s)
        present, (known, _, life) = head[2].decode(), seen.epoch.partition(".")
        if known and known != present:
            _log_loss(scope, head[4].decode())
        epoch = f"{present}.{answer.run_id}"
        if not rest:
            return self._in_pages(scope, Seen(epoch, int(head[0])))
        (keys, values), reset = rest, bool(head[3])
        # These changes follow on what another life of the server had: read everything.
        if not reset and answer.run_id != life:
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
            since=seen.version,
        )

    def _in_pages(self, scope: str, begun: Seen) -> Changes:
        """Read all records with HSCAN, because they are too many for one reply.

        A record may change while the scan runs. The changes since its start are read last, and
        replace what the scan found.
        """
        by_key = {change.key: change for change in self._pages(scope)}
        asked_s = self._clock.monotonic_s()
        answer = self._run("changes", scope, (*_known(begun), UNLIMITED))
        later = self._changes_in(scope, begun, answer, asked_s)
        if later.reset:
            return later
        by_key.update((change.key, change) for change in later.entries)
        entries = [change for change in by_key.values() if change.value is not None]
        return structs.replace(later, entries=entries, reset=True)

    def _pages(self, scope: str) -> Iterator[Change]:
        _, records, changed, *_ = self._keys(scope)
        ask, cursor = self._server.command, b"0"
        while True:
            cursor, pairs = ask(records, "HSCAN", records, cursor, "COUNT", PAGE)
            keys = pairs[::2]
            versions = ask(changed, "ZMSCORE", changed, *keys) if keys else ()
            for key, value, version in zip(keys, pairs[1::2], versions, strict=True):
                if key:  # else it is the marker by which the scripts detect a lost key
                    yield Change(key.decode(), int(float(version or 0)), value)
            if not int(cursor):
                return

    def _run(
        self, script: str, scope: str, args: Sequence[Any], *, memo: str | None = None
    ) -> ScriptReply:
        """Run a script on the scope's keys; one with a memo writes, and may wait for replicas."""
        return self._server.run(script, *self._parts(scope, args, memo), lasting=memo is not None)

    def _parts(
        self, scope: str, args: Sequence[Any], memo: str | None = None
    ) -> tuple[list[str], list[Any]]:
        """The keys and the arguments of a script."""
        keys = list(self._keys(scope))
        if memo is not None:
            keys.append(f"{self._base(scope)}memo:{memo}")
        fresh_epoch = unique_hex()  # the epoch of a scope that has none, or has lost a key
        latest_us = self._pace.latest_us(scope)
        common = (fresh_epoch, self._max_tombstones, self._offer_us)
        return keys, [*common, "" if latest_us is None else latest_us, *args]


@cache
def base_of(prefix: str, scope: str) -> str:
    """The prefix of a scope's keys; the hash tag in braces keeps them in one slot."""
    return f"{prefix}:{{{quote(scope, safe='@')}}}:"


@cache
def _keys(prefix: str, scope: str) -> tuple[str, ...]:
    return tuple(base_of(prefix, scope) + name for name in KEYS)


def _log_loss(scope: str, lost: str) -> None:
    """Log that the store has lost data of a scope that the caller had seen."""
    LOG.warning(
        "The state of scope %s began again: it had lost %s. This worker discards what it knew of "
        "it; what is missing comes back with the hosts' reports",
        scope,
        f"its key{'s' * (',' in lost)} {lost}" if lost else "everything",
    )


def _known(seen: Seen) -> Seen:
    """What a caller has seen, with the first half of its epoch, which the store knows."""
    return Seen(seen.epoch.partition(".")[0], seen.version)


def _micro(seconds: float) -> int:
    return int(seconds * MICRO)


def _packed(transactions: Sequence[Transaction]) -> Iterator[Any]:
    """The transactions as arguments of ``apply`` in common.lua."""
    yield len(transactions)
    for transaction in transactions:
        yield from (len(transaction.guards), len(transaction.puts))
        for guard in transaction.guards:
            yield from guard
        for key, value, expires_at_s in transaction.puts:
            if value is None:
                yield from (key, "delete", "", "")
            else:
                expires = "" if expires_at_s is None else _micro(expires_at_s)
                yield from (key, "put", value, expires)


def _written(answer: bytes) -> Written:
    """Unpack ``b"<version> <version before> <a digit for each transaction>"``."""
    version, before, applied = answer.decode().split(" ")
    return Written(int(version), tuple(digit == "1" for digit in applied), int(before))


# Settings that endanger reservations


def advice(redis: str, info: Mapping[str, str] | None, wait_replicas: int) -> Iterator[str]:
    """Warnings about the server named ``redis``, from its reply to INFO (None: refused)."""
    if info is None:
        yield (
            f"{redis} refuses INFO to this account: its settings are not checked, and writes lost "
            "in a failover may go unnoticed; allow +info"
        )
        return
    if not _keeps_writes(info):
        yield (
            f"{redis} keeps no append-only file: a restart may lose reservations; set "
            "appendonly yes"
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield (
            f"{redis} may evict reservations (maxmemory-policy {policy}); set maxmemory-policy "
            "noeviction"
        )
    version = info.get("redis_version", "")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_REDIS:
        yield f"{redis} is of version {version}; 6.2 is the oldest supported"
    yield from _of_replicas(redis, info, wait_replicas)


def _keeps_writes(info: Mapping[str, str]) -> bool:
    return info.get("aof_enabled") == "1"


def _of_replicas(redis: str, info: Mapping[str, str], wait_replicas: int) -> Iterator[str]:
    connected = int(info.get("connected_slaves", 0))
    if connected < wait_replicas:
        yield (
            f"{redis} has {connected} replicas; while they are fewer than the {wait_replicas} of "
            "[state] wait_replicas, every request fails"
        )
    # INFO shows whether min-replicas-to-write is set; its value may be refused to the account.
    is_set = "min_slaves_good_slaves" in info
    required = int(info.get("min_replicas_to_write", connected)) if is_set else 0
    if min(wait_replicas, required) < connected:
        yield (
            f"{redis} may lose answered reservations when one of its {connected} replicas takes "
            f"over: each of them must have every write; set [state] wait_replicas = {connected} "
            f"and at every server min-replicas-to-write {connected}"
        )


class _Reading(NamedTuple):
    """What a server's clock showed at some time between a call and its reply."""

    now_s: float
    jumped_s: float
    """The sum of its forward jumps that the scripts know of."""
    asked_s: float
    answered_s: float


class Pace:
    """The last reading of the clock of each scope's server; logs its jumps. Thread-safe.

    Operators and time services set a server's clock. If it jumps forward, every reservation would
    expire at once; the scripts delay expiry when a caller proves the jump by passing an upper bound
    of the time (``check_clock`` in common.lua).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readings: dict[str, _Reading] = {}
        self._logged_s = float("-inf")

    def latest_us(self, scope: str) -> int | None:
        """An upper bound of the time of the scope's server now, less its known jumps.

        None: there is no reading yet.
        """
        reading = self._readings.get(scope)
        if reading is None:
            return None
        passed_s = self._clock.monotonic_s() - reading.asked_s
        return int(MICRO * (reading.now_s - reading.jumped_s + passed_s))

    def update(self, scope: str, now_us: int, jumped_us: int, asked_s: float) -> None:
        """Store a reading from the reply to a call that was made at ``asked_s``; log a jump."""
        answered_s = self._clock.monotonic_s()
        reading = _Reading(now_us / MICRO, jumped_us / MICRO, asked_s, answered_s)
        before, self._readings[scope] = self._readings.get(scope), reading
        if before is None or answered_s - self._logged_s <= LOG_EVERY_S:
            return
        went_s = reading.now_s - before.now_s
        forward_s = went_s - (answered_s - before.asked_s)
        back_s = asked_s - before.answered_s - went_s
        if max(forward_s, back_s) > JUMP_S:
            self._logged_s = answered_s
            LOG.warning(
                "The clock of the state's server went %s by %.0f s (seen in scope %s); "
                "reservations there expire %s later",
                "forward" if forward_s > back_s else "back",
                max(forward_s, back_s),
                scope,
                "as much" if forward_s > back_s else "up to as much",
            )
