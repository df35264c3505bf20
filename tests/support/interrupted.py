"""A state whose writes a test interrupts: another worker acts just then, or the worker dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Died(Exception):
    """Raised where a worker dies."""


class Interrupted:
    """A worker's state; before (or after) its write number ``at`` it does ``act``.

    Writes are counted from 0 and also while nothing is done, so that a test can see how many there
    are.
    """

    def __init__(
        self, state: Any, *, at: int = -1, after: bool = False, act: Callable[[], object]
    ) -> None:
        self._state = state
        self._at = at
        self._after = after
        self._act = act
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def write(self, *arguments: Any, **how: Any) -> Any:
        number, self.writes = self.writes, self.writes + 1
        if number == self._at and not self._after:
            self._act()
        written = self._state.write(*arguments, **how)
        if number == self._at and self._after:
            self._act()
        return written


def die() -> None:
    raise Died
