"""Orders hosts by weight, sorting no more of them than are read."""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence
from typing import Any, Protocol

import numpy as np

from scheduler_worker.model.hosts import Rows, Values

_FEW = 5
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
        self._left: Values | None = None
        """The totals of those that are not in ``_head``; None: it has only those it began with."""

    def _shuffled_ties(self, rng: RandomSource) -> list[int]:
        ties: list[int] = np.flatnonzero(self.totals == self.totals.max()).tolist()
        rng.shuffle(ties)
        return ties

    @property
    def first(self) -> int:
        """The row of the chosen host."""
        return int(self.rows[self._head[0]])

    def head(self, count: int) -> list[int]:
        """The positions in ``rows`` of the first ``count``, which are few."""
        self._find(count)
        return self._head[:count]

    def __iter__(self) -> Iterator[int]:
        """Rows: the chosen one, then the others in weight order."""
        for position in self._positions():
            yield int(self.rows[position])

    def _find(self, count: int) -> None:
        """Find hosts one by one, until ``_head`` has so many; a total of -inf is not found."""
        head = self._head
        if len(head) >= count:
            return
        if self._left is None:
            self._left = self.totals.copy()
            self._left[head] = -np.inf
        left = self._left
        for _ in range(min(count, len(left)) - len(head)):
            position = int(left.argmax())
            if left.item(position) == -np.inf:
                return
            left[position] = -np.inf
            head.append(position)

    def _positions(self) -> Iterator[int]:
        read, few = 0, max(len(self._head), _FEW)
        while read < few:
            self._find(read + 1)
            if read == len(self._head):
                break
            yield self._head[read]
            read += 1
        seen = set(self._head[:read])
        count = 8 * _FEW
        while True:
            some = best(self.totals, count).tolist()
            yield from (each for each in some if each not in seen)
            if count >= len(self.totals):
                return
            seen.update(some)
            count *= 8
