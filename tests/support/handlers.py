"""Handlers and observers that signal a test what happens."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from scheduler_worker import events
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.events import Count
from scheduler_worker.observer import Observer
from scheduler_worker.rpc.dispatcher import Context
from tests.support.patience import SOON_S


class Gate:
    """A handler that blocks until the test opens it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, _context: Context | None = None) -> str:
        self.entered.release()
        self.opened.wait()  # by the fixture at the latest
        return "passed"

    def wait_for(self, number: int) -> None:
        """Wait until so many more calls have entered."""
        for _ in range(number):
            assert self.entered.acquire(timeout=SOON_S)

    @property
    def is_untouched(self) -> bool:
        """Whether no call has entered that was not waited for."""
        return not self.entered.acquire(blocking=False)


def echo(_context: Context, value: Any) -> Any:
    return value


def failing(times: int) -> Callable[[Context], None]:
    """A handler that fails so often for a passing reason."""
    left = ["away for now"] * times

    def handler(_context: Context) -> None:
        if left:
            raise StateUnavailable(left.pop())

    return handler


class Witness(Observer):
    """Counts a server's events, so that a test can wait for them."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._changed = threading.Condition()

    def wait_for(self, event: str, number: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._seen[event] >= number, SOON_S), self._seen

    def seen(self, event: str) -> int:
        return self._seen[event]

    def _see(self, event: str) -> None:
        with self._changed:
            self._seen[event] += 1
            self._changed.notify_all()

    def count(self, event: Count, *labels: str, by: float = 1) -> None:
        if event is events.REQUESTS:
            self._see(f"served {labels[0]}")
        elif event in {events.DUPLICATES, events.DROPPED}:
            self._see(labels[0] if labels else "repeated")

    def bus_connected(self, *, again: bool) -> None:
        self._see("connected again" if again else "connected")

    def bus_lost(self) -> None:
        self._see("lost")
