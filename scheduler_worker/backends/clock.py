"""The system's clock behind the :class:`~scheduler_worker.ports.Clock` port."""

import time


class SystemClock:
    """The operating system's time."""

    time_s = staticmethod(time.time)
    monotonic_s = staticmethod(time.monotonic)


class StandingClock:
    """A moment that lasts."""

    def __init__(self, time_s: float) -> None:
        self._time_s = time_s

    def time_s(self) -> float:
        return self._time_s

    def monotonic_s(self) -> float:
        return self._time_s
