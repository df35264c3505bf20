"""What one weight adds to the total of each host, updated host by host.

A scale keeps the scores of the survivors, and what they add to the totals (``products``). The
policy's selector determines the kind of scale, which computes the second from the first. Scores may
depend on the best or the worst of the hosts that are left, and be rescaled between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Rows, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Weigher


def clamp(values: Values, minval: float | None = None, maxval: float | None = None) -> Values:
    """Raw scores, clamped to a weigher's declared bounds; a non-finite number counts as 0."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        values = np.where(np.isfinite(values), values, 0.0)
    if minval is not None:
        values = np.maximum(values, minval)
    return values if maxval is None else np.minimum(values, maxval)


def clamp_one(value: float, minval: float | None = None, maxval: float | None = None) -> float:
    """:func:`clamp` for the score of one host."""
    value = value if math.isfinite(value) else 0.0
    value = value if minval is None else max(value, minval)
    return value if maxval is None else min(value, maxval)


def lowest(values: Values, minval: float | None = None) -> float:
    """The lower end of the normalisation: the declared bound, else the smallest value but NaN."""
    return float(np.fmin.reduce(values)) if minval is None else minval


def highest(values: Values, maxval: float | None = None) -> float:
    """The upper end of the normalisation: the declared bound, else the largest value but NaN."""
    return float(np.fmax.reduce(values)) if maxval is None else maxval


def spread(values: Values, low: float, high: float, out: Values | None = None) -> Values:
    """``(x - low) / (high - low)``, written to ``out`` if given; the ends must differ."""
    scaled: Values = np.divide(values - low if low else values, high - low, out=out)
    return scaled


_MOST_COUNTED = 10_000
"""How far apart integers may be to be counted rather than sorted."""


FEW = 8
"""Up to so many changed hosts are cheaper to update one by one than as arrays."""

Places = Sequence[int] | Rows
"""Positions among the survivors: a list of few, an array of more."""


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
        offsets = scores - low
        places = offsets.astype(np.intp)
        return cls(low, places) if low.is_integer() and (places == offsets).all() else None

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


class Ends:
    """The smallest and the largest of some scores; looked for again only when they may have moved.

    An end that is given stays as it is. NaN counts only where there is nothing else.
    """

    def __init__(self, minval: float | None = None, maxval: float | None = None) -> None:
        self.low = self.high = 0.0
        self._minval, self._maxval = minval, maxval
        self._is_low_stale = self._is_high_stale = True

    def note(self, *some: float) -> None:
        """Note that these scores came or went."""
        for score in some:
            # Negated, so that a NaN counts as a possible end.
            if not score > self.low:
                self._is_low_stale = True
            if not score < self.high:
                self._is_high_stale = True

    def find(self, scores: Values) -> bool:
        """Look for the ends that may have moved; returns whether one has."""
        if not (self._is_low_stale or self._is_high_stale):
            return False
        before = self.low, self.high
        # The search reads every score, so each end is looked for only if it may have moved.
        if self._is_low_stale:
            self.low = lowest(scores, self._minval)
        if self._is_high_stale:
            self.high = highest(scores, self._maxval)
        self._is_low_stale = self._is_high_stale = False
        return before != (self.low, self.high)


