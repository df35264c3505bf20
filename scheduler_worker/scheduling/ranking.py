"""Orders hosts by weight, sorting no more of them than are read."""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence
from typing import Any, Protocol

import numpy as np

from scheduler_worker.model.hosts import Rows, Values

_FEW = 4
"""How many hosts are found one by one; to find more, partial sorting is cheaper."""


class RandomSource(Protocol):
    """A random source, seeded by the request's id so that a decision can be replayed."""

    def randrange(self, start: int, /) -> int:
        """A number from 0 to one less than ``start``."""

    def shuffle(self, x: MutableSequence[Any], /) -> None:
        """Shuffle in place."""


def best(totals: Values, count: int) -> Rows:
    """The positions of the ``count`` largest totals, best first; ties keep their order.

    Equal to the head of a stable descending sort, in linear time.
    """
    if count >= len(totals):
        everything: Rows = np.argsort(-totals, kind="stable")
        return everything
    threshold = np.partition(totals, len(totals) - count)[len(totals) - count]
    candidates = np.flatnonzero(totals >= threshold)
    order: Rows = candidates[np.argsort(-totals[candidates], kind="stable")][:count]
    return order


class Ranking:
    """Hosts by their totals, best first, with Nova's two kinds of chance.

    ``shuffle`` shuffles the hosts that share the best total; the first host is then picked at
    random among the ``subset`` best.
    """

    def __init__(
        self, rows: Rows, totals: Values, *, subset: int, shuffle: bool, rng: RandomSource
    ) -> None:
        self.rows = rows
        self.totals = totals
        self._head = self._shuffled_ties(rng) if shuffle else []
        few = min(subset, len(totals))
        best_few = [int(totals.argmax())] if few == 1 else best(totals, few).tolist()
        self._head += [each for each in best_few if each not in self._head]
        if subset > 1:
            chosen = self._head.pop(rng.randrange(min(subset, len(self._head))))
            self._head.insert(0, chosen)

    def _shuffled_ties(self, rng: RandomSource) -> list[int]:
        ties: list[int] = np.flatnonzero(self.totals == self.totals.max()).tolist()
        rng.shuffle(ties)
        return ties

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
        left = self.totals.copy()
        left[self._head] = -np.inf
        for _ in range(min(_FEW, len(left) - len(self._head))):
            position = int(left.argmax())
            left[position] = -np.inf
            yield position
        count = 8 * _FEW
        while count < len(self.totals):
            yield from best(self.totals, count).tolist()
            count *= 8
        yield from best(self.totals, len(self.totals)).tolist()
