"""The shared state of a single process, in dictionaries under one condition variable.

It gives the guarantees of ``docs/state.md``. It stores bytes and never looks into them, so an
embedded worker uses the same records as workers that share a Redis.
"""

from __future__ import annotations

import heapq
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from scheduler_worker.errors import ClusterLockTimeout, StaleFencingToken, StateUnavailable
from scheduler_worker.model.claims import FencingToken
from scheduler_worker.ports import (
    ABSENT,
    Change,
    Changes,
    Clock,
    EngineGuarantees,
    Guard,
    LockGrant,
    Put,
    Seen,
    Transaction,
    Written,
)

MEMO_S = 600.0
"""How long a repeated commit or ``once`` is recognised."""

POLL_S = 0.05
"""The longest wait before a check: a test may move the clock without notifying waiters."""

JUMP_S = 5.0
"""If the clock jumps forward by more than this, records do not expire early by it."""


class _HeldBack(NamedTuple):
    """After a jump of the clock: by how much expiry is delayed, until when and for how long."""

    by_s: float = 0.0
    until_s: float = 0.0
    for_s: float = 0.0


class MemoryState:
    """The :class:`~scheduler_worker.ports.State` of one process; safe for its threads.

    The last ``max_changes`` tombstones of a scope are kept; a caller that has missed older ones
    gets everything. The lock needs no timeout for an offer, as in Redis: a waiter is a thread,
    which does not die in the queue.
    """

    characteristics = EngineGuarantees(spans_processes=False, survives_restart=False)

    def __init__(self, clock: Clock, *, hold_timeout_s: float, max_changes: int = 50_000) -> None:
        self._clock = clock
        self._hold_timeout_s = hold_timeout_s
        self._max_changes = max_changes
        self._epoch = uuid.uuid4().hex
        self._condition = threading.Condition()
        self._scopes: dict[str, _Scope] = {}
        self._closed = False
        self._offset_s = self._clock_offset_s()
        self._held_back = _HeldBack()

    def acquire(
        self, scope: str, *, timeout_s: float, seen: Seen, priority_boost_s: float = 0.0
    ) -> LockGrant:
        started_s = self._clock.monotonic_s()
        owner = uuid.uuid4().hex
        with self._opened(scope) as state:
            state.enqueue(owner, started_s - priority_boost_s)
            try:
                while not state.is_turn_of(owner, self._clock.monotonic_s()):
                    left_s = started_s + timeout_s - self._clock.monotonic_s()
                    if left_s <= 0:
                        raise ClusterLockTimeout(f"The lock of {scope!r} was not granted in time")
                    self._condition.wait(min(left_s, POLL_S))
                    self._check_open()
            finally:
                del state.queue[owner]
                self._condition.notify_all()
            return self._grant(scope, state, owner, started_s, seen)

    def commit(
        self,
        grant: LockGrant,
        transactions: Sequence[Transaction],
        *,
        at: int | None = None,
        keep: bool = False,
    ) -> Written:
        with self._opened(grant.scope) as state:
            now_s = self._clock.monotonic_s()
            memo = f"{grant.owner}:{grant.commits}"
            if (known := state.memos.find(memo, now_s)) is not None:
                return known
            may_commit = state.may_commit(grant.owner, now_s, at)
            if not may_commit or grant.token.epoch != self._epoch:
                raise StaleFencingToken(
                    f"The lease of {grant.scope!r} with token {grant.token.number} had ended "
                    "before its commit; nothing was written"
                )
            written = state.apply(transactions)
            kept = keep and written.before == at and not state.queue
            written = written._replace(kept=kept, is_free=not kept and not state.queue)
            state.memos.keep(memo, written, now_s)
            state.holder = grant.owner if kept else None
            state.last = grant.owner if written.is_free else None
            self._condition.notify_all()
            return written

    def release(self, grant: LockGrant) -> None:
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
            while seen == Seen(self._epoch, state.version):
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0:
                    return False
                expires_s = state.next_expiry_s() - self._expiry_time_s()
                self._condition.wait(max(0.0, min(left_s, expires_s, POLL_S)))
                self._check_open()
                state.delete_expired(self._expiry_time_s())
            return True

    def write(
        self, scope: str, transactions: Sequence[Transaction], *, once: str | None = None
    ) -> Written:
        with self._opened(scope) as state:
            now_s = self._clock.monotonic_s()
            if once is not None and (known := state.memos.find(once, now_s)) is not None:
                return known._replace(before=-1)
            written = state.apply(transactions)
            if once is not None and all(written.applied):
                state.memos.keep(once, written, now_s)
            self._condition.notify_all()
            return written

    def ping(self) -> None:
        self._check_open()

    reach = ping

    def check(self) -> list[str]:
        return []

    def loses(self) -> str | None:
        return "[state] url is memory://"

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    @contextmanager
    def _opened(self, scope: str) -> Iterator[_Scope]:
        """The scope, locked, after its expired records were deleted."""
        with self._condition:
            self._check_open()
            state = self._scopes.get(scope)
            if state is None:
                state = self._scopes[scope] = _Scope(self._max_changes)
            state.delete_expired(self._expiry_time_s())
            yield state

    def _clock_offset_s(self) -> float:
        return self._clock.time_s() - self._clock.monotonic_s()

    def _expiry_time_s(self) -> float:
        """The time up to which records expire now: the clock's, without its jumps."""
        now_s, offset_s = self._clock.time_s(), self._clock_offset_s()
        jump_s, self._offset_s = offset_s - self._offset_s, offset_s
        shown_s = now_s - jump_s if jump_s > JUMP_S else now_s
        if not 0.0 < self._held_back.until_s - shown_s <= self._held_back.for_s:
            self._held_back = _HeldBack()
        expired_s = shown_s - self._held_back.by_s
        if shown_s < now_s:
            last_s = max((scope.last_expiry_s() for scope in self._scopes.values()), default=0.0)
            for_s = max(0.0, last_s - expired_s)
            self._held_back = _HeldBack(now_s - expired_s, now_s + for_s, for_s)
        return expired_s

    def _check_open(self) -> None:
        if self._closed:
            raise StateUnavailable("The shared state of this process was closed")

    def _grant(
        self, scope: str, state: _Scope, owner: str, started_s: float, seen: Seen
    ) -> LockGrant:
        now_s = self._clock.monotonic_s()
        state.delete_expired(self._expiry_time_s())
        state.token += 1
        state.holder, state.last = owner, None
        state.deadline_s = now_s + self._hold_timeout_s
        return LockGrant(
            scope=scope,
            owner=owner,
            token=FencingToken(state.token, self._epoch),
            waited_s=now_s - started_s,
            granted_at_s=now_s,
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
            since=seen.version,
        )