class Scale:
    """The scores of one weight, by position among the survivors; a cost's are negated.

    Updates come in two steps. :meth:`put`, :meth:`insert` and :meth:`delete` change raw scores and
    note what that may invalidate; :meth:`update_products` then computes what is needed, once for
    all changes.
    """

    def __init__(
        self, unit: Weigher, spec: RequestSpec, multiplier: Values | float, raw: Values
    ) -> None:
        self.unit = unit
        self._spec = spec
        self._minval, self._maxval = unit.minval, unit.maxval
        self._row_score: Callable[[int], float] | None = None
        """The unit's function of the row, until facts of hosts change."""
        self._sign = 1.0
        if unit.lower_is_better:
            self._sign = -1.0
            self._minval = None if unit.maxval is None else -unit.maxval
            self._maxval = None if unit.minval is None else -unit.minval
        self._multiplier = multiplier
        self._raw = np.array(raw, dtype=float) if unit.rescales else None
        """The raw scores where the unit rescales them, ``scores`` being the rescaled ones. While
        their ends stay, only positions that changed are rescaled again."""
        if self._raw is not None:
            self._raw_ends = Ends()
            self._raw_ends.find(self._raw)
            # A unit's bounds are those of what it rescales to, so raw scores stay as they are.
            raw = self._rescaled(self._raw)
        self.scores: Values = self._counting(raw).astype(float) if self._raw is None else raw
        """Larger ones are better."""
        self.is_constant = False
        """Whether every host gets 0."""
        self.products: Values = np.empty(0)
        """What each host gets; empty where :attr:`is_constant`."""
        self.recompute()

    @classmethod
    def of(cls, unit: Weigher, hosts: Hosts, spec: RequestSpec) -> Scale | None:
        """The scores of these hosts; None: the factor is 0."""
        multiplier = unit.multiplier(hosts)
        if isinstance(multiplier, float):
            if not multiplier:
                return None
        else:
            multiplier = multiplier.copy()  # it may be a derived column, and is changed in place
        return cls(unit, spec, multiplier, unit.weigh(hosts, spec))

    @property
    def size(self) -> int:
        """Bytes of its arrays."""
        raw = 0 if self._raw is None else self._raw.nbytes
        return raw + self.scores.nbytes + self.products.nbytes

    @property
    def ends(self) -> tuple[float, float] | None:
        """The scores that become 0 and 1, if a product depends on only these and its own score.

        None: a product depends on more of the other hosts' scores.
        """
        return None

    def between(self, low: float, high: float) -> Values:
        """What the products would be if the scores were spread between these ends."""
        return self._multiplier * spread(self.scores, low, high)

    def recompute(self) -> None:
        """Compute all products from the scores."""
        raise NotImplementedError

    def every_product(self) -> Values:
        """What each host gets."""
        return np.zeros(len(self.scores)) if self.is_constant else self.products

    def put(self, at: int, host: HostState, spec: RequestSpec) -> None:
        """Ask for the score of one host again."""
        if not isinstance(self._multiplier, float):
            self._multiplier[at] = self.unit.weight_multiplier(host)
        self._put(at, float(self.unit.weigh_host(host, spec)))

    def put_use(self, at: int, host: HostState, spec: RequestSpec) -> None:
        """Ask for the score of one host again, of which only the use has changed."""
        if self._row_score is None:
            self._row_score = self.unit.row_score(host.table, spec)
        self._put(at, self._row_score(host.row))

    def facts_changed(self) -> None:
        """Forget what was read of facts, because some hosts have new ones."""
        self._row_score = None

    def _put(self, at: int, raw: float) -> None:
        if self._raw is not None:
            # The score before, too: the one that leaves may have been the end.
            self._raw_ends.note(self._raw.item(at), raw)
            self._raw[at] = raw
            return
        before = self.scores.item(at)
        after = clamp_one(self._sign * raw, self._minval, self._maxval)
        if before != after:
            self._note(before, after)
            self.scores[at] = after

    def put_all(self, places: Rows, hosts: Hosts, spec: RequestSpec) -> None:
        """Ask for the scores of some hosts again, as :meth:`put` does for each."""
        if not isinstance(self._multiplier, float):
            self._multiplier[places] = self.unit.multiplier(hosts)
        raw = self.unit.weigh(hosts, spec)
        if self._raw is not None:
            self._raw_ends.note(*self._raw[places].tolist(), *raw.tolist())
            self._raw[places] = raw
        else:
            self._replace(places, self._counting(raw))

    def _replace(self, places: Places, scores: Values) -> None:
        before = self.scores[places]
        differ = before != scores
        if differ.any():
            self._note(*before[differ].tolist(), *scores[differ].tolist())
            self.scores[places] = scores

    def insert(self, at: int, host: HostState, spec: RequestSpec) -> None:
        """Add a host that has become a survivor."""
        if not isinstance(self._multiplier, float):
            self._multiplier = np.insert(self._multiplier, at, self.unit.weight_multiplier(host))
        raw = float(self.unit.weigh_host(host, spec))
        if self._raw is not None:
            self._raw_ends.note(raw)
            self._raw = np.insert(self._raw, at, raw)
            after = float(self._rescaled(self._raw[[at]])[0])  # unless an end moves
        else:
            after = clamp_one(self._sign * raw, self._minval, self._maxval)
        self._note(after)
        self.scores = np.insert(self.scores, at, after)
        # A place only: ``update_products`` computes what belongs there.
        if not self.is_constant:
            self.products = np.insert(self.products, at, 0.0)

    def delete(self, at: int) -> None:
        """Remove a host that is no survivor any more."""
        self._note(self.scores.item(at))
        if not isinstance(self._multiplier, float):
            self._multiplier = np.delete(self._multiplier, at)
        if self._raw is not None:
            self._raw_ends.note(self._raw.item(at))
            self._raw = np.delete(self._raw, at)
        self.scores = np.delete(self.scores, at)
        if not self.is_constant:
            self.products = np.delete(self.products, at)

    def update_products(self, touched: Places) -> bool:
        """Compute the products of the touched positions; returns whether all products changed."""
        if self._raw is not None:
            # With an end every score moves, so nothing that was known of them helps.
            if self._raw_ends.find(self._raw):
                self.scores = self._rescaled(self._raw)
                self.recompute()
                return True
            if len(touched):
                self._replace(touched, self._rescaled(self._raw[touched]))
        return self._update(touched)

    def unchanged_without(self, some: Rows) -> bool:
        """Whether the products of the others stay the same without some hosts."""
        return not len(some)

    def without(self, some: Rows) -> Scale:
        """A scale of the other hosts."""
        many = self._multiplier
        many = many if isinstance(many, float) else np.delete(many, some)
        raw = self._sign * self.scores if self._raw is None else self._raw
        return type(self)(self.unit, self._spec, many, np.delete(raw, some))

    def _rescaled(self, raw: Values) -> Values:
        ends = self._raw_ends
        return self._counting(self.unit.rescaled(raw, ends.low, ends.high, self._spec))

    def _counting(self, raw: Values) -> Values:
        """Raw scores, or rescaled ones, as they count: larger is better, between the bounds."""
        if self._sign < 0:
            raw = -np.asarray(raw, dtype=float)
        return clamp(raw, self._minval, self._maxval)

    def _update(self, touched: Places) -> bool:
        raise NotImplementedError

    def _note(self, *some: float) -> None:
        """These scores came or went, which does not matter to every scale."""

    def _set_products(self, places: Places, low: float = 0.0, width: float = 1.0) -> None:
        """Compute the products of these positions: one by one, while that is cheaper."""
        many, scores, products = self._multiplier, self.scores, self.products
        if len(places) > FEW:
            factors = many if isinstance(many, float) else many[places]
            products[places] = factors * ((scores[places] - low) / width)
            return
        # A few numbers take less time in Python than one array operation of numpy.
        for at in places:
            factor = many if isinstance(many, float) else many.item(at)
            products[at] = factor * ((scores.item(at) - low) / width)


