"""How all hosts stand towards one class of requests, kept up to date host by host.

Judging ten thousand hosts anew for each request would do the same work again and again: between two
requests of the same kind a handful of hosts has changed. So what each filter let through and what
each weigher said is kept, and only the hosts that were touched since are judged again, through
the row face of the units. The outcome is the same to the last bit.

It can be kept where every unit tells what it reads of the request (:meth:`Unit.reads`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from scheduler_worker.model.decisions import Diagnosis, FilterStep, Selection
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Rows, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.normalize import clamp, extremes, highest, lowest, spread
from scheduler_worker.scheduling.plugin import Filter, Weigher

_FEW, _ONE_IN, _ONE_IN_ROWS = 8, 500, 20
"""A host costs so much to judge again that all are judged anew when more than a few changed; where
a filter looks at rows, and each costs as much anew, when more than one in twenty did."""


class Survey:
    """Which hosts came through which filter; ``masks`` are over all rows of the table.

    The diagnosis also names filters that do not apply, as passing all. In the survey of a class of
    requests (``of_class``) those that are of one request alone do not apply: :meth:`narrowed` lays
    them over it.
    """

    def __init__(
        self,
        hosts: HostTable,
        spec: RequestSpec,
        filters: Sequence[Filter],
        *,
        first: tuple[str, Mask],
        of_class: bool = False,
    ) -> None:
        self._filters: list[Filter] = []
        self._using: list[Filter] = []
        """Those of them that look at what is used of a host."""
        name, mask = first
        self.masks = [mask]
        self._counts = [int(np.count_nonzero(mask))]
        self._shown = [(name, 0)]
        self._quiet = {name}
        """Who is named only where it rejects."""
        for unit in filters:
            if not self._counts[-1]:
                break
            if unit.applies(spec) and not (of_class and unit.of_one_request):
                self.masks.append(_applied(unit, hosts, spec, self.masks[-1]))
                self._counts.append(int(np.count_nonzero(self.masks[-1])))
                self._filters.append(unit)
                if unit.reads_use:
                    self._using.append(unit)
            self._shown.append((unit.name, len(self.masks) - 1))
            if unit.runs_on_forced_hosts:
                self._quiet.add(unit.name)
        self._told: tuple[list[int], Diagnosis] | None = None
        """The last diagnosis, and of which counts it was."""
        self.until_s = float("inf")
        """Up to when the verdicts hold if no host changes."""
        self.look_ahead(hosts, spec)

    def look_ahead(self, hosts: Hosts, spec: RequestSpec) -> None:
        """Take account of hosts whose verdicts may end sooner than those of the others."""
        ends_s = (unit.lasts_until_s(hosts, spec) for unit in self._filters)
        self.until_s = min([self.until_s, *ends_s])

    @property
    def looks_at_rows(self) -> bool:
        """Whether some filter looked at each host by itself."""
        return any(unit.looks_at_rows for unit in self._filters)

    @property
    def survivors(self) -> Mask:
        """The hosts that came through all filters."""
        return self.masks[-1]

    @property
    def passed(self) -> int:
        """How many hosts came through all filters."""
        return self._counts[-1]

    def diagnosis(self) -> Diagnosis:
        """How many hosts each filter let through."""
        if self._told is None or self._told[0] != self._counts:
            self._told = self._counts.copy(), self._diagnosed()
        return self._told[1]

    def _diagnosed(self) -> Diagnosis:
        total = before = len(self.masks[0])
        steps = []
        for name, at in self._shown:
            after = self._counts[at]
            if after < before or name not in self._quiet:
                steps.append(FilterStep(name, before, after))
            if not after:
                break
            before = after
        return Diagnosis(hosts=total, filters=tuple(steps))

    def rejected_by(self, row: int) -> str | None:
        """The first filter that rejected a row."""
        for name, at in self._shown:
            if not self.masks[at][row]:
                return name
        return None

    def narrowed(self, hosts: HostTable, spec: RequestSpec, filters: Sequence[Filter]) -> Survey:
        """With filters that had been left out; for one request, and never judged again.

        The survey itself where they reject nobody.
        """
        found = self
        for unit in filters:
            if unit.applies(spec):
                found = found._without(unit.name, ~unit.passes(hosts, spec))
        return found

    def _without(self, name: str, rejected: Mask) -> Survey:
        place = next((at for at, (shown, _) in enumerate(self._shown) if shown == name), None)
        if place is None:
            return self
        at = self._shown[place][1]
        if not (self.masks[at] & rejected).any():
            return self
        found = copy.copy(self)
        found.masks = [*self.masks[: at + 1], *(mask & ~rejected for mask in self.masks[at:])]
        found._counts = [int(np.count_nonzero(mask)) for mask in found.masks]
        found._told = None
        found._shown = self._shown[:place] + [(each, at + 1) for each, at in self._shown[place:]]
        return found

    def judge_again(self, host: HostState, spec: RequestSpec, *, facts: bool) -> bool:
        """Ask the filters again about one host; whether it comes through.

        ``facts`` tells that more than its promises has changed.
        """
        row = host.row
        if not facts and self.survivors[row] and self._still_passes(host, spec):
            return True
        before = passes = bool(self.masks[0][row])
        for at, unit in enumerate(self._filters, 1):
            after = bool(self.masks[at][row])
            if passes:
                is_known = before and not facts and not unit.reads_use
                passes = after if is_known else unit.host_passes(host, spec)
            if passes != after:
                self.masks[at][row] = passes
                self._counts[at] += 1 if passes else -1
            before = after
        return passes

    def _still_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Whether a survivor is one for all that look at what is used of it."""
        for unit in self._using:  # noqa: SIM110 - all() costs as much as a filter
            if not unit.host_passes(host, spec):
                return False
        return True


