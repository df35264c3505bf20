"""Coroutines that wait for one another without each occupying a thread.

A use case that may have to wait for another request is a coroutine that awaits a :class:`Waiter`.
A server's slots do other work until the waiter is ended; a caller with a thread to spare runs the
coroutine with :func:`complete`. There is no event loop: waiters are all that can be awaited.
"""

import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


YieldSlot = Callable[[], AbstractContextManager[None]]
"""Lets a request that only waits do so without its slot: inside, another one is taken."""
keep_slot: YieldSlot = nullcontext
"""For callers without slots."""


class Waiter:
    """What a coroutine awaits; may be ended from any thread, and more than once."""

    __slots__ = ("_guard", "_has_ended", "_resume")

    def __init__(self) -> None:
        # Held for the flag alone, never while `resume` runs, which takes the lock of the slots.
        self._guard = threading.Lock()
        self._has_ended = False
        self._resume: Callable[[], None] | None = None

    def __await__(self) -> "Generator[Waiter, None, Any]":
        """Suspend even if it has ended: others that are ready run first."""
        yield self

    def end(self) -> None:
        """Resume the coroutine."""
        with self._guard:
            self._has_ended = True
            resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    def then(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` when the waiter is ended, or now if it has been."""
        with self._guard:
            if not self._has_ended:
                self._resume = resume
                return
        resume()


class Deferred(Waiter, Generic[T]):
    """A waiter for a value, or for an error that whoever awaits it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None

    def __await__(self) -> Generator[Waiter, None, T]:
        yield self
        return self.result()

    def result(self) -> T:
        """The value, once it is there; raises the error."""
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def succeed(self, value: T) -> None:
        """Resume the coroutine with a value."""
        # Before the end: whoever is resumed reads them in another thread.
        self._value, self.done = value, True
        self.end()

    def fail(self, error: BaseException) -> None:
        """Resume the coroutine with an error."""
        self._error, self.done = error, True
        self.end()


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in this thread, which blocks while it is suspended."""
    try:
        while True:
            waiter: Waiter = coroutine.send(None)
            ended = threading.Lock()  # a quarter of the cost of an Event
            ended.acquire()
            waiter.then(ended.release)
            ended.acquire()
    except StopIteration as end:
        result: T = end.value
        return result