class WeightEnds(NamedTuple):
    """Some weights, and between which scores each is spread: rows of low, high."""

    weights: tuple[Weigher, ...]
    ends: Values

    @classmethod
    def of(cls, scales: Sequence[Scale]) -> WeightEnds | None:
        """Of these scales; None: some depend on more of the other hosts."""
        ends = [scale.ends for scale in scales]
        known = bool(ends) and None not in ends
        return cls(tuple(scale.unit for scale in scales), np.array(ends)) if known else None


class NormalizedScale(Scale):
    """Scores spread over 0..1 between the smallest and the largest of them (or the bounds).

    A change inside the extremes costs one product; one that moves an extreme costs all of them.
    """

    @property
    def ends(self) -> tuple[float, float] | None:
        return (self._ends.low, self._ends.high) if self._raw is None else None

    def _note(self, *some: float) -> None:
        self._ends.note(*some)

    def recompute(self) -> None:
        self._ends = Ends(self._minval, self._maxval)
        self._ends.find(self.scores)
        self._spread()

    def _update(self, touched: Places) -> bool:
        if self._ends.find(self.scores):
            self._spread()
            return True
        if not self.is_constant:
            self._set_products(touched, self._ends.low, self._ends.high - self._ends.low)
        return False

    def unchanged_without(self, some: Rows) -> bool:
        if self._raw is not None:
            return super().unchanged_without(some)
        scores, low, high = self.scores[some], self._ends.low, self._ends.high
        # Hosts strictly between the extremes do not determine them. Otherwise look whether another
        # host has the same extreme.
        inside = (scores > low) & (scores < high)
        if inside.all():
            return True
        others = np.delete(self.scores, some)
        return (lowest(others, self._minval), highest(others, self._maxval)) == (low, high)

    def _spread(self) -> None:
        self.is_constant = self._ends.low == self._ends.high
        if self.is_constant:
            self.products = np.empty(0)
            return
        if len(self.products) != len(self.scores):
            self.products = np.empty(len(self.scores))
        spread(self.scores, self._ends.low, self._ends.high, out=self.products)
        # Most weights have the factor 1; to leave it out saves a pass over all hosts.
        if not (isinstance(self._multiplier, float) and self._multiplier == 1.0):
            self.products *= self._multiplier


class RawScale(Scale):
    """Scores, unchanged."""

    @property
    def ends(self) -> tuple[float, float] | None:
        return (0.0, 1.0) if self._raw is None else None

    def recompute(self) -> None:
        self.products = self._multiplier * self.scores

    def _update(self, touched: Places) -> bool:
        self._set_products(touched)
        return False

    def unchanged_without(self, some: Rows) -> bool:
        return self._raw is None or super().unchanged_without(some)


class RankScale(Scale):
    """The rank of each score, as oVirt's: ``n - 1`` less the number of strictly better scores.

    The worst of distinct scores has 0, the best ``n - 1``, and equal scores share the better rank.
    """

    def recompute(self) -> None:
        self._is_changed = False
        self._counted = CountedRanks.of(self.scores)
        if self._counted is None:
            ranks = np.searchsorted(np.sort(self.scores), self.scores, side="right") - 1.0
            self.products = self._multiplier * ranks
        else:
            self._look_up(self._counted)

    def insert(self, at: int, host: HostState, spec: RequestSpec) -> None:
        self._counted = None
        super().insert(at, host, spec)

    def delete(self, at: int) -> None:
        self._counted = None
        super().delete(at)

    def _note(self, *some: float) -> None:
        self._is_changed = True

    def _update(self, touched: Places) -> bool:
        # A score that is not another one moves no rank, and a rank is all that counts.
        if not self._is_changed and isinstance(self._multiplier, float):
            return False
        self._is_changed = False
        counted = self._counted
        if counted is not None and all(counted.change(at, self.scores.item(at)) for at in touched):
            self._look_up(counted)
        else:
            self.recompute()
        return True

    def _look_up(self, counted: CountedRanks) -> None:
        many = self._multiplier
        if isinstance(many, float):
            self.products = counted.times(many, out=self.products)
        else:
            self.products = many * counted.times(1.0)
