"""The threads that serve requests: as many at a time as there are slots."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Work(NamedTuple):
    function: Callable[[], Any]
    future: Future[Any]


class Slots(Executor):
    """Runs work in daemon threads, ``count`` at a time, in the order in which it comes.

    Work that only waits may :meth:`step_aside`: then other work is served in its place.
    """

    def __init__(self, count: int, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._line: deque[_Work] = deque()
        self._allowed = count
        """How many may run: the slots, and one for each that stepped aside."""
        self._threads = 0
        self._idle = 0
        self._started = 0
        self._closed = False

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run it as soon as a slot is free. Raises RuntimeError after :meth:`shutdown`."""
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the slots are closed")
            self._line.append(_Work(lambda: function(*args, **kwargs), future))
            self._wake_or_start()
        return future

    @contextlib.contextmanager
    def step_aside(self) -> Iterator[None]:
        """Inside, the caller's slot serves others.

        Afterwards the caller goes on at once; the surplus thread ends with the work it has.
        """
        with self._changed:
            self._allowed += 1
            self._wake_or_start()
        try:
            yield
        finally:
            with self._changed:
                self._allowed -= 1
                self._changed.notify()

    @property
    def waiting(self) -> int:
        """How much work has no slot yet."""
        return len(self._line)

    @property
    def running(self) -> int:
        """How much work is in hand, what stepped aside included."""
        return self._threads - self._idle

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; ``cancel_futures`` forgets what has not begun."""
        with self._changed:
            self._closed = True
            forgotten = list(self._line) if cancel_futures else []
            if cancel_futures:
                self._line.clear()
            self._changed.notify_all()
            if wait:
                self._changed.wait_for(lambda: not self._threads)
        for each in forgotten:
            each.future.cancel()

    def _wake_or_start(self) -> None:
        if not self._line:
            return
        if self._idle:
            self._changed.notify()
        elif self._threads < self._allowed:
            self._threads += 1
            self._started += 1
            name = f"{self._name}-{self._started}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            if work.future.set_running_or_notify_cancel():
                try:
                    work.future.set_result(work.function())
                except BaseException as error:
                    work.future.set_exception(error)
            del work

    def _next(self) -> _Work | None:
        """The next work, or None when this thread is one too many."""
        with self._changed:
            while self._threads <= self._allowed:
                if self._line:
                    return self._line.popleft()
                if self._closed:
                    break
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            self._threads -= 1
            self._changed.notify_all()
            return None
