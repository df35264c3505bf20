"""Requests that wait until the shared state says something, without lock and without slot.

However many wait, one thread watches the scope, and only while there are any.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext

from scheduler_worker.errors import SchedulerWorkerError, StateUnavailable, WorkerStops
from scheduler_worker.ports import Clock, Store
from scheduler_worker.service.state.replica import Replica
from scheduler_worker.waiters import Waiter, YieldSlot

LOG = logging.getLogger(__name__)

_MOST_YIELDING = 256
"""Requests that wait without their slots; each lets the worker take one more."""
_STEP_S = 0.5
"""After which a request that has joined with an earlier deadline is noticed."""


class _Waiting:
    def __init__(self, is_met: Callable[[], bool], until_s: float) -> None:
        self.is_met = is_met
        self.until_s = until_s
        self.ended = Waiter()
        self.met = False
        self.error: SchedulerWorkerError | None = None


class StateWaiters:
    """The requests of this process that wait for records of one scope; safe for threads."""

    def __init__(self, replica: Replica, store: Store, clock: Clock) -> None:
        self._replica = replica
        self._store = store
        self._clock = clock
        self._guard = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._yielding = 0
        self._is_watching = False
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    async def wait(
        self, is_met: Callable[[], bool], *, until_s: float, yield_slot: YieldSlot
    ) -> bool:
        """Wait until ``is_met``, which looks at the replica; False after ``until_s`` (monotonic).

        Raises WorkerStops, StateUnavailable.
        """
        if is_met():
            return True
        each = _Waiting(is_met, until_s)
        with self._guard:
            if self._closed:
                raise WorkerStops("The worker stops; try again.")
            self._waiting.append(each)
            if not self._is_watching:
                self._is_watching = True
                name = f"watch-{self._replica.scope}"
                threading.Thread(target=self._run, name=name, daemon=True).start()
            yields = self._yielding < _MOST_YIELDING
            self._yielding += yields
        try:
            with yield_slot(blocks=False) if yields else nullcontext():
                await each.ended
        finally:
            with self._guard:
                self._yielding -= yields
        if each.error is not None:
            raise each.error
        return each.met

    def close(self) -> None:
        """End all waits, present and future: they fail with WorkerStops."""
        with self._guard:
            self._closed = True
            waiting, self._waiting = self._waiting, []
        _fail(waiting, WorkerStops("The worker stops; try again."))

    def _run(self) -> None:
        try:
            while (left_s := self._settle()) is not None:
                self._store.await_change(
                    self._replica.scope, self._replica.seen, timeout_s=min(left_s, _STEP_S)
                )
        except SchedulerWorkerError as error:
            self._give_up(error)
        except Exception:
            LOG.exception("The watch of %s failed", self._replica.scope)
            self._give_up(StateUnavailable("The shared state cannot be watched; try again."))

    def _settle(self) -> float | None:
        """End the waits that are over; returns how long the others last, None if there are none."""
        with self._replica.lock:
            self._replica.refresh(self._store)
        now_s = self._clock.monotonic_s()
        with self._guard:
            waiting = list(self._waiting)
        for each in waiting:
            each.met = each.is_met()
        over = [each for each in waiting if each.met or each.until_s <= now_s]
        with self._guard:
            self._waiting = [each for each in self._waiting if each not in over]
            left_s = [each.until_s - now_s for each in self._waiting]
            self._is_watching = bool(left_s)
        for each in over:
            each.ended.end()
        return max(0.0, min(left_s)) if left_s else None

    def _give_up(self, error: SchedulerWorkerError) -> None:
        with self._guard:
            waiting, self._waiting = self._waiting, []
            self._is_watching = False
        _fail(waiting, error)


def _fail(waiting: list[_Waiting], error: SchedulerWorkerError) -> None:
    for each in waiting:
        each.error = error
        each.ended.end()