def _applied(unit: Filter, hosts: HostTable, spec: RequestSpec, mask: Mask) -> Mask:
    if unit.looks_at_rows:
        rows = np.flatnonzero(mask)
        after = np.zeros_like(mask)
        after[rows[unit.passes(hosts.take(rows), spec)]] = True
        return after
    return mask & unit.passes(hosts, spec)


class _Scale:
    """One weigher's raw values of the hosts that count, and what they add to the totals."""

    def __init__(self, unit: Weigher, multiplier: Values | float, raw: Values) -> None:
        self.unit = unit
        self._weigh_host, self._minval, self._maxval = unit.weigh_host, unit.minval, unit.maxval
        self._multiplier = multiplier
        self._raw = raw
        self._low = self._high = 0.0
        self._is_low_doubtful = self._is_high_doubtful = True
        """Whether an extreme may have moved."""
        self.products: Values = np.empty(0)
        """Empty where all hosts are level."""

    @property
    def is_level(self) -> bool:
        """Whether all hosts that count are equal to this weigher, which then adds nothing."""
        return self._low == self._high

    def put(self, at: int, host: HostState, spec: RequestSpec, *, facts: bool) -> None:
        """Ask the weigher again about a host; ``facts`` is as in :meth:`Survey.judge_again`."""
        if facts and not isinstance(self._multiplier, float):
            self._multiplier[at] = self.unit.weight_multiplier(host)
        before, after = self._raw.item(at), self._weighed(host, spec)
        if before != after:
            self._doubt(before, after)
            self._raw[at] = after

    def insert(self, at: int, host: HostState, spec: RequestSpec) -> None:
        """A host that counts from now on."""
        if not isinstance(self._multiplier, float):
            multiplier = self.unit.weight_multiplier(host)
            self._multiplier = np.insert(self._multiplier, at, multiplier)
        after = self._weighed(host, spec)
        self._doubt(after)
        self._raw = np.insert(self._raw, at, after)
        if not self.is_level:
            self.products = np.insert(self.products, at, 0.0)

    def delete(self, at: int) -> None:
        """A host that counts no longer."""
        self._doubt(self._raw.item(at))
        if not isinstance(self._multiplier, float):
            self._multiplier = np.delete(self._multiplier, at)
        self._raw = np.delete(self._raw, at)
        if not self.is_level:
            self.products = np.delete(self.products, at)

    def settle(self, touched: Sequence[int]) -> bool:
        """Bring the products up to date; whether all of them changed, because an extreme moved."""
        if self._is_low_doubtful or self._is_high_doubtful:
            before = self._low, self._high
            self._find_extremes()
            if before != (self._low, self._high):
                self._spread()
                return True
        if self.is_level:
            return False
        low, width, many = self._low, self._high - self._low, self._multiplier
        for at in touched:
            share = (self._raw.item(at) - low) / width
            self.products[at] = (many if isinstance(many, float) else many.item(at)) * share
        return False

    def spread(self) -> None:
        """Spread the raw values over 0 to 1, and multiply."""
        self._is_low_doubtful = self._is_high_doubtful = True
        self._find_extremes()
        self._spread()

    def _spread(self) -> None:
        if self.is_level:
            self.products = np.empty(0)
            return
        if len(self.products) != len(self._raw):
            self.products = np.empty(len(self._raw))
        spread(self._raw, self._low, self._high, out=self.products)
        if not (isinstance(self._multiplier, float) and self._multiplier == 1.0):
            self.products *= self._multiplier

    def stands_without(self, some: Rows) -> bool:
        """Whether its extremes do not need some of the hosts."""
        raw = self._raw[some]
        inside = (raw > self._low) & (raw < self._high)
        if inside.all():
            return True
        others = np.delete(self._raw, some)
        return extremes(others, self._minval, self._maxval) == (self._low, self._high)

    def without(self, some: Rows) -> _Scale:
        """The same for the other hosts only."""
        many = self._multiplier
        many = many if isinstance(many, float) else np.delete(many, some)
        found = _Scale(self.unit, many, np.delete(self._raw, some))
        found.spread()
        return found

    def _weighed(self, host: HostState, spec: RequestSpec) -> float:
        raw = float(self._weigh_host(host, spec))
        raw = raw if self._minval is None else max(raw, self._minval)
        return raw if self._maxval is None else min(raw, self._maxval)

    def _doubt(self, *some: float) -> None:
        """Values that come or go; what is no number is always in doubt."""
        for raw in some:
            if not raw > self._low:
                self._is_low_doubtful = True
            if not raw < self._high:
                self._is_high_doubtful = True

    def _find_extremes(self) -> None:
        if self._is_low_doubtful:
            self._low = lowest(self._raw, self._minval)
        if self._is_high_doubtful:
            self._high = highest(self._raw, self._maxval)
        self._is_low_doubtful = self._is_high_doubtful = False


