"""A clock that stands still until a test moves it."""


class ManualClock:
    """Both of its times move together, by hand."""

    def __init__(self, time_s: float = 1_700_000_000.0) -> None:
        self._time_s = time_s
        self._monotonic_s = 1_000.0

    def time_s(self) -> float:
        return self._time_s

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        self._time_s += seconds
        self._monotonic_s += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock; the monotonic one does not change."""
        self._time_s += seconds
