"""The threads that serve requests: as many at a time as there are slots."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, NamedTuple

from scheduler_worker.pauses import Pause


class _Step(NamedTuple):
    """What a thread does at a stretch."""

    do: Callable[[], None]
    begins: Future[Any] | None = None
    """Of work that has not begun: what is cancelled if it never will."""


class Slots(Executor):
    """Runs work in daemon threads, at most ``count`` at a time, in the order in which it comes.

    Work may be a coroutine: in its pauses its thread does other work. Work that only waits may
    :meth:`step_aside`: then other work is served in its place.

    With ``eager`` false a thread that runs is left to come for what waits, for threads that
    compete for one interpreter cost more than they do; whoever submits work calls
    :meth:`look_after` now and then, and another thread helps out where none came.
    """

    def __init__(self, count: int, name: str, *, eager: bool = True) -> None:
        self._name = name
        self._eager = eager
        self._changed = threading.Condition()
        self._line: deque[_Step] = deque()
        self._allowed = count
        """How many may run: the slots, and one for each that stepped aside."""
        self._threads = 0
        self._idle = 0
        self._woken = 0
        """How many of the idle were told to come, and have not come yet."""
        self._aside = 0
        self._paused = 0
        self._started = 0
        self._taken = self._taken_before = 0
        self._closed = False

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

    @contextlib.contextmanager
    def step_aside(self) -> Iterator[None]:
        """Inside, the caller's slot serves others.

        Afterwards the caller goes on at once; the surplus thread ends with the work it has.
        """
        with self._changed:
            self._allowed += 1
            self._aside += 1
            self._wake_or_start()
        try:
            yield
        finally:
            with self._changed:
                self._allowed -= 1
                self._aside -= 1
                self._changed.notify()

    def look_after(self) -> bool:
        """If no thread took anything since the last call, wake another.

        Whether to look again: work waits, or a thread runs that may leave work behind and block.
        """
        with self._changed:
            if self._taken == self._taken_before:
                self._wake_or_start()
            self._taken_before = self._taken
            return bool(self._line) or self._active > 0

    @property
    def waiting(self) -> int:
        """How much work has no slot yet."""
        return len(self._line)

    @property
    def running(self) -> int:
        """How much work is in hand, what pauses or stepped aside included."""
        return self._threads - self._idle + self._paused

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; ``cancel_futures`` forgets what has not begun."""
        forgotten: list[Future[Any]] = []
        with self._changed:
            self._closed = True
            if cancel_futures:
                forgotten = [step.begins for step in self._line if step.begins]
                self._line = deque(step for step in self._line if not step.begins)
            self._changed.notify_all()
            if wait:
                self._changed.wait_for(lambda: not self._threads)
        for each in forgotten:
            each.cancel()

    def _put(self, step: _Step) -> None:
        self._line.append(step)
        if self._eager or self._active <= 0:
            self._wake_or_start()

    def _wake_or_start(self) -> None:
        if not self._line:
            return
        if self._idle > self._woken:
            self._woken += 1
            self._changed.notify()
        elif self._threads < self._allowed:
            self._threads += 1
            self._started += 1
            name = f"{self._name}-{self._started}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def _active(self) -> int:
        """How many threads run, or were told to, and did not step aside."""
        return self._threads - self._idle + self._woken - self._aside

    # In a thread

    def _run(self) -> None:
        while (step := self._next()) is not None:
            step.do()
            del step

    def _begin(self, work: Callable[[], Any], future: Future[Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
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
            pause: Pause = coroutine.send(None)
        except StopIteration as end:
            future.set_result(end.value)
        except BaseException as error:
            future.set_exception(error)
        else:
            with self._changed:
                self._paused += 1
            pause.then(partial(self._resume, coroutine, future))

    def _resume(self, coroutine: Coroutine[Any, Any, Any], future: Future[Any]) -> None:
        """Even when closed: what has begun is finished."""
        with self._changed:
            self._paused -= 1
            self._put(_Step(partial(self._go_on, coroutine, future)))

    def _next(self) -> _Step | None:
        """The next thing to do, or None when this thread is one too many."""
        with self._changed:
            while self._threads <= self._allowed:
                if self._line:
                    self._taken += 1
                    return self._line.popleft()
                if self._closed:
                    break
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
                self._woken = max(0, self._woken - 1)
            self._threads -= 1
            self._changed.notify_all()
            return None
