"""The thread pool that serves requests: as many at a time as there are slots."""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from scheduler_worker.waiters import Waiter

STUCK_S = 300.0
"""Work that takes longer counts as stuck, unless its owner configures longer waits."""


class _Step(NamedTuple):
    """What a thread runs without interruption."""

    do: Callable[[], None]
    begins: Future[Any] | None = None
    """The future of work that has not begun, which is cancelled if it never does."""


class Slots:
    """Runs work in daemon threads, at most ``count`` at a time, in FIFO order.

    Work may be a coroutine: while it is suspended, its thread does other work.

    No thread is woken while another runs, which will take the next work when
    it is done: threads that compete for one interpreter cost more than they achieve. Whoever
    submits work calls :meth:`ensure_progress` now and then, which wakes another thread if the
    running ones took nothing.
    """

    def __init__(self, count: int, name: str, *, stuck_after_s: float = STUCK_S) -> None:
        self._name = name
        self._stuck_after_s = stuck_after_s
        self._changed = threading.Condition()
        self._queue: deque[_Step] = deque()
        self._count = count
        self._threads = 0
        self._idle = 0
        self._woken = 0
        """How many of the idle threads were woken and have not run yet."""
        self._suspended = 0
        self._started = 0
        self._taken = self._taken_before = 0
        self._closed = False
        self._begun_s: dict[Future[Any], float] = {}
        """When unfinished work began, the oldest first."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it as soon as a slot is free; the result is what it, or its coroutine, returns.

        Raises RuntimeError after :meth:`shutdown`.
        """
        future: Future[Any] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the slots are closed")
            begin = partial(self._begin, partial(function, *args, **kwargs), future)
            self._put(_Step(begin, future))
        return future

    def ensure_progress(self) -> bool:
        """Wake another thread if none has taken work since the last call.

        Returns whether to call again: work waits, or a thread runs that may block before it takes
        the next work.
        """
        with self._changed:
            if self._taken == self._taken_before:
                self._wake_or_start()
            self._taken_before = self._taken
            return bool(self._queue) or self._active > 0

    @property
    def waiting(self) -> int:
        """How many pieces of work wait for a slot."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """How many pieces of work have begun, including suspended ones."""
        return self._threads - self._idle + self._suspended

    def stuck(self) -> str | None:
        """Says that work does not end, if so; takes no lock."""
        with contextlib.suppress(
            StopIteration, RuntimeError
        ):  # another thread may change it meanwhile
            age_s = time.monotonic() - next(iter(self._begun_s.values()))
            if age_s > self._stuck_after_s:
                return f"has worked on a request for {age_s:.0f} s"
        return None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more work; ``cancel_futures`` cancels what has not begun."""
        cancelled: list[Future[Any]] = []
        with self._changed:
            self._closed = True
            if cancel_futures:
                cancelled = [step.begins for step in self._queue if step.begins]
                self._queue = deque(step for step in self._queue if not step.begins)
            self._changed.notify_all()
            if wait:
                self._changed.wait_for(lambda: not self._threads)
        for each in cancelled:
            each.cancel()

    def _put(self, step: _Step) -> None:
        self._queue.append(step)
        if self._active <= 0:
            self._wake_or_start()

    def _wake_or_start(self) -> None:
        if not self._queue:
            return
        if self._idle > self._woken:
            self._woken += 1
            self._changed.notify()
        elif self._threads < self._count:
            self._threads += 1
            self._started += 1
            name = f"{self._name}-{self._started}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def _active(self) -> int:
        """How many threads run, or were woken."""
        return self._threads - self._idle + self._woken

    # In a thread

    def _run(self) -> None:
        while (step := self._next()) is not None:
            step.do()
            del step

    def _begin(self, work: Callable[[], Any], future: Future[Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        self._begun_s[future] = time.monotonic()
        future.add_done_callback(lambda done: self._begun_s.pop(done, None))
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            if inspect.iscoroutine(result):
                self._go_on(result, future)
            else:
                future.set_result(result)

    def _go_on(self, coroutine: Coroutine[Any, Any, Any], future: Future[Any]) -> None:
        try:
            waiter: Waiter = coroutine.send(None)
        except StopIteration as end:
            future.set_result(end.value)
        except BaseException as error:
            future.set_exception(error)
        else:
            with self._changed:
                self._suspended += 1
            waiter.then(partial(self._resume, coroutine, future))

    def _resume(self, coroutine: Coroutine[Any, Any, Any], future: Future[Any]) -> None:
        """Also after a shutdown: work that has begun is finished."""
        with self._changed:
            self._suspended -= 1
            self._put(_Step(partial(self._go_on, coroutine, future)))

    def _next(self) -> _Step | None:
        """The next step, or None after a shutdown."""
        with self._changed:
            while not self._queue and not self._closed:
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
                self._woken = max(0, self._woken - 1)
            if self._queue:
                self._taken += 1
                return self._queue.popleft()
            self._threads -= 1
            self._changed.notify_all()
            return None
