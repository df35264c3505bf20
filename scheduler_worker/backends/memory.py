"""The shared state of one process: what Redis does for many, without a server.

It keeps the promises of ``docs/state.md`` with dictionaries under one condition. It stores bytes
and never looks into them, so the embedded worker meets the same records as a cluster of workers.
Nothing here knows Redis, or what a record means.
"""

from __future__ import annotations

import heapq
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from scheduler_worker.errors import ClusterLockTimeout, StaleFencingToken, StateUnavailable
from scheduler_worker.model.claims import FencingToken
from scheduler_worker.ports import (
    ABSENT,
    Change,
    Changes,
    Characteristics,
    Clock,
    Grant,
    Guard,
    Put,
    Seen,
    Transaction,
    Written,
)

MEMO_S = 600.0
"""How long a repeated ``once`` or commit is recognised."""

LOOK_AGAIN_S = 0.05
"""A waiter looks again at least this often: its turn may depend on a clock moved by hand."""


class MemoryState:
    """The :class:`~scheduler_worker.ports.State` of one process; safe for its threads.

    ``offer_s`` is taken for likeness with the engine for many processes and is not needed here:
    a waiter is a thread, and a thread does not die in the queue. Of deleted records the last
    ``max_changes`` of a scope are remembered; who has not looked for longer gets everything.
    """

    characteristics = Characteristics(spans_processes=False, survives_restart=False)

    def __init__(
        self,
        clock: Clock,
        *,
        hold_timeout_s: float,
        offer_s: float = 0.5,
        max_changes: int = 50_000,
    ) -> None:
        self._clock = clock
        self._hold_timeout_s = hold_timeout_s
        self._max_changes = max_changes
        self._epoch = uuid.uuid4().hex
        self._condition = threading.Condition()
        self._scopes: dict[str, _Scope] = {}
        self._closed = False

    def acquire(
        self, scope: str, *, timeout_s: float, seen: Seen, head_start_s: float = 0.0
    ) -> Grant:
        started_s = self._clock.monotonic_s()
        owner = uuid.uuid4().hex
        with self._opened(scope) as state:
            state.line_up(owner, started_s - head_start_s)
            try:
                self._wait_for_turn(scope, state, owner, started_s + timeout_s)
            finally:
                del state.queue[owner]
                self._condition.notify_all()
            return self._grant(scope, state, owner, started_s, seen)

    def commit(
        self, grant: Grant, transactions: Sequence[Transaction], *, keep_at: int | None = None
    ) -> Written:
        with self._opened(grant.scope) as state:
            now_s = self._clock.monotonic_s()
            memo = f"{grant.owner}:{grant.turn}"
            known = state.memos.find(memo, now_s)
            if known is not None:
                return known
            if not state.is_held_by(grant.owner, now_s) or grant.token.epoch != self._epoch:
                raise StaleFencingToken(
                    f"The hold of {grant.scope!r} with token {grant.token.number} had ended before "
                    "its commit; nothing was written"
                )
            written = state.apply(transactions)
            written = written._replace(kept=written.before == keep_at and not state.queue)
            state.memos.keep(memo, written, now_s)
            if not written.kept:
                state.holder = None
            self._condition.notify_all()
            return written

    def release(self, grant: Grant) -> None:
        with self._opened(grant.scope) as state:
            if state.holder == grant.owner:
                state.holder = None
                self._condition.notify_all()

    def changes(self, scope: str, seen: Seen) -> Changes:
        with self._opened(scope) as state:
            return self._changes(state, seen)

    def await_change(self, scope: str, seen: Seen, *, timeout_s: float) -> bool:
        deadline_s = self._clock.monotonic_s() + timeout_s
        with self._opened(scope) as state:
            state.watchers += 1
            try:
                return self._wait_for_change(state, seen, deadline_s)
            finally:
                state.watchers -= 1

    def _wait_for_change(self, state: _Scope, seen: Seen, deadline_s: float) -> bool:
        while seen == Seen(self._epoch, state.version):
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return False
            expires_s = state.next_expiry_s() - self._clock.time_s()
            self._condition.wait(max(0.0, min(left_s, expires_s, LOOK_AGAIN_S)))
            self._refuse_when_closed()
            state.end_expired(self._clock.time_s())
        return True

    def write(
        self, scope: str, transactions: Sequence[Transaction], *, once: str | None = None
    ) -> Written:
        with self._opened(scope) as state:
            now_s = self._clock.monotonic_s()
            known = None if once is None else state.memos.find(once, now_s)
            if known is not None:
                return known._replace(before=-1)
            written = state.apply(transactions)
            if once is not None and all(written.applied):
                state.memos.keep(once, written, now_s)
            self._condition.notify_all()
            return written

    def ping(self) -> None:
        self._refuse_when_closed()

    def check(self) -> list[str]:
        return []

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    @contextmanager
    def _opened(self, scope: str) -> Iterator[_Scope]:
        """The scope, under the condition, with its expired promises ended."""
        with self._condition:
            self._refuse_when_closed()
            state = self._scopes.setdefault(scope, _Scope(self._max_changes))
            state.end_expired(self._clock.time_s())
            yield state

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StateUnavailable("The shared state of this process was closed")

    def _wait_for_turn(self, scope: str, state: _Scope, owner: str, deadline_s: float) -> None:
        while not state.is_turn_of(owner, self._clock.monotonic_s()):
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise ClusterLockTimeout(f"The lock of {scope!r} was not granted in time")
            self._condition.wait(min(left_s, LOOK_AGAIN_S))
            self._refuse_when_closed()

    def _grant(self, scope: str, state: _Scope, owner: str, started_s: float, seen: Seen) -> Grant:
        now_s = self._clock.monotonic_s()
        state.end_expired(self._clock.time_s())
        state.token += 1
        state.holder, state.deadline_s = owner, now_s + self._hold_timeout_s
        return Grant(
            scope=scope,
            owner=owner,
            token=FencingToken(state.token, self._epoch),
            waited_s=now_s - started_s,
            ends_at_s=state.deadline_s,
            changes=self._changes(state, seen),
        )

    def _changes(self, state: _Scope, seen: Seen) -> Changes:
        reset = seen.epoch != self._epoch or not state.remembers(seen.version)
        return Changes(
            epoch=self._epoch,
            version=state.version,
            now_s=self._clock.time_s(),
            entries=state.everything() if reset else state.after(seen.version),
            reset=reset,
        )