class _Scope:
    """The records and the lock of one scope; its caller holds the condition."""

    def __init__(self, max_tombstones: int) -> None:
        self.version = 0
        self.memos = _Memos()
        self.token = 0
        self.holder: str | None = None
        self.last: str | None = None
        """The last holder, if the lock went to nobody."""
        self.deadline_s = 0.0
        self.queue: dict[str, tuple[float, int]] = {}
        """Waiter -> its rank: time of arrival less priority boost, and a sequence number."""
        self._arrivals = 0
        self._records: dict[str, Change] = {}
        """In the order of their last change; deleted ones stay as tombstones, with value None."""
        self._tombstones: dict[str, None] = {}
        self._max_tombstones = max_tombstones
        self._floor = 0
        """The version of the newest tombstone that was dropped."""
        self._expiry: dict[str, float] = {}
        self._expiry_heap: list[tuple[float, str]] = []

    def may_commit(self, owner: str, now_s: float, at: int | None) -> bool:
        """Whether it holds the lock, or held it last and knows all that has changed."""
        is_free = self.last == owner and at == self.version
        return now_s < self.deadline_s and (self.holder == owner or is_free)

    def is_turn_of(self, owner: str, now_s: float) -> bool:
        free = self.holder is None or now_s >= self.deadline_s
        return free and min(self.queue, key=self.queue.__getitem__) == owner

    def enqueue(self, owner: str, since_s: float) -> None:
        """Add a waiter, which counts as having arrived at ``since_s``."""
        self._arrivals += 1
        self.queue[owner] = since_s, self._arrivals

    def remembers(self, version: int) -> bool:
        return self._floor <= version <= self.version

    def everything(self) -> list[Change]:
        return [record for record in self._records.values() if record.value is not None]

    def after(self, version: int) -> list[Change]:
        """The changes after ``version``, the oldest first."""
        changes = []
        for change in reversed(self._records.values()):
            if change.version <= version:
                break
            changes.append(change)
        return changes[::-1]

    def apply(self, transactions: Sequence[Transaction]) -> Written:
        """Apply the transactions under one new version, if any of them writes anything."""
        before = self.version
        applied = []
        for transaction in transactions:
            is_applied = all(map(self._is_met, transaction.guards))
            for put in transaction.puts if is_applied else ():
                self._put(put, before + 1)
            applied.append(is_applied)
        while len(self._tombstones) > self._max_tombstones:
            key = next(iter(self._tombstones))
            del self._tombstones[key]
            self._floor = self._records.pop(key).version
        return Written(self.version, tuple(applied), before)

    def next_expiry_s(self) -> float:
        """When the next record may expire, by the store's clock; infinite if none does."""
        return self._expiry_heap[0][0] if self._expiry_heap else float("inf")

    def last_expiry_s(self) -> float:
        """When the last record expires, by the store's clock; 0 if none does."""
        return max(self._expiry.values(), default=0.0)

    def delete_expired(self, now_s: float) -> None:
        """Delete the records that have expired by ``now_s``."""
        version = self.version + 1
        while self._expiry_heap and self._expiry_heap[0][0] <= now_s:
            expires_at_s, key = heapq.heappop(self._expiry_heap)
            if self._expiry.get(key) == expires_at_s:  # else it was renewed or deleted since then
                self._put(Put(key, None), version)

    def _is_met(self, guard: Guard) -> bool:
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


class _Memos:
    """The results of earlier calls, by their ids, to answer repeated calls."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[float, Written]] = {}

    def keep(self, name: str, answer: Written, now_s: float) -> None:
        self._answers.pop(name, None)
        self._answers[name] = (now_s + MEMO_S, answer)

    def find(self, name: str, now_s: float) -> Written | None:
        # They are in the order of their expiry.
        while self._answers and next(iter(self._answers.values()))[0] <= now_s:
            del self._answers[next(iter(self._answers))]
        _, answer = self._answers.get(name, (0.0, None))
        return answer
