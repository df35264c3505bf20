"""How all hosts stand towards one class of requests, kept up to date host by host.

Judging ten thousand hosts anew for each request would do the same work again and again: between two
requests of the same kind a handful of hosts has changed. So what each filter let through and what
each weigher said is kept, and only the hosts that were touched since are judged again, through
the row face of the units. The outcome is the same to the last bit.

It can be kept where every unit tells what it reads of the request (:meth:`Unit.reads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scheduler_worker.model.decisions import Diagnosis, FilterStep, Selection
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Rows, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.normalize import clamp, normalize
from scheduler_worker.scheduling.plugin import Filter, Weigher

_FEW, _ONE_IN = 5, 1000
"""A host costs so much to judge again that all are judged anew when more than a few changed."""


class Survey:
    """Which hosts came through which filter; ``masks`` are over all rows of the table.

    ``filters`` are those that apply; the diagnosis also names those that do not, as passing all.
    """

    def __init__(
        self,
        hosts: HostTable,
        spec: RequestSpec,
        filters: Sequence[Filter],
        *,
        first: tuple[str, Mask],
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
            if unit.applies(spec):
                self.masks.append(_applied(unit, hosts, spec, self.masks[-1]))
                self._counts.append(int(np.count_nonzero(self.masks[-1])))
                self._filters.append(unit)
                if unit.reads_use:
                    self._using.append(unit)
            self._shown.append((unit.name, len(self.masks) - 1))
            if unit.runs_on_forced_hosts:
                self._quiet.add(unit.name)
        self.until_s = min(
            (unit.lasts_until_s(hosts, spec) for unit in self._filters), default=np.inf
        )

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

    def judge_again(self, host: HostState, spec: RequestSpec, *, facts: bool) -> bool:
        """Ask the filters again about one host; whether it comes through.

        ``facts`` tells that more than its promises has changed.
        """
        row = host.row
        if (
            not facts
            and self.survivors[row]
            and all(unit.host_passes(host, spec) for unit in self._using)
        ):
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


def _applied(unit: Filter, hosts: HostTable, spec: RequestSpec, mask: Mask) -> Mask:
    if unit.looks_at_rows:
        rows = np.flatnonzero(mask)
        after = np.zeros_like(mask)
        after[rows[unit.passes(hosts.take(rows), spec)]] = True
        return after
    return mask & unit.passes(hosts, spec)


class _Scale:
    """One weigher's raw values of all rows that count, and what they add to the totals."""

    def __init__(self, unit: Weigher, multiplier: Values | float, raw: Values) -> None:
        self.unit = unit
        self._multiplier = multiplier if isinstance(multiplier, float) else multiplier.copy()
        self._raw = raw
        self._low = self._high = 0.0
        self.products: Values = np.zeros(len(raw))

    def spread(self, rows: Rows) -> None:
        """Spread the raw values of the rows over 0 to 1, and multiply."""
        raw = self._of_rows(rows)
        self._low, self._high = self._extremes(raw)
        if self.is_level:
            self.products = np.zeros(len(self._raw))
            return
        share = normalize(raw, self.unit.minval, self.unit.maxval)
        if len(rows) == len(self._raw):
            self.products = self._multiplier * share
        else:
            self.products[rows] = self._multiplier_of(rows) * share

    @property
    def is_level(self) -> bool:
        """Whether all rows that count are equal to this weigher, which then adds nothing."""
        return self._low == self._high

    def judge_again(
        self, host: HostState, spec: RequestSpec, rows: Rows, *, counted: bool, facts: bool
    ) -> bool:
        """Ask the weigher again about a host; ``rows`` are those that count, this one among them.

        False when all must be spread anew, because an extreme has moved.
        """
        row, unit = host.row, self.unit
        before = self._raw.item(row)
        after = float(unit.weigh_host(host, spec))
        after = after if unit.minval is None else max(after, unit.minval)
        after = after if unit.maxval is None else min(after, unit.maxval)
        if facts and not isinstance(self._multiplier, float):
            self._multiplier[row] = unit.weight_multiplier(host)
        elif counted and before == after:
            return True
        self._raw[row] = after
        is_inside = self._low < after < self._high and (
            not counted or self._low < before < self._high
        )
        if not is_inside and self._extremes(self._of_rows(rows)) != (self._low, self._high):
            return False
        width = self._high - self._low
        share = (after - self._low) / width if width else 0.0
        self.products[row] = self._multiplier_of(row) * share
        return True

    def drop(self, host: HostState, rows: Rows) -> bool:
        """A host counts no longer; False when all must be spread anew."""
        before = float(self._raw[host.row])
        if self._low < before < self._high:
            return True
        return self._extremes(self._of_rows(rows)) == (self._low, self._high)

    def _of_rows(self, rows: Rows) -> Values:
        return self._raw if len(rows) == len(self._raw) else self._raw[rows]

    def _extremes(self, raw: Values) -> tuple[float, float]:
        low, high = self.unit.minval, self.unit.maxval
        return (
            float(raw.min()) if low is None else low,
            float(raw.max()) if high is None else high,
        )

    def _multiplier_of(self, rows: Any) -> Any:
        return self._multiplier if isinstance(self._multiplier, float) else self._multiplier[rows]


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
        """The total weight of each survivor; a lone host is not weighed at all and has 0."""
        rows = self.rows
        if len(rows) < 2:
            return np.zeros(len(rows))
        if self._scales is None:
            self._weigh(hosts, spec)
        return self._totals if len(rows) == len(hosts) else self._totals[rows]

    def catch_up(self, hosts: HostTable, spec: RequestSpec) -> bool:
        """Judge the hosts again that have changed; False when it is not worth it."""
        touched = hosts.touched_since(self._marks)
        if touched is None or hosts.now_s > self.survey.until_s:
            return False
        changed, used = touched
        if not changed and not used:
            return True
        if len(changed) + len(used) > _FEW + len(hosts) // _ONE_IN or not self.survey.passed:
            return False
        for row in changed:
            self.selections.pop(row, None)
        for row in changed | used:
            self._judge_again(hosts.state(row), spec, facts=row in changed, hosts=hosts)
        self._marks = hosts.marks()
        return True

    def _weigh(self, hosts: HostTable, spec: RequestSpec) -> None:
        rows = self.rows
        view: Hosts = hosts if len(rows) == len(hosts) else hosts.take(rows)
        self._scales = []
        for unit in self._weighers:
            multiplier = unit.multiplier(hosts)
            if isinstance(multiplier, float) and not multiplier:
                continue
            raw = clamp(unit.weigh(view, spec), unit.minval, unit.maxval).astype(float)
            if view is not hosts:
                raw = _scattered(raw, rows, len(hosts))
            scale = _Scale(unit, multiplier, raw)
            scale.spread(rows)
            self._scales.append(scale)
        self._using = [scale for scale in self._scales if scale.unit.reads_use]
        self._add_up(len(hosts))

    def _add_up(self, count: int) -> None:
        totals = np.zeros(count)
        for scale in self._scales or ():
            if not scale.is_level:
                totals += scale.products
        self._totals = totals

    def _judge_again(
        self, host: HostState, spec: RequestSpec, *, facts: bool, hosts: HostTable
    ) -> None:
        counted = bool(self.survey.survivors[host.row])
        counts = self.survey.judge_again(host, spec, facts=facts)
        if counts != counted:
            self._rows = None
            if len(self.rows) < 2:
                self._scales = None
        if self._scales is None or not (counts or counted):
            return
        if counts:
            kept = [
                scale.judge_again(host, spec, self.rows, counted=counted, facts=facts)
                for scale in (self._scales if facts or not counted else self._using)
            ]
        else:
            kept = [scale.drop(host, self.rows) for scale in self._scales]
        if all(kept):
            row = host.row
            self._totals[row] = sum([scale.products.item(row) for scale in self._scales])
            return
        for scale in self._scales:
            scale.spread(self.rows)
        self._add_up(len(hosts))


def _scattered(values: Values, rows: Rows, count: int) -> Values:
    """The values in their rows, of so many."""
    spread = np.zeros(count)
    spread[rows] = values
    return spread
