"""Handlers and observers that signal a test what happens."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from scheduler_worker.errors import StateUnavailable
from scheduler_worker.observer import Observer
from scheduler_worker.rpc.contract import Context
from tests.support.patience import SOON_S as SOON_S
from tests.support.patience import eventually as eventually


class Gate:
    """A handler that blocks until the test opens it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, _context: Context) -> str:
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

    def count(self, event: str) -> int:
        return self._seen[event]

    def _count(self, event: str) -> None:
        with self._changed:
            self._seen[event] += 1
            self._changed.notify_all()

    def request_served(self, method: str, result: str, duration_s: float) -> None:
        self._count(f"served {method}")

    def message_repeated(self) -> None:
        self._count("repeated")

    def message_dropped(self, why: str) -> None:
        self._count(why)

    def bus_connected(self, *, again: bool) -> None:
        self._count("connected again" if again else "connected")

    def bus_lost(self) -> None:
        self._count("lost")


def in_thread(work: Callable[[], Any]) -> queue.SimpleQueue[Any]:
    """Run the work in a thread; its result or its error comes out of the queue."""
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put(work())
        except Exception as error:
            results.put(error)

    threading.Thread(target=run, daemon=True).start()
    return results
