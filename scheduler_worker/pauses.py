"""Requests that wait for one another without each holding a thread.

A use case that may have to wait for another request is a coroutine, and awaits a :class:`Pause`.
The slots of a server do other work until the pause ends; whoever has a thread to spare runs the
coroutine with :func:`complete`. There is no event loop: pauses are all there is to wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Pause:
    """What a coroutine waits for; ended by anybody, from any thread, and more than once."""

    __slots__ = ("_guard", "_has_ended", "_resume")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._has_ended = False
        self._resume: Callable[[], None] | None = None

    def __await__(self) -> Generator[Pause, None, None]:
        """Give way, even if it has ended: others that are ready come first."""
        yield self

    def end(self) -> None:
        """Let the coroutine go on, wherever it is run."""
        with self._guard:
            self._has_ended = True
            resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    def then(self, resume: Callable[[], None]) -> None:
        """For who runs the coroutine: call this when the pause ends, or now if it has."""
        with self._guard:
            if not self._has_ended:
                self._resume = resume
                return
        resume()


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in this thread, which sleeps through its pauses."""
    try:
        while True:
            pause: Pause = coroutine.send(None)
            ended = threading.Lock()  # an Event costs four times as much
            ended.acquire()
            pause.then(ended.release)
            ended.acquire()
    except StopIteration as end:
        result: T = end.value
        return result
