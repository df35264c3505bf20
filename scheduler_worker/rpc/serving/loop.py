"""The event loop of one thread: callbacks from other threads, timers, and one readable source."""

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

Callback = Callable[[], None]


class Input(Protocol):
    """Something that may become readable."""

    def fileno(self) -> int: ...


class Loop:
    """Callbacks for one thread, which calls :meth:`wait` and :meth:`run_due` in turn."""

    def __init__(self) -> None:
        self._ready: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Callback]] = []
        self._numbers = itertools.count()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._sleeps = False
        self._poll = select.poll()  # select() refuses descriptors above 1023
        self._poll.register(self._wake_read, select.POLLIN)
        self._polled: int | None = None
        """The descriptor of the source that is polled, too."""

    def __del__(self) -> None:
        # Not at the end of its server: other threads may still wake it, and the number be reused.
        os.close(self._wake_read)
        os.close(self._wake_write)

    def call_soon(self, callback: Callback) -> None:
        """Run it in the loop's thread; safe from any thread."""
        self._ready.append(callback)
        if self._sleeps:
            self._sleeps = False
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake_write, b"!")

    def call_later(self, delay_s: float, callback: Callback) -> None:
        """Run it after so many seconds; for the loop's thread alone."""
        due_s = time.monotonic() + delay_s
        heapq.heappush(self._timers, (due_s, next(self._numbers), callback))

    def run_due(self) -> None:
        """Run the callbacks that came from other threads, and the timers that are due."""
        while self._ready:
            self._ready.popleft()()
        now_s = time.monotonic()
        while self._timers and self._timers[0][0] <= now_s:
            heapq.heappop(self._timers)[2]()

    def wait(self, source: Input | None = None, *, timeout_s: float = 60.0) -> bool:
        """Sleep until a callback is due or ``source`` is readable; whether it is."""
        if self._timers:
            timeout_s = min(timeout_s, self._timers[0][0] - time.monotonic())
        self._sleeps = True
        if self._ready:  # checked after _sleeps is set: callers that append later write to the pipe
            timeout_s = 0.0
        self._poll_also(None if source is None else source.fileno())
        readable = [descriptor for descriptor, _ in self._poll.poll(1000 * max(0.0, timeout_s))]
        self._sleeps = False
        if self._wake_read in readable:
            os.read(self._wake_read, 4096)
        return self._polled in readable

    def _poll_also(self, descriptor: int | None) -> None:
        if descriptor != self._polled:
            if self._polled is not None:
                self._poll.unregister(self._polled)
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)
            self._polled = descriptor
