"""The thread pool that serves requests: as many at a time as there are slots."""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from scheduler_worker.waiters import Waiter

LOG = logging.getLogger(__name__)

STUCK_S = 300.0
"""Work that takes longer counts as stuck, unless its owner configures longer waits."""


TaskCoroutine = Coroutine[Waiter, None, None]


class Task:
    """A coroutine function that slots call, and then its coroutine."""

    __slots__ = ("_guard", "begin", "begun_s", "coroutine", "is_cancelled")

    def __init__(self, begin: Callable[[], TaskCoroutine], guard: threading.Condition) -> None:
        self.begin = begin
        self.coroutine: TaskCoroutine | None = None
        """Made when it begins: one that never begins would complain when it is dropped."""
        self.begun_s = 0.0
        """Of the monotonic clock."""
        self.is_cancelled = False
        self._guard = guard

    def cancel(self) -> bool:
        """Whether it has not begun, and never will."""
        with self._guard:
            self.is_cancelled |= self.coroutine is None
            return self.is_cancelled


class Slots:
    """Runs coroutines in daemon threads, at most ``count`` at a time, in FIFO order.

    While one is suspended, its thread runs others.

    No thread is woken while another runs, which will take the next work when
    it is done: threads that compete for one interpreter cost more than they achieve. Whoever
    submits work calls :meth:`ensure_progress` now and then, which wakes another thread if the
    running ones took nothing.
    """

    def __init__(
        self,
        count: int,
        name: str,
        *,
        stuck_after_s: float = STUCK_S,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_idle`` is called in a thread that has nothing more to do; it must not block."""
        self._name = name
        self._on_idle = on_idle
        self._stuck_after_s = stuck_after_s
        # Guards all below. Nothing blocks under it, and no coroutine runs. It is taken last: who
        # calls `_resume` may hold the lock of a queue. Re-entrant, as a shutdown cancels tasks.
        self._changed = threading.Condition()
        self._queue: deque[Task] = deque()
        """Tasks to begin, and to go on with."""
        self.count = count
        self._threads = 0
        self._idle = 0
        self._woken = 0
        """How many of the idle threads were woken and have not run yet."""
        self._suspended = 0
        self._started = 0
        self._taken = self._taken_before = 0
        self._closed = False
        self._unfinished: dict[Task, None] = {}
        """Tasks that have begun, the oldest first. A thread removes its own without the lock."""

    def submit(self, function: Callable[..., TaskCoroutine], /, *args: Any) -> Task:
        """Run it as soon as a slot is free. Raises RuntimeError after :meth:`shutdown`."""
        task = Task(partial(function, *args), self._changed)
        with self._changed:
            if self._closed:
                raise RuntimeError("the slots are closed")
            self._put(task)
        return task

    def ensure_progress(self) -> bool:
        """Wake another thread if none has taken work since the last call.

        Returns whether to call again: work waits, or a thread runs that may block before it takes
        the next work.
        """
        with self._changed:
            if self._taken == self._taken_before:
                self._wake_or_start()
            self._taken_before = self._taken
            return bool(self._queue) or self.is_working

    # The loop's thread asks at each turn, and the reports' now and then: none takes the lock.

    @property
    def waiting(self) -> int:
        """How many pieces of work wait for a slot."""
        return len(self._queue)

    @property
    def is_working(self) -> bool:
        """Whether a thread works, or was woken for that."""
        return self._threads - self._idle + self._woken > 0

    @property
    def running(self) -> int:
        """How many pieces of work have begun, including suspended ones."""
        return self._threads - self._idle + self._suspended

    def stuck(self) -> str | None:
        """Says that work does not end, if so; takes no lock."""
        # Another thread may change it meanwhile.
        with contextlib.suppress(StopIteration, RuntimeError):
            age_s = time.monotonic() - next(iter(self._unfinished)).begun_s
            if age_s > self._stuck_after_s:
                return f"has worked on a request for {age_s:.0f} s"
        return None

    def shutdown(self, *, wait: bool) -> None:
        """Accept no more work, and cancel what has not begun."""
        with self._changed:
            self._closed = True
            for task in list(self._queue):
                if task.cancel():
                    self._queue.remove(task)
            self._changed.notify_all()
            if wait:
                self._changed.wait_for(lambda: not self._threads)

    def _put(self, task: Task) -> None:
        self._queue.append(task)
        if not self.is_working:
            self._wake_or_start()

    def _wake_or_start(self) -> None:
        if not self._queue:
            return
        if self._idle > self._woken:
            self._woken += 1
            self._changed.notify()
        elif self._threads < self.count:
            self._threads += 1
            self._started += 1
            name = f"{self._name}-{self._started}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def _resume(self, task: Task) -> None:
        """Also after a shutdown: work that has begun is finished."""
        # In the thread that ends the waiter: a slot, or a thread of deadlines, claims or watches,
        # often under the lock of its queue. So the task is only queued.
        with self._changed:
            self._suspended -= 1
            self._put(task)

    # In a thread

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                assert task.coroutine is not None  # noqa: S101
                waiter = task.coroutine.send(None)
            except StopIteration:
                pass
            except BaseException:
                # Its submitter hears nothing: the handler of messages catches all before.
                LOG.exception("Work in a slot has failed")
            else:
                with self._changed:
                    self._suspended += 1
                # Last: the waiter may have ended, and another thread may go on with the task.
                waiter.then(partial(self._resume, task))
                continue
            del self._unfinished[task]

    def _next(self) -> Task | None:
        with self._changed:
            while True:
                if self._queue:
                    self._taken += 1
                    task = self._queue.popleft()
                    if task.is_cancelled:
                        continue
                    if task.coroutine is None:
                        task.coroutine, task.begun_s = task.begin(), time.monotonic()
                        self._unfinished[task] = None
                    return task
                if self._closed:
                    self._threads -= 1
                    self._changed.notify_all()
                    return None
                self._idle += 1
                # Under the lock. It ends the doze of the loop, where results wait.
                self._on_idle()
                self._changed.wait()
                self._idle -= 1
                self._woken = max(0, self._woken - 1)
