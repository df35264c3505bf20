"""Which rows of a host table changed, so that caches look at those again and at no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_MAX_USED = 65_536


class Marks(NamedTuple):
    """How much of a :class:`ChangeLog` a cache has seen."""

    generation: int
    facts: int
    use: int


class ChangeLog:
    """Rows in the order of their changes; a row that changed twice is listed twice.

    Rows are numbers, so the log is void when rows come, go or move: a new *generation* begins, and
    marks of the last one are worthless.
    """

    def __init__(self) -> None:
        self._generation = 0
        self._facts: list[int] = []
        self._use: list[int] = []

    @property
    def facts(self) -> Sequence[int]:
        """Rows whose reported facts or aggregates changed; goes on over generations until
        :meth:`forget_facts`, for the derived columns.
        """
        return self._facts

    def facts_changed(self, row: int) -> None:
        """Record that a host reported, or that its aggregates changed."""
        self._facts.append(row)

    def use_changed(self, row: int) -> bool:
        """Record that reservations or instances of a row changed; False when the log is full."""
        self._use.append(row)
        return len(self._use) <= _MAX_USED

    def marks(self) -> Marks:
        """Where the log ends now."""
        return Marks(self._generation, len(self._facts), len(self._use))

    def since(self, marks: Marks) -> tuple[set[int], set[int]] | None:
        """The rows whose facts changed since, and those whose use did; None: unknown, as
        rows came, went or moved.
        """
        if marks.generation != self._generation:
            return None
        return set(self._facts[marks.facts :]), set(self._use[marks.use :])

    def begin_generation(self) -> None:
        """Invalidate all marks."""
        self._generation += 1
        self._use.clear()

    def forget_facts(self) -> None:
        """Clear the list of :attr:`facts`; the caller drops what was computed from it."""
        self._facts.clear()

    def branch(self) -> ChangeLog:
        """A log of the same facts, with use of its own."""
        log = ChangeLog()
        log._generation, log._facts = self._generation, self._facts
        return log
