"""How fast a worker finishes what it has in flight. Pure."""

from __future__ import annotations

from collections import deque

_MIN_SAMPLES, _MAX_SAMPLES = 4, 32


class Throughput:
    """Estimates how long a new message will take, from those that were finished lately.

    Times are of the monotonic clock.
    """

    def __init__(self) -> None:
        self._finished_s: deque[float] = deque(maxlen=_MAX_SAMPLES + 1)
        """When the last ones were finished; before them, when the first of them was begun."""

    def begun(self, now_s: float) -> None:
        """Work begins, and nothing else is in flight."""
        self._finished_s.clear()
        self._finished_s.append(now_s)

    def finished(self, now_s: float) -> None:
        """Work was done, and not dropped."""
        self._finished_s.append(now_s)

    def expected_s(self, ahead: int, now_s: float) -> float:
        """Seconds until a message is finished that has ``ahead`` before it; 0 where unknown.

        Work in flight divided by throughput (Little's law).
        """
        count = len(self._finished_s) - 1
        if count < _MIN_SAMPLES or not ahead:
            return 0.0
        return (ahead + 1) * (now_s - self._finished_s[0]) / count
