"""How durations are spread: counts by length, which can be added up.

Lengths grow by a tenth of a decade from count to count, so that a few dozen numbers cover 0.1 ms to
1000 s, and what is read from them is at most 26 % too long, and never too short.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping

import msgspec

_LEAST_S = 1e-4
_PER_DECADE = 10
_LAST = 7 * _PER_DECADE
_BOUNDS_S = tuple(_LEAST_S * 10 ** (bucket / _PER_DECADE) for bucket in range(_LAST))


def bucket_of(seconds: float) -> int:
    """Which count a duration belongs to."""
    return bisect_left(_BOUNDS_S, seconds)


class Spread(msgspec.Struct, frozen=True):
    """Durations by length."""

    counts: Mapping[int, int] = {}
    """How many durations each bucket of :func:`bucket_of` has."""

    @property
    def total(self) -> int:
        """How many durations there are."""
        return sum(self.counts.values())

    def reached(self, share: float) -> float | None:
        """The seconds that this share of the durations does not exceed; None: there are none.

        A duration beyond 1000 s counts as 1000 s.
        """
        wanted = math.ceil(share * self.total)
        so_far = 0
        for bucket, count in sorted(self.counts.items()):
            so_far += count
            if so_far >= wanted:
                bound_s = _LEAST_S * 10 ** (bucket / _PER_DECADE)
                return float(f"{bound_s:.3g}")
        return None

    @classmethod
    def summed(cls, spreads: Iterable[Spread]) -> Spread:
        """All durations of several spreads."""
        counts: dict[int, int] = {}
        for each in spreads:
            for bucket, count in each.counts.items():
                counts[bucket] = counts.get(bucket, 0) + count
        return cls(counts)
