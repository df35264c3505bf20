"""Wakes another slot when those that run do not come for waiting work."""

from __future__ import annotations

import math

from scheduler_worker.rpc.serving.loop import Loop
from scheduler_worker.rpc.slots import Slots

_FIRST_CHECK_S, _LONGEST_CHECK_S = 0.002, 0.05
"""How soon it is checked after work came; then ever less often, while nothing waits."""


class SlotWatch:
    """Calls :meth:`Slots.ensure_progress` while there is work; used by the loop's thread alone."""

    def __init__(self, loop: Loop, slots: Slots) -> None:
        self._loop = loop
        self._slots = slots
        self._interval_s = math.inf
        """Until the next check; infinite: none is due."""

    def submitted(self) -> None:
        """Work was given to the slots."""
        if self._interval_s > _FIRST_CHECK_S:
            self._check_after(_FIRST_CHECK_S)

    def _check_after(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._loop.call_later(interval_s, lambda: self._check(interval_s))

    def _check(self, interval_s: float) -> None:
        if interval_s != self._interval_s:
            return  # work came meanwhile, and an earlier check was scheduled
        is_busy = self._slots.ensure_progress()
        self._interval_s = math.inf
        if self._slots.waiting:
            self._check_after(_FIRST_CHECK_S)
        elif is_busy:
            self._check_after(min(2 * interval_s, _LONGEST_CHECK_S))