class _Scope:
    """The records, the lock and the promises of one scope; its caller holds the condition."""

    def __init__(self, max_tombstones: int) -> None:
        self.version = 0
        self.memos = _Memos()
        self.token = 0
        self.holder: str | None = None
        self.deadline_s = 0.0
        self.queue: dict[str, tuple[float, int]] = {}
        """The waiters: when they count as having come, and how many had come before them."""
        self._arrivals = 0
        self.watchers = 0
        """How many wait for a change."""
        self._records: dict[str, Change] = {}
        """By the order of their last change; deleted ones stay as tombstones, value None."""
        self._tombstones: dict[str, None] = {}
        self._max_tombstones = max_tombstones
        self._floor = 0
        """The version of the last tombstone that was forgotten."""
        self._expiry: dict[str, float] = {}
        self._expiry_heap: list[tuple[float, str]] = []

    def is_held_by(self, owner: str, now_s: float) -> bool:
        return self.holder == owner and now_s < self.deadline_s

    def is_turn_of(self, owner: str, now_s: float) -> bool:
        free = self.holder is None or now_s >= self.deadline_s
        return free and min(self.queue, key=self.queue.__getitem__) == owner

    def line_up(self, owner: str, since_s: float) -> None:
        """A waiter came, and counts as having come at ``since_s``."""
        self._arrivals += 1
        self.queue[owner] = since_s, self._arrivals

    def remembers(self, version: int) -> bool:
        return self._floor <= version <= self.version

    def everything(self) -> list[Change]:
        return [each for each in self._records.values() if each.value is not None]

    def after(self, version: int) -> list[Change]:
        """What changed after ``version``, oldest first."""
        found = []
        for change in reversed(self._records.values()):
            if change.version <= version:
                break
            found.append(change)
        return found[::-1]

    def apply(self, transactions: Sequence[Transaction]) -> Written:
        """Write under one new version, if anything is written at all."""
        before = self.version
        applied = tuple(self._apply(each, before + 1) for each in transactions)
        self._forget_old_tombstones()
        return Written(self.version, applied, before)

    def next_expiry_s(self) -> float:
        """When the next record may expire, by the store's clock; infinite if none will."""
        return self._expiry_heap[0][0] if self._expiry_heap else float("inf")

    def end_expired(self, now_s: float) -> None:
        """Delete the records whose promise has run out."""
        version = self.version + 1
        while self._expiry_heap and self._expiry_heap[0][0] <= now_s:
            expires_at_s, key = heapq.heappop(self._expiry_heap)
            if self._expiry.get(key) == expires_at_s:  # else it was renewed or deleted since
                self._put(Put(key, None), version)

    def _apply(self, transaction: Transaction, version: int) -> bool:
        if not all(self._holds(guard) for guard in transaction.guards):
            return False
        for put in transaction.puts:
            self._put(put, version)
        return True

    def _holds(self, guard: Guard) -> bool:
        record = self._records.get(guard.key)
        current = ABSENT if record is None or record.value is None else record.version
        return current == guard.version

    def _put(self, put: Put, version: int) -> None:
        before = self._records.get(put.key)
        if put.value is None and (before is None or before.value is None):
            return
        self.version = version
        self._records.pop(put.key, None)
        self._tombstones.pop(put.key, None)
        self._expiry.pop(put.key, None)
        self._records[put.key] = Change(put.key, version, put.value)
        if put.value is None:
            self._tombstones[put.key] = None
        elif put.expires_at_s is not None:
            self._expiry[put.key] = put.expires_at_s
            heapq.heappush(self._expiry_heap, (put.expires_at_s, put.key))

    def _forget_old_tombstones(self) -> None:
        while len(self._tombstones) > self._max_tombstones:
            key = next(iter(self._tombstones))
            del self._tombstones[key]
            self._floor = self._records.pop(key).version


class _Memos:
    """Answers already given, by the name of their question."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[float, Written]] = {}

    def keep(self, name: str, answer: Written, now_s: float) -> None:
        self._answers.pop(name, None)
        self._answers[name] = (now_s + MEMO_S, answer)

    def find(self, name: str, now_s: float) -> Written | None:
        self._forget(now_s)
        _, answer = self._answers.get(name, (0.0, None))
        return answer

    def _forget(self, now_s: float) -> None:
        # They lie in the order in which they end.
        while self._answers:
            oldest = next(iter(self._answers))
            if self._answers[oldest][0] > now_s:
                break
            del self._answers[oldest]
