"""What one weight adds to the total of each host, updated host by host.

A scale keeps the scores of the survivors, and what they add to the totals (``products``). The
policy's selector determines the kind of scale, which computes the second from the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Rows, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.normalize import clamp, clamp_one, extremes, spread
from scheduler_worker.scheduling.plugin import Weigher
from scheduler_worker.scheduling.ranks import CountedRanks, ranks
from scheduler_worker.scheduling.stretching import Ends, Stretch


class Scale:
    """The scores of one weight, by position among the survivors.

    Updates come in two steps. :meth:`put`, :meth:`insert` and :meth:`delete` change raw scores and
    note what that may invalidate; :meth:`update_products` then computes what is needed, once for
    all changes.
    """

    def __init__(
        self, unit: Weigher, spec: RequestSpec, multiplier: Values | float, raw: Values
    ) -> None:
        self.unit = unit
        self._spec = spec
        self._weigh_host, self._minval, self._maxval = unit.weigh_host, unit.minval, unit.maxval
        self._multiplier = multiplier
        self._stretch = Stretch(unit, spec, raw) if unit.stretches else None
        """The raw scores where the unit stretches them, ``_scores`` being the stretched ones."""
        self._scores = self._stretch.every() if self._stretch else _clamped(unit, raw)
        self.products: Values = np.empty(0)
        """What each host gets; empty where :attr:`is_constant`."""
        self._note: Callable[..., None] = _ignored
        """Told of scores that came or went."""
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
    def is_constant(self) -> bool:
        """Whether every host gets 0."""
        return False

    def recompute(self) -> None:
        """Compute all products from the scores."""
        raise NotImplementedError

    def put(self, at: int, host: HostState, spec: RequestSpec, *, facts: bool) -> None:
        """Ask for the score of one host again; ``facts``: more than its use changed."""
        if facts and not isinstance(self._multiplier, float):
            self._multiplier[at] = self.unit.weight_multiplier(host)
        if self._stretch is not None:
            self._stretch.put(at, float(self._weigh_host(host, spec)))
            return
        before, after = self._scores.item(at), self._weighed(host, spec)
        if before != after:
            self._note(before, after)
            self._scores[at] = after

    def insert(self, at: int, host: HostState, spec: RequestSpec) -> None:
        """Add a host that has become a survivor."""
        if not isinstance(self._multiplier, float):
            multiplier = self.unit.weight_multiplier(host)
            self._multiplier = np.insert(self._multiplier, at, multiplier)
        if self._stretch is not None:
            after = self._stretch.insert(at, float(self._weigh_host(host, spec)))
        else:
            after = self._weighed(host, spec)
        self._note(after)
        self._scores = np.insert(self._scores, at, after)
        if not self.is_constant:
            self.products = np.insert(self.products, at, 0.0)

    def delete(self, at: int) -> None:
        """Remove a host that is no survivor any more."""
        self._note(self._scores.item(at))
        if not isinstance(self._multiplier, float):
            self._multiplier = np.delete(self._multiplier, at)
        if self._stretch is not None:
            self._stretch.delete(at)
        self._scores = np.delete(self._scores, at)
        if not self.is_constant:
            self.products = np.delete(self.products, at)

    def update_products(self, touched: Sequence[int]) -> bool:
        """Compute the products of the touched positions; returns whether all products changed."""
        if self._stretch is not None:
            if self._stretch.moved():
                self._scores = self._stretch.every()
                self.recompute()
                return True
            self._stretch_again(self._stretch, touched)
        return self._update(touched)

    def unchanged_without(self, some: Rows) -> bool:
        """Whether the products of the others stay the same without some hosts."""
        return not len(some)

    def without(self, some: Rows) -> Scale:
        """A scale of the other hosts."""
        many = self._multiplier
        many = many if isinstance(many, float) else np.delete(many, some)
        raw = self._stretch.without(some) if self._stretch else np.delete(self._scores, some)
        return type(self)(self.unit, self._spec, many, raw)

    def _update(self, touched: Sequence[int]) -> bool:
        raise NotImplementedError

    def _stretch_again(self, stretch: Stretch, touched: Sequence[int]) -> None:
        if not touched:
            return
        for at, after in zip(touched, stretch.some(touched).tolist(), strict=True):
            before = self._scores.item(at)
            if before != after:
                self._note(before, after)
                self._scores[at] = after

    def _set_product(self, at: int, score: float) -> None:
        many = self._multiplier
        self.products[at] = (many if isinstance(many, float) else many.item(at)) * score

    def _weighed(self, host: HostState, spec: RequestSpec) -> float:
        return clamp_one(float(self._weigh_host(host, spec)), self._minval, self._maxval)


def _clamped(unit: Weigher, raw: Values) -> Values:
    scores: Values = clamp(raw, unit.minval, unit.maxval).astype(float)
    return scores


def _ignored(*some: float) -> None:
    """For scales to which it does not matter which scores came or went."""


class NormalizedScale(Scale):
    """Scores spread over 0..1 between the smallest and the largest of them (or the bounds).

    A change inside the extremes costs one product; one that moves an extreme costs all of them.
    """

    def __init__(
        self, unit: Weigher, spec: RequestSpec, multiplier: Values | float, raw: Values
    ) -> None:
        self._ends = Ends(unit.minval, unit.maxval)
        super().__init__(unit, spec, multiplier, raw)
        self._note = self._ends.note

    @property
    def is_constant(self) -> bool:
        return self._ends.low == self._ends.high

    def recompute(self) -> None:
        self._ends.forget()
        self._ends.find(self._scores)
        self._spread()

    def _update(self, touched: Sequence[int]) -> bool:
        if self._ends.may_have_moved and self._ends.find(self._scores):
            self._spread()
            return True
        if not self.is_constant:
            low, width = self._ends.low, self._ends.high - self._ends.low
            for at in touched:
                self._set_product(at, (self._scores.item(at) - low) / width)
        return False

    def unchanged_without(self, some: Rows) -> bool:
        if self._stretch is not None:
            return super().unchanged_without(some)
        scores, low, high = self._scores[some], self._ends.low, self._ends.high
        # Hosts strictly between the extremes do not determine them. Otherwise look whether another
        # host has the same extreme.
        inside = (scores > low) & (scores < high)
        if inside.all():
            return True
        others = np.delete(self._scores, some)
        return extremes(others, self._minval, self._maxval) == (low, high)

    def _spread(self) -> None:
        if self.is_constant:
            self.products = np.empty(0)
            return
        if len(self.products) != len(self._scores):
            self.products = np.empty(len(self._scores))
        spread(self._scores, self._ends.low, self._ends.high, out=self.products)
        if not (isinstance(self._multiplier, float) and self._multiplier == 1.0):
            self.products *= self._multiplier


class RawScale(Scale):
    """Scores, unchanged."""

    def recompute(self) -> None:
        self.products = self._multiplier * self._scores

    def _update(self, touched: Sequence[int]) -> bool:
        for at in touched:
            self._set_product(at, self._scores.item(at))
        return False

    def unchanged_without(self, some: Rows) -> bool:
        return self._stretch is None or super().unchanged_without(some)


class RankScale(Scale):
    """The rank of each score: 0 for the worst; equal scores share the better rank."""

    def __init__(
        self, unit: Weigher, spec: RequestSpec, multiplier: Values | float, raw: Values
    ) -> None:
        self._is_changed = False
        self._counted: CountedRanks | None = None
        super().__init__(unit, spec, multiplier, raw)
        self._note = self._noted

    def recompute(self) -> None:
        self._is_changed = False
        self._counted = CountedRanks.of(self._scores)
        if self._counted is None:
            self.products = self._multiplier * ranks(self._scores)
        else:
            self._look_up(self._counted)

    def insert(self, at: int, host: HostState, spec: RequestSpec) -> None:
        self._counted = None
        super().insert(at, host, spec)

    def delete(self, at: int) -> None:
        self._counted = None
        super().delete(at)

    def _noted(self, *some: float) -> None:
        self._is_changed = True

    def _update(self, touched: Sequence[int]) -> bool:
        if not self._is_changed and isinstance(self._multiplier, float):
            return False
        self._is_changed = False
        counted, scores = self._counted, self._scores
        if counted is not None and all(counted.change(at, scores.item(at)) for at in touched):
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
