"""Handlers and observers that tell a test what happens, and wait for it."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from scheduler_worker.ports import Observer
from scheduler_worker.rpc.contract import Context

SOON_S = 60.0
"""A bound on what happens at once; reached only by a test that fails."""


class Gate:
    """A handler that waits until the test lets it pass."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, _context: Context) -> str:
        self.entered.release()
        self.opened.wait()  # at the latest the fixture opens it
        return "passed"

    def wait_for(self, number: int) -> None:
        """Until so many more have come."""
        for _ in range(number):
            assert self.entered.acquire(timeout=SOON_S)

    @property
    def is_untouched(self) -> bool:
        """Whether nobody came that was not waited for."""
        return not self.entered.acquire(blocking=False)


def echo(_context: Context, value: Any) -> Any:
    return value


class Witness(Observer):
    """Counts what a server says of itself, so that a test can wait for it."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._changed = threading.Condition()

    def wait_for(self, what: str, number: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._seen[what] >= number, SOON_S), self._seen

    def count(self, what: str) -> int:
        return self._seen[what]

    def _see(self, what: str) -> None:
        with self._changed:
            self._seen[what] += 1
            self._changed.notify_all()

    def request_served(self, method: str, result: str, duration_s: float) -> None:
        self._see(f"served {method}")

    def message_repeated(self) -> None:
        self._see("repeated")

    def message_dropped(self, why: str) -> None:
        self._see(why)

    def bus_connected(self, *, again: bool) -> None:
        self._see("connected again" if again else "connected")

    def bus_lost(self) -> None:
        self._see("lost")


def in_thread(work: Callable[[], Any]) -> queue.SimpleQueue[Any]:
    """Start the work; its result or its error comes out of the queue."""
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put(work())
        except Exception as error:
            results.put(error)

    threading.Thread(target=run, daemon=True).start()
    return results


def eventually(is_so: Callable[[], bool], timeout_s: float = SOON_S) -> None:
    """Look until it is so, where nothing else tells."""
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline_s, "it never came to be so"
        threading.Event().wait(0.01)
