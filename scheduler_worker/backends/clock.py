"""The system's clock behind the :class:`~scheduler_worker.ports.Clock` port."""

from __future__ import annotations

import time


class SystemClock:
    """The operating system's time."""

    def time_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()
