"""Ranks of scores: how many of the others are not strictly better."""

from __future__ import annotations

import numpy as np

from scheduler_worker.model.hosts import Rows, Values

_MOST_COUNTED = 10_000
"""How far apart integers may be to be counted rather than sorted."""


def ranks(scores: Values) -> Values:
    """The rank of each score.

    oVirt's rank: ``n - 1`` less the number of strictly better scores. The worst of distinct scores
    has 0, the best ``n - 1``, and equal scores share the better rank.
    """
    counted = CountedRanks.of(scores)
    if counted is not None:
        return counted.times(1.0)
    ascending = np.sort(scores)
    found: Values = np.searchsorted(ascending, scores, side="right").astype(float) - 1.0
    return found


class CountedRanks:
    """Ranks of integers that are not far apart, as oVirt's scores are: counted, not sorted.

    To change a score costs two counts, and then to look up the rank of every score.
    """

    def __init__(self, low: float, places: Rows) -> None:
        self._low = low
        self._places = places
        """Each score less the lowest."""
        self._counts = np.bincount(places)
        """How many scores have each place."""

    @classmethod
    def of(cls, scores: Values) -> CountedRanks | None:
        """The ranks of these scores; None: some are no integers, or they are too far apart."""
        if not len(scores):
            return None
        low = float(np.minimum.reduce(scores))
        if not np.maximum.reduce(scores) - low <= _MOST_COUNTED:
            return None
        found = scores - low
        places = found.astype(np.intp)
        return cls(low, places) if low.is_integer() and (places == found).all() else None

    def change(self, at: int, score: float) -> bool:
        """Change one score; False: it is no integer between the first scores."""
        place = score - self._low
        if not (0 <= place < len(self._counts) and place.is_integer()):
            return False
        self._counts[self._places[at]] -= 1
        self._counts[int(place)] += 1
        self._places[at] = int(place)
        return True

    def times(self, factor: float, out: Values | None = None) -> Values:
        """The factor times each rank, written to ``out`` if it has the right size."""
        by_place = factor * (self._counts.cumsum() - 1.0)
        if out is None or len(out) != len(self._places):
            out = np.empty(len(self._places))
        return by_place.take(self._places, out=out, mode="clip")
