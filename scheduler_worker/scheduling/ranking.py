"""From weights to an order of hosts, without sorting what nobody asks for."""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence
from typing import Any, Protocol

import numpy as np

from scheduler_worker.model.hosts import Rows, Values

_FIRST_CHUNK = 16


class Dice(Protocol):
    """Where chance comes from; seeded by the request, so that a decision can be replayed."""

    def randrange(self, start: int, /) -> int:
        """A number from 0 to one less than the argument."""

    def shuffle(self, x: MutableSequence[Any], /) -> None:
        """Shuffle in place."""


def best(totals: Values, count: int) -> Rows:
    """The positions of the ``count`` largest totals, best first; ties keep their order.

    Equal to the head of a stable descending sort, in linear time.
    """
    if count >= len(totals):
        everything: Rows = np.argsort(-totals, kind="stable")
        return everything
    if count == 1:
        return np.array([totals.argmax()])
    threshold = np.partition(totals, len(totals) - count)[len(totals) - count]
    candidates = np.flatnonzero(totals >= threshold)
    order: Rows = candidates[np.argsort(-totals[candidates], kind="stable")][:count]
    return order


class Ranking:
    """Hosts by their totals, best first, after subset and shuffle have had their say."""

    def __init__(
        self, rows: Rows, totals: Values, *, subset: int, shuffle: bool, dice: Dice
    ) -> None:
        self.rows = rows
        self.totals = totals
        self._head = self._draw(subset, dice) if shuffle is False else self._shuffled(subset, dice)

    def _draw(self, subset: int, dice: Dice, head: list[int] | None = None) -> list[int]:
        if head is None:
            head = best(self.totals, max(1, min(subset, len(self.totals)))).tolist()
        if subset > 1 and len(head) > 1:
            chosen = head.pop(dice.randrange(min(subset, len(head))))
            head.insert(0, chosen)
        return head

    def _shuffled(self, subset: int, dice: Dice) -> list[int]:
        ties: list[int] = np.flatnonzero(self.totals == self.totals.max()).tolist()
        dice.shuffle(ties)
        if len(ties) < subset:
            taken = set(ties)
            more = best(self.totals, min(subset, len(self.totals))).tolist()
            ties += [position for position in more if position not in taken]
        return self._draw(subset, dice, ties)

    @property
    def first(self) -> int:
        """The row of the chosen host."""
        return int(self.rows[self._head[0]])

    def __iter__(self) -> Iterator[int]:
        """Rows: the chosen one, then the others in weight order."""
        yielded = set()
        for position in self._positions():
            if position not in yielded:
                yielded.add(position)
                yield int(self.rows[position])

    def _positions(self) -> Iterator[int]:
        yield from self._head
        count = _FIRST_CHUNK
        while count < len(self.totals):
            yield from best(self.totals, count).tolist()
            count *= 8
        yield from best(self.totals, len(self.totals)).tolist()
