"""Detects jumps of the servers' clocks, by comparison with this process's monotonic clock.

Operators and time services set a server's clock. If it jumps forward, every reservation would
expire at once; the scripts delay expiry when a caller proves the jump by passing an upper bound of
the time (``check_clock`` in common.lua).
"""

import logging
from typing import NamedTuple

from scheduler_worker.ports import Clock

LOG = logging.getLogger(__name__)

MICRO = 1_000_000
JUMP_S = 5.0
"""The smallest difference between the clocks' progress that counts as a jump."""
LOG_EVERY_S = 60.0
"""All scopes of a server see the same jump, which is logged once."""


class _Reading(NamedTuple):
    """What a server's clock showed at some time between a call and its reply."""

    now_s: float
    jumped_s: float
    """The sum of its forward jumps that the scripts know of."""
    asked_s: float
    answered_s: float


class Pace:
    """The last reading of the clock of each scope's server; thread-safe."""

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
