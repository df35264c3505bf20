"""Requests that wait without their slots: for a value, or until the shared state says so.

A :class:`ScopeWatch` ends waits by a condition, a deadline or the end of the worker. A
:class:`DeadlineWatch` ends waits in a queue on time, whatever the threads of the queue do.
"""

import logging
import math
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

from scheduler_worker.errors import SchedulerWorkerError, StateUnavailable, WorkerStops
from scheduler_worker.ports import Clock, Seen, Store
from scheduler_worker.service.state.replica import Replica
from scheduler_worker.waiters import Deferred, YieldSlot

LOG = logging.getLogger(__name__)

T = TypeVar("T")


class SlotYielding:
    """Waits of requests without their slots; safe for threads.

    Each lets the worker take one more request, so they are at most ``most``; further requests keep
    their slots while they wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._yielding = 0

    async def wait(self, deferred: Deferred[T], yield_slot: YieldSlot) -> T:
        """The value that is waited for; raises the error in its place."""
        with self._guard:
            yields = self._yielding < self._most
            self._yielding += yields
        try:
            # Every yielded slot admits another request; without a bound they would pile up here.
            with yield_slot() if yields else nullcontext():
                return await deferred
        finally:
            with self._guard:
                self._yielding -= yields


class DeadlineWatch:
    """A thread that looks at a queue when a deadline in it may have passed; safe for threads.

    It runs only while a time is set. ``ring`` gets the time of the monotonic clock. It ends what is
    overdue, and returns when to ring next; infinity: when a time is set again.
    """

    def __init__(self, clock: Clock, ring: Callable[[float], float], name: str) -> None:
        """``name`` is that of the thread."""
        self._clock = clock
        self._ring = ring
        self._name = name
        # Held for the time alone: `ring`, which takes the lock of its queue, is called without it.
        self._changed = threading.Condition()
        self._at_s = math.inf
        self._is_running = False

    def set(self, at_s: float) -> None:
        """Ring at that time at the latest. What is due then must be in the queue already."""
        # Without the lock. If the thread has rung meanwhile, it found this deadline in the queue.
        if at_s >= self._at_s:  # mostly so: later requests have later deadlines
            return
        with self._changed:
            self._at_s = min(self._at_s, at_s)
            if self._is_running:
                self._changed.notify()
            else:
                try:
                    threading.Thread(target=self._run, name=self._name, daemon=True).start()
                except RuntimeError:  # no thread can be started now: the next call tries again
                    self._at_s = math.inf
                    raise
                self._is_running = True

    def _run(self) -> None:
        while True:
            with self._changed:
                left_s = self._at_s - self._clock.monotonic_s()
                if left_s == math.inf:
                    self._is_running = False
                    return
                if left_s > 0 and self._changed.wait(left_s):
                    continue  # an earlier time was set
                self._at_s = math.inf
            self.set(self._ring(self._clock.monotonic_s()))


class _Wait(Deferred[T | None]):
    def __init__(self, check: Callable[[], T | None], until_s: float) -> None:
        super().__init__()
        self.check = check
        self.until_s = until_s

    def is_over(self, now_s: float) -> bool:
        """Whether it has ended: by an answer, by its deadline, or by an error of the check."""
        try:
            answer = self.check()
        except Exception as error:
            self.fail(error)
            return True
        if answer is None and now_s < self.until_s:
            return False
        self.succeed(answer)
        return True


class ScopeWatch:
    """The requests of this process that wait for records of one scope; safe for threads.

    However many wait, one thread watches the scope, and only while there are any.
    """

    def __init__(self, replica: Replica, store: Store, clock: Clock) -> None:
        self._replica = replica
        self._store = store
        self._clock = clock
        self._slots = SlotYielding(256)
        # Checks take locks of replicas, and may wait for a commit. So nobody who holds one of these
        # locks calls `until`.
        self._guard = threading.Lock()
        """Held during checks too: no change is lost between a check and the wait for the next."""
        self._waits: list[_Wait[Any]] = []
        self._watcher = 0
        """The number of the thread that watches. One that has to wake earlier takes over."""
        self._wakes_s = math.inf
        """When that thread wakes at the latest."""
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waits)

    async def until(
        self, check: Callable[[], T | None], until_s: float, yield_slot: YieldSlot
    ) -> T | None:
        """Wait until ``check``, which looks at the replica, has an answer.

        None after ``until_s`` of the monotonic clock. Raises WorkerStops, StateUnavailable, and
        what the check raises.
        """
        wait = _Wait(check, until_s)
        with self._guard:
            # Under the guard: what changes after this check wakes the wait that is added below.
            if (answer := check()) is not None:
                return answer
            if self._closed:
                raise WorkerStops("The worker stops; try again.")
            self._waits.append(wait)
            # The watching thread sleeps longer than this wait lasts: a new one takes its place.
            if until_s < self._wakes_s:
                self._wakes_s = until_s
                self._watcher += 1
                name = f"watch-{self._replica.scope}"
                run = partial(self._run, self._watcher)
                threading.Thread(target=run, name=name, daemon=True).start()
        return await self._slots.wait(wait, yield_slot)

    def close(self) -> None:
        """End all waits, present and future: they fail with WorkerStops."""
        self._closed = True
        self._fail(WorkerStops("The worker stops; try again."))

    def _run(self, number: int) -> None:
        try:
            while (awaited := self._settle(number)) is not None:
                seen, until_s = awaited
                left_s = max(0.0, until_s - self._clock.monotonic_s())
                # Blocks on the store, under no lock.
                if self._store.await_change(self._replica.scope, seen, timeout_s=left_s):
                    self._replica.catch_up(self._store, self._clock, self._clock.monotonic_s())
        except SchedulerWorkerError as error:
            self._fail(error)
        except Exception:
            LOG.exception("The watch of %s failed", self._replica.scope)
            self._fail(StateUnavailable("The shared state cannot be watched; try again."))

    def _settle(self, number: int) -> tuple[Seen, float] | None:
        """End the waits that are over.

        Returns what the replica had seen before, and until when to await more; None if nobody
        waits, or another thread watches by now.
        """
        # Read before the checks: a change that comes during them ends the next wait at once.
        seen, now_s = self._replica.seen, self._clock.monotonic_s()
        with self._guard:
            self._waits = [wait for wait in self._waits if not wait.is_over(now_s)]
            if number != self._watcher:
                return None
            self._wakes_s = min((wait.until_s for wait in self._waits), default=math.inf)
            return (seen, self._wakes_s) if self._waits else None

    def _fail(self, error: SchedulerWorkerError) -> None:
        with self._guard:
            waits, self._waits = self._waits, []
            # The thread that watches finds that it is not the last one, and ends.
            self._watcher += 1
            self._wakes_s = math.inf
        for wait in waits:
            wait.fail(error)
