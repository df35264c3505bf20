"""Scores that depend on the best or the worst of the hosts that are left, updated host by host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler_worker.model.hosts import Rows, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.normalize import clamp, highest, lowest
from scheduler_worker.scheduling.plugin import Weigher


class Ends:
    """The smallest and the largest of some scores; looked for again only when they may have moved.

    An end that is given stays as it is. NaN counts only where there is nothing else.
    """

    def __init__(self, minval: float | None = None, maxval: float | None = None) -> None:
        self.low = self.high = 0.0
        self._minval, self._maxval = minval, maxval
        self._is_low_stale = self._is_high_stale = True

    @property
    def may_have_moved(self) -> bool:
        """Whether a noted score may have been, or may be, an end."""
        return self._is_low_stale or self._is_high_stale

    def note(self, *some: float) -> None:
        """Note that these scores came or went."""
        for score in some:
            # Negated, so that a NaN counts as a possible end.
            if not score > self.low:
                self._is_low_stale = True
            if not score < self.high:
                self._is_high_stale = True

    def forget(self) -> None:
        """Both ends may have moved."""
        self._is_low_stale = self._is_high_stale = True

    def find(self, scores: Values) -> bool:
        """Look for the ends that may have moved; returns whether one has."""
        before = self.low, self.high
        if self._is_low_stale:
            self.low = lowest(scores, self._minval)
        if self._is_high_stale:
            self.high = highest(scores, self._maxval)
        self._is_low_stale = self._is_high_stale = False
        return before != (self.low, self.high)


class Stretch:
    """The raw scores of a weight that stretches them, by position among the survivors.

    While the ends stay, only positions that changed are stretched again.
    """

    def __init__(self, unit: Weigher, spec: RequestSpec, raw: Values) -> None:
        self._unit = unit
        self._spec = spec
        self._raw = np.array(raw, dtype=float)
        self._ends = Ends()

    def put(self, at: int, raw: float) -> None:
        """Replace the raw score of one host."""
        self._ends.note(self._raw.item(at), raw)
        self._raw[at] = raw

    def insert(self, at: int, raw: float) -> float:
        """Add a host; returns what it scores unless an end moves."""
        self._ends.note(raw)
        self._raw = np.insert(self._raw, at, raw)
        return float(self.some([at])[0])

    def delete(self, at: int) -> None:
        """Remove a host."""
        self._ends.note(self._raw.item(at))
        self._raw = np.delete(self._raw, at)

    def without(self, some: Rows) -> Values:
        """The raw scores of the other hosts."""
        return np.delete(self._raw, some)

    def moved(self) -> bool:
        """Look for the ends; returns whether one moved, so that every score is another one."""
        return self._ends.may_have_moved and self._ends.find(self._raw)

    def every(self) -> Values:
        """The score of every host."""
        self._ends.find(self._raw)
        return self._stretched(self._raw)

    def some(self, places: Sequence[int]) -> Values:
        """The scores of these positions."""
        return self._stretched(self._raw[places])

    def _stretched(self, raw: Values) -> Values:
        unit, ends = self._unit, self._ends
        found = unit.stretched(raw, ends.low, ends.high, self._spec)
        return clamp(found, unit.minval, unit.maxval)
