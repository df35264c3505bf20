"""What one thread does by turns: things it is told, things whose time has come, and input."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

Deed = Callable[[], None]


class Input(Protocol):
    """Something that may become readable."""

    def fileno(self) -> int: ...


class Loop:
    """Deeds for one thread, which calls :meth:`wait` and :meth:`run_due` in turn."""

    def __init__(self) -> None:
        self._told: deque[Deed] = deque()
        self._timers: list[tuple[float, int, Deed]] = []
        self._numbers = itertools.count()
        self._wakes, self._bell = os.pipe()
        os.set_blocking(self._wakes, False)
        os.set_blocking(self._bell, False)
        self._sleeps = False

    def tell(self, deed: Deed) -> None:
        """Have it done soon; from any thread."""
        self._told.append(deed)
        if self._sleeps:
            self._sleeps = False
            with contextlib.suppress(BlockingIOError):
                os.write(self._bell, b"!")

    def at(self, delay_s: float, deed: Deed) -> None:
        """Have it done after so long."""
        due_s = time.monotonic() + delay_s
        heapq.heappush(self._timers, (due_s, next(self._numbers), deed))

    def run_due(self) -> None:
        """Do what was told, and what has come to its time."""
        while self._told:
            self._told.popleft()()
        now_s = time.monotonic()
        while self._timers and self._timers[0][0] <= now_s:
            heapq.heappop(self._timers)[2]()

    def wait(self, source: Input | None = None, *, timeout_s: float = 60.0) -> bool:
        """Sleep until something is due or ``source`` can be read; whether it can."""
        if self._timers:
            timeout_s = min(timeout_s, self._timers[0][0] - time.monotonic())
        self._sleeps = True
        if self._told:  # after _sleeps: whoever tells later rings
            timeout_s = 0.0
        sources: list[int | Input] = [self._wakes] if source is None else [self._wakes, source]
        ready, _, _ = select.select(sources, [], [], max(0.0, timeout_s))
        self._sleeps = False
        if self._wakes in ready:
            os.read(self._wakes, 4096)
        return source in ready

    def close(self) -> None:
        """Give back the pipe; what is told from now on is never done."""
        self._sleeps = False
        os.close(self._bell)
        os.close(self._wakes)
