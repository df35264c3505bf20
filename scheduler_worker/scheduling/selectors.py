"""Selectors order hosts by the scores of a policy's weights, best first.

A selector is a unit: a policy names one. Each adds up, for each host, the factor of each weight
times its score; they differ in what a score is. No more hosts are sorted than are read.
"""

import math
from collections.abc import Iterator, MutableSequence
from typing import Annotated, Any, ClassVar, Protocol

import msgspec
import numpy as np
from msgspec import Meta

from scheduler_worker.model.hosts import Rows, Values
from scheduler_worker.options import Opt
from scheduler_worker.scheduling.plugin import NoParameters, Unit
from scheduler_worker.scheduling.scales import NormalizedScale, RankScale, RawScale, Scale

_FEW = 5
"""How many hosts are found one by one; to find more, partial sorting is cheaper."""
_NOT_FOUND = -math.inf
"""The total of a host that is not to be found, again or at all."""


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
        self._head: list[int] = []
        if shuffle:
            self._head = np.flatnonzero(totals == totals.max()).tolist()
            rng.shuffle(self._head)
        few = min(subset, len(totals))
        best_few = [int(totals.argmax())] if few == 1 else best(totals, few).tolist()
        self._head += [position for position in best_few if position not in self._head]
        if subset > 1:
            chosen = self._head.pop(rng.randrange(min(subset, len(self._head))))
            self._head.insert(0, chosen)
        self._left: Values | None = None
        """The totals of hosts that are not in ``_head``; None: it has only its first hosts."""

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
            for position in head:
                self._left[position] = _NOT_FOUND
        totals = self._left
        for _ in range(min(count, len(totals)) - len(head)):
            position = int(totals.argmax())
            if totals.item(position) == _NOT_FOUND:
                return
            totals[position] = _NOT_FOUND
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
            yield from (position for position in some if position not in seen)
            if count >= len(self.totals):
                return
            seen.update(some)
            count *= 8


class ChoiceParameters(msgspec.Struct, frozen=True):
    """At random among how many of the best hosts one is chosen, and whether among equals."""

    host_subset_size: Annotated[int, Meta(ge=1), Opt(mutable=True)] = 1
    """The host is drawn at random among this many of the best."""
    shuffle_best_same_weighed_hosts: Annotated[bool, Opt(mutable=True)] = False
    """Whether hosts that share the best weight are put into a random order."""


class Selector(Unit):
    """Makes raw scores comparable, so that they can be added, and the totals into a
    :class:`Ranking`.
    """

    parameters_type: ClassVar[type[msgspec.Struct]] = ChoiceParameters
    scale: ClassVar[type[Scale]]
    """What each host gets for its scores, updated from one request to the next."""

    def rank(self, rows: Rows, totals: Values, rng: RandomSource) -> Ranking:
        """The hosts in order of their totals, the largest first."""
        subset = getattr(self.parameters, "host_subset_size", 1)
        shuffle = getattr(self.parameters, "shuffle_best_same_weighed_hosts", False)
        return Ranking(rows, totals, subset=subset, shuffle=shuffle, rng=rng)


class NormalizedSum(Selector):
    """Nova's: scores are normalised to 0..1 between the lowest and the highest of the hosts left.

    A weight for which all hosts are equal adds nothing.
    """

    scale = NormalizedScale


class WeightedSum(Selector):
    """Scores count unchanged."""

    scale = RawScale


class RankSum(Selector):
    """A host scores its rank, 0 for the worst; equals share the better."""

    scale = RankScale


# oVirt's have no parameters, and take the best host, in order of the table.


class BasicWeighting(WeightedSum):
    """oVirt's basic selector: scores count unchanged."""

    parameters_type = NoParameters
    unit_id = "0c89f215-9c4f-4bbb-8419-31a2d43ae7ea"


class RankSelector(RankSum):
    """oVirt's rank selector: a host scores its rank, 0 for the worst; equals share the better."""

    parameters_type = NoParameters
    unit_id = "b280e7de-5df8-401e-b004-a1414d79a687"