class Standing:
    """Survivors and their totals for one class of requests, on one table."""

    def __init__(self, hosts: HostTable, survey: Survey, weighers: Sequence[Weigher]) -> None:
        self.survey = survey
        self._weighers = weighers
        self._scales: list[_Scale] | None = None
        self._using: list[_Scale] = []
        """Those of them that look at what is used of a host."""
        self._rows: Rows | None = None
        self._totals: Values = np.zeros(0)
        self._whole: Standing | None = None
        """That of the class, which this one is a part of."""
        self._marks = hosts.marks()
        self.selections: dict[int, Selection] = {}
        """Hosts of this class that were selected, by row; a host that reports is forgotten."""

    @property
    def rows(self) -> Rows:
        """The survivors' rows, in order."""
        if self._rows is None:
            self._rows = np.flatnonzero(self.survey.survivors)
        return self._rows

    def totals(self, hosts: HostTable, spec: RequestSpec) -> Values:
        """The total weight of each survivor; a lone host is not weighed at all and has 0.

        They are good until the hosts change.
        """
        if len(self.rows) < 2:
            return np.zeros(len(self.rows))
        if self._scales is None:
            self._weigh(hosts, spec)
        return self._totals

    def narrowed(self, hosts: HostTable, spec: RequestSpec, filters: Sequence[Filter]) -> Standing:
        """How the hosts stand towards one request of the class, which has filters of its own."""
        survey = self.survey.narrowed(hosts, spec, filters)
        if survey is self.survey:
            return self
        found = Standing(hosts, survey, self._weighers)
        found._whole, found.selections = self, self.selections
        return found

    def catch_up(self, hosts: HostTable, spec: RequestSpec) -> bool:
        """Judge the hosts again that have changed; False when it is not worth it."""
        touched = hosts.touched_since(self._marks)
        if touched is None or hosts.now_s > self.survey.until_s:
            return False
        changed, used = touched
        if not changed and not used:
            return True
        one_in = _ONE_IN_ROWS if self.survey.looks_at_rows else _ONE_IN
        if len(changed) + len(used) > _FEW + len(hosts) // one_in or not self.survey.passed:
            return False
        if changed:
            self.survey.look_ahead(hosts.take(np.array(list(changed))), spec)
            for row in changed:
                self.selections.pop(row, None)
        touched_rows = changed | used
        concerned = [
            self._judge_again(hosts.state(row), spec, facts=row in changed) for row in touched_rows
        ]
        if self._scales is not None:
            self._settle(touched_rows, self._scales if any(concerned) else self._using)
        self._marks = hosts.marks()
        return True

    def inherit(self, before: Standing, hosts: HostTable) -> None:
        """Take over what an earlier standing of the class knew of hosts that are as they were."""
        touched = hosts.touched_since(before._marks)
        if touched is not None:
            self.selections = before.selections
            for row in touched[0]:
                self.selections.pop(row, None)

    def _weigh(self, hosts: HostTable, spec: RequestSpec) -> None:
        if self._whole is not None:
            self._weigh_as_part(self._whole, self._whole.totals(hosts, spec))
            return
        rows = self.rows
        view: Hosts = hosts if len(rows) == len(hosts) else hosts.take(rows)
        self._scales = []
        for unit in self._weighers:
            multiplier = unit.multiplier(view)
            if isinstance(multiplier, float) and not multiplier:
                continue
            raw = clamp(unit.weigh(view, spec), unit.minval, unit.maxval).astype(float)
            many = multiplier if isinstance(multiplier, float) else multiplier.copy()
            self._scales.append(_Scale(unit, many, raw))
            self._scales[-1].spread()
        self._using = [scale for scale in self._scales if scale.unit.reads_use]
        self._add_up()

    def _weigh_as_part(self, whole: Standing, totals: Values) -> None:
        others = np.flatnonzero(~self.survey.survivors[whole.rows])
        scales = whole._scales or []
        if all(scale.stands_without(others) for scale in scales):
            self._totals = np.delete(totals, others)
            return
        self._scales = [scale.without(others) for scale in scales]
        self._add_up()

    def _add_up(self) -> None:
        if len(self._totals) == len(self.rows):
            self._totals.fill(0.0)
        else:
            self._totals = np.zeros(len(self.rows))
        for scale in self._scales or ():
            if not scale.is_level:
                self._totals += scale.products

    def _judge_again(self, host: HostState, spec: RequestSpec, *, facts: bool) -> bool:
        """Take account of a host that has changed.

        Whether it concerns all scales, not only those that look at use.
        """
        counted = bool(self.survey.survivors[host.row])
        counts = self.survey.judge_again(host, spec, facts=facts)
        if self._scales is None:
            self._rows = self._rows if counts == counted else None
            return True
        at = int(self.rows.searchsorted(host.row))
        if counts and counted:
            for scale in self._scales if facts else self._using:
                scale.put(at, host, spec, facts=facts)
        elif counts:
            self._rows = np.insert(self.rows, at, host.row)
            self._totals = np.insert(self._totals, at, 0.0)
            for scale in self._scales:
                scale.insert(at, host, spec)
        elif counted:
            self._rows = np.delete(self.rows, at)
            self._totals = np.delete(self._totals, at)
            for scale in self._scales:
                scale.delete(at)
        return facts or counts != counted

    def _settle(self, touched: set[int], scales: Sequence[_Scale]) -> None:
        """Bring the totals up to date after some rows were judged again."""
        if len(self.rows) < 2:
            self._scales = None
            return
        survivors = self.survey.survivors
        places = [int(self.rows.searchsorted(row)) for row in touched if survivors[row]]
        spread_anew = [scale.settle(places) for scale in scales]
        if any(spread_anew):
            self._add_up()
            return
        uneven = [scale.products for scale in self._scales or () if not scale.is_level]
        for at in places:
            self._totals[at] = sum([products.item(at) for products in uneven])
