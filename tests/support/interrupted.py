"""Calls that a test interrupts: another worker acts just then, one dies, or the store fails."""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from tests.support.services import World


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


def raising(error: Exception) -> Mock:
    """A function that raises the error, whatever its arguments."""
    return Mock(side_effect=error)


def before_next(
    patch: pytest.MonkeyPatch,
    owner: object,
    method: str,
    *acts: Callable[[], object],
    scope: str | None = None,
) -> None:
    """Let each act happen just before one of the next calls of the owner's method.

    With a ``scope``, before those calls whose first argument it is.
    """
    call, coming = getattr(owner, method), iter(acts)

    def interrupted(*arguments: Any, **how: Any) -> Any:
        if scope is None or arguments[0] == scope:
            next(coming, lambda: None)()
        return call(*arguments, **how)

    patch.setattr(owner, method, interrupted)


def overtake(patch: pytest.MonkeyPatch, world: World, *reports: dict[str, Any]) -> None:
    """Let another worker store each report just before one of the next commits."""
    other = world.beside()
    acts = [partial(other.report, each) for each in reports]
    before_next(patch, world.state, "commit", *acts)
