"""Threads that a failed test does not wait for, and that pytest does not wait for in the end."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from types import TracebackType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads(Executor):
    """So many threads; a block that ends without an exception waits for them."""

    def __init__(self, number: int) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(number)]
        for each in self._threads:
            each.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._work.put(partial(_call, future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for _ in self._threads:
            self._work.put(None)
        for each in self._threads if wait else ():
            each.join()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown(wait=kind is None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Run the work in a thread of its own."""
    threads = Threads(1)
    future = threads.submit(work, *args, **kwargs)
    threads.shutdown(wait=False)
    return future


def _call(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
