"""Typical durations of the recent past. Pure."""

from __future__ import annotations

from collections import deque
from statistics import median

_KEPT = 5
_MAX_AGE_S = 10.0


class RecentDurations:
    """The median of the last few durations, so that one outlier does not count.

    Old ones are dropped: a caller that skips an operation because it would take too long adds no
    new duration, and would otherwise skip it for ever. Times are of the monotonic clock.
    """

    def __init__(self) -> None:
        self._durations: deque[tuple[float, float]] = deque(maxlen=_KEPT)

    def add(self, duration_s: float, now_s: float) -> None:
        """Add the duration of an operation that ended now."""
        self._durations.append((now_s, duration_s))

    def typical_s(self, now_s: float) -> float:
        """The median of the recent durations; 0 if there is none."""
        recent = [
            duration_s for ended_s, duration_s in self._durations if ended_s > now_s - _MAX_AGE_S
        ]
        return median(recent) if recent else 0.0
