"""The result of all units on all hosts for one equivalence class of requests, updated in place.

Between two requests of the same class a handful of hosts has changed, so to evaluate ten thousand
hosts for each request would mostly repeat work. An evaluation keeps which hosts each filter passed
and what each weight scored, and asks the units again, through their row methods, only about the
hosts that changed. The outcome is the same to the last bit as that of evaluating all hosts afresh.

Units whose answers cannot be kept (see ``evaluator.py``) are asked for each request about the
hosts that the others left: :meth:`Evaluation.narrowed`.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from scheduler_worker.errors import ComputeHostMetricNotFound
from scheduler_worker.model.decisions import Diagnosis, FilterStep, Ranked, Selection
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Rows, Values
from scheduler_worker.model.policy_references import PolicyReference
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter, Unit, Weigher
from scheduler_worker.scheduling.scales import FEW, Scale, WeightEnds

EARLIER_INSTANCES = "earlier instances"
"""The first step for a later instance: a host that was rejected for an earlier one stays rejected.
"""


class FilterResults:
    """Which hosts each filter passed, in order; ``masks`` are over all rows of the table.

    ``before`` are the results for an earlier instance, of which ``earlier`` are left. None: all
    hosts. Of these a filter that looks at rows is asked about the ones in ``changed`` only. None:
    all. The diagnosis also names filters that do not apply, as passing all. Filters in ``left_out``
    are not asked: :meth:`narrowed` applies them for one request.
    """

    def __init__(
        self,
        hosts: HostTable,
        spec: RequestSpec,
        filters: Sequence[Filter],
        *,
        before: FilterResults | None = None,
        earlier: Mask | None = None,
        changed: Mask | None = None,
        left_out: Collection[Unit] = (),
        policy: PolicyReference | None = None,
    ) -> None:
        self._policy = policy
        is_momentary = before is not None and before.diagnosis().momentary
        self._momentary = {EARLIER_INSTANCES} if is_momentary else set()
        """The steps that refuse for what may be otherwise a moment later."""
        self._filters: list[Filter] = []
        self._using: list[Filter] = []
        """The filters that look at what is used of a host."""
        self.masks = [np.ones(len(hosts), bool) if earlier is None else earlier]
        self._counts = [int(np.count_nonzero(self.masks[0]))]
        self._steps = [] if earlier is None else [(EARLIER_INSTANCES, 0)]
        """The name of each filter, and the index of the mask that was left after it."""
        self._quiet = {EARLIER_INSTANCES}
        """The steps that a diagnosis names only where they reject."""
        self.limits: dict[Filter, dict[int, dict[str, Any]]] = (
            {} if before is None else before.limits.copy()
        )
        """What each filter in Nova's signature has left on hosts, by row."""
        self._checks: list[tuple[Filter, Callable[[int], bool]]] | None = None
        """Of :attr:`_using`, each with a function of the row; until facts of hosts change."""
        self._once: list[int] = []
        """The indexes of the masks after filters that run once per request and look at use."""
        for unit in filters:
            if not self._counts[-1]:
                break
            if unit.applies(spec) and unit not in left_out:
                self.masks.append(self._left_by(unit, hosts, spec, self.masks[-1], changed))
                self._counts.append(int(np.count_nonzero(self.masks[-1])))
                self._filters.append(unit)
                if unit.reads_use:
                    self._using.append(unit)
                    if unit.run_filter_once_per_request:
                        self._once.append(len(self.masks) - 1)
            self._steps.append((unit.name, len(self.masks) - 1))
            if unit.runs_on_forced_hosts:
                self._quiet.add(unit.name)
            if unit.momentary:
                self._momentary.add(unit.name)
        self._diagnosed: tuple[list[int], Diagnosis] | None = None
        """The counts of the last diagnosis, and the diagnosis."""
        self.valid_until_s = float("inf")
        """Until when the results hold if no host changes; seconds of the store's clock."""
        self.update_expiry(hosts, spec)

    def _left_by(
        self,
        unit: Filter,
        hosts: HostTable,
        spec: RequestSpec,
        mask: Mask,
        changed: Mask | None = None,
    ) -> Mask:
        if not unit.leaves_limits:
            return left_by(unit, hosts, spec, mask, changed)
        # What filters left before is not this one's.
        hosts.take_limits()
        passing = left_by(unit, hosts, spec, mask, changed)
        found = hosts.take_limits()
        if changed is not None:
            before = self.limits.get(unit, {}).items()
            found.update((row, limits) for row, limits in before if not changed[row])
        self.limits[unit] = found
        return passing

    def update_expiry(self, hosts: Hosts, spec: RequestSpec) -> None:
        """Shorten the validity for hosts whose results expire earlier than other hosts'."""
        ends_s = (unit.lasts_until_s(hosts, spec) for unit in self._filters)
        self.valid_until_s = min([self.valid_until_s, *ends_s])

    @property
    def leaves_limits(self) -> bool:
        """Whether some filter leaves limits on hosts, which it does one by one."""
        return any(unit.leaves_limits for unit in self._filters)

    @property
    def size(self) -> int:
        """Bytes of the masks."""
        return sum([mask.nbytes for mask in self.masks])

    @property
    def survivors(self) -> Mask:
        """The hosts that passed all filters."""
        return self.masks[-1]

    @property
    def passed(self) -> int:
        """How many hosts passed all filters."""
        return self._counts[-1]

    def diagnosis(self) -> Diagnosis:
        """How many hosts each filter passed."""
        if self._diagnosed is None or self._diagnosed[0] != self._counts:
            self._diagnosed = self._counts.copy(), self._diagnosis()
        return self._diagnosed[1]

    def _diagnosis(self) -> Diagnosis:
        total = before = len(self.masks[0])
        steps: list[FilterStep] = []
        for name, at in self._steps:
            after = self._counts[at]
            if after < before or name not in self._quiet:
                steps.append(FilterStep(name, before, after))
            if not after:
                break
            before = after
        momentary = any(
            step.hosts_out < step.hosts_in for step in steps if step.name in self._momentary
        )
        return Diagnosis(
            hosts=total, filters=tuple(steps), policy=self._policy, momentary=momentary
        )

    def rejected_by(self, row: int) -> str | None:
        """The first filter that rejected a row."""
        return next((name for name, at in self._steps if not self.masks[at][row]), None)

    def rejected_once(self, row: int) -> bool:
        """Whether a filter rejected a row that runs once per request and looks at use."""
        return any(self.masks[at - 1][row] and not self.masks[at][row] for at in self._once)

    def narrowed(
        self,
        hosts: HostTable,
        spec: RequestSpec,
        quick: Sequence[Filter],
        undeclared: Sequence[Filter],
    ) -> FilterResults:
        """Results for one request, with the filters that were left out; self if none rejects.

        ``quick`` filters are asked about all hosts at once and keep their place in the diagnosis;
        ``undeclared`` filters are asked last, about the hosts that are left.
        """
        results = self
        for unit in quick:
            if unit.applies(spec):
                results = results._without(unit.name, ~unit.passes(hosts, spec))
        for unit in undeclared:
            if results.passed:
                if unit.leaves_limits:
                    results = results._copied(results.masks, results._steps)
                passing = results._left_by(unit, hosts, spec, results.survivors)
                results = results._and(unit.name, passing)
        return results

    def _without(self, name: str, rejected: Mask) -> FilterResults:
        place = next((at for at, (steps, _) in enumerate(self._steps) if steps == name), None)
        if place is None or not (self.masks[at := self._steps[place][1]] & rejected).any():
            return self
        # A host is rejected once: out of this mask, it is in none of the later ones.
        masks = [*self.masks[: at + 1], *(mask & ~rejected for mask in self.masks[at:])]
        steps = self._steps[:place] + [(step, at + 1) for step, at in self._steps[place:]]
        results = self._copied(masks, steps)
        results._once = [step + (step > at) for step in self._once]
        return results

    def _and(self, name: str, passing: Mask) -> FilterResults:
        if int(np.count_nonzero(passing)) == self.passed:
            return self
        steps = [step for step in self._steps if step[0] != name]
        return self._copied([*self.masks, passing], [*steps, (name, len(self.masks))])

    def _copied(self, masks: list[Mask], steps: list[tuple[str, int]]) -> FilterResults:
        # A class shares its results with its requests: what is of one request goes into a copy.
        results = copy.copy(self)
        results.masks, results._steps = masks, steps
        results._counts = [int(np.count_nonzero(mask)) for mask in masks]
        results.limits = self.limits.copy()
        return results

    def update_host(self, host: HostState, spec: RequestSpec, *, facts: bool) -> bool:
        """Ask the filters again about one host; returns whether it passes.

        ``facts``: more than its reservations and instances changed.
        """
        row = host.row
        # The common case by far: a survivor took one more instance and still has room.
        if not facts and self.survivors[row] and self._still_passes(host, spec):
            return True
        before = passes = bool(self.masks[0][row])
        for at, unit in enumerate(self._filters, 1):
            after = bool(self.masks[at][row])
            if passes:
                # A host that this filter was asked about before, and that changed in its use only,
                # gets the same answer from a filter that does not look at use. One that an earlier
                # filter rejected before was not asked about at all.
                is_known = before and not facts and not unit.reads_use
                passes = after if is_known else self._passes(unit, host, spec)
            if passes != after:
                self.masks[at][row] = passes
                self._counts[at] += 1 if passes else -1
            before = after
        return passes

    def update_rows(self, hosts: HostTable, spec: RequestSpec, rows: Rows, facts: Mask) -> Mask:
        """Ask the filters again about some hosts at once; returns which pass.

        The outcome is that of :meth:`update_host` for each. ``facts``: for which of them more than
        reservations and instances changed. No filter leaves limits.
        """
        view = hosts.take(rows)
        before = passes = self.masks[0][rows]
        for at, unit in enumerate(self._filters, 1):
            after = self.masks[at][rows]
            passing = after & passes
            asked = passes if unit.reads_use else passes & (facts | ~before)
            if unit.looks_at_rows:
                places = np.flatnonzero(asked)
                if len(places):
                    passing[places] = unit.passes(view.take(places), spec)
            elif asked.any():
                passing = np.where(asked, unit.passes(view, spec), passing)
            self._counts[at] += int(np.count_nonzero(passing)) - int(np.count_nonzero(after))
            self.masks[at][rows] = passing
            before, passes = after, passing
        return passes

    def _still_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Whether a survivor still passes the filters that look at use."""
        if self._checks is None:
            self._checks = [(unit, unit.row_check(host.table, spec)) for unit in self._using]
        for unit, check in self._checks:
            passes = self._passes(unit, host, spec) if unit.leaves_limits else check(host.row)
            if not passes:
                return False
        return True

    def facts_changed(self) -> None:
        """Facts of hosts have changed: nothing that was read of them holds."""
        self._checks = None

    def _passes(self, unit: Filter, host: HostState, spec: RequestSpec) -> bool:
        if not unit.leaves_limits:
            return unit.host_passes(host, spec)
        host.limits = {}
        passes = unit.host_passes(host, spec)
        self.limits.setdefault(unit, {})[host.row] = host.limits
        return passes


def left_by(
    unit: Filter, hosts: HostTable, spec: RequestSpec, mask: Mask, changed: Mask | None = None
) -> Mask:
    """The hosts of ``mask`` that pass; one that looks at rows is asked only about ``changed``."""
    if not unit.looks_at_rows:
        return mask & unit.passes(hosts, spec)
    asked = mask if changed is None else mask & changed
    rows = np.flatnonzero(asked)
    after = mask & ~asked
    if len(rows):
        after[rows[unit.passes(hosts.take(rows), spec)]] = True
    return after


_BLOCK = 32_768
"""So many totals are added up at a time: they stay in the processor's cache."""
_ONE_IN = 20
"""If more than one host in twenty has changed, an evaluation of all hosts is cheaper."""


class Evaluation:
    """The survivors of the filters and their total scores, on one table."""

    def __init__(
        self,
        hosts: HostTable,
        results: FilterResults,
        weights: Sequence[Weigher],
        scale: type[Scale],
    ) -> None:
        self.results = results
        self._weights = weights
        self._scale = scale
        self._scales: list[Scale] | None = None
        self._using: list[Scale] = []
        """The scales whose weights look at what is used of a host."""
        self._rows: Rows | None = None
        self._totals: Values = np.zeros(0)
        self._parent: Evaluation | None = None
        """The evaluation of the class, where this one is narrowed to a request."""
        self._further: list[Scale] = []
        """The scales of the request's own weights, where it is."""
        self._ends: WeightEnds | None = None
        self._best: tuple[bytes, float] | None = None
        """What :meth:`ends` and :meth:`best` returned last, until a host changes."""
        self._marks = hosts.marks()
        self.size = results.size
        """Bytes of its arrays, the weights' included once they are weighed."""
        self.selections: dict[int, Selection] = {}
        """Hosts of this class that were selected, by row; a host that reports is forgotten."""
        self.is_of_later_instance = False
        """Whether it continues the evaluation for an earlier instance, without the filters that run
        once per request. Such an evaluation is never cached."""

    @property
    def rows(self) -> Rows:
        """The survivors' rows, in order."""
        if self._rows is None:
            self._rows = np.flatnonzero(self.results.survivors)
        return self._rows

    def totals(self, hosts: HostTable, spec: RequestSpec) -> Values:
        """The total score of each survivor, valid until the hosts change.

        A lone survivor is not weighed, as in Nova, and has 0.
        """
        if (count := len(self.rows)) < 2:
            return np.zeros(count)
        if self._scales is None:
            self._weigh(hosts, spec)
        return self._totals

    def ends(self, hosts: HostTable, spec: RequestSpec) -> WeightEnds | None:
        """The ends of its scales; None: its totals cannot be compared by them."""
        if self._ends is None and self._parent is None and len(self.totals(hosts, spec)) > 1:
            self._ends = WeightEnds.of(self._scales or ())
        return self._ends

    def best(self, ends: Values) -> float:
        """The best total, if the scores of each weight were spread between these ends."""
        key = ends.tobytes()
        if self._best is None or self._best[0] != key:
            totals = np.zeros(len(self.rows))
            for scale, (low, high) in zip(self._scales or (), ends.tolist(), strict=True):
                # A weight for which all hosts are equal adds nothing.
                if low != high:
                    totals += scale.between(low, high)
            self._best = key, float(totals.max())
        return self._best[1]

    def ranked(self, hosts: HostTable, positions: Sequence[int]) -> Ranked:
        """The survivors at these positions in :attr:`rows`, with what makes up their totals.

        :meth:`totals` was read. It is done for every decision that is kept, of a few hosts: taking
        single numbers costs a fraction of indexing arrays by arrays.
        """
        survivors = self.rows
        rows = [survivors.item(at) for at in positions]
        records = [hosts.records[row] for row in rows]
        names = tuple([record.host for record in records])
        nodenames = tuple([record.nodename for record in records])
        if len(survivors) < 2:
            return Ranked((), names, nodenames, (0.0,) * len(rows))
        weighers: list[str] = []
        shares: list[tuple[float, ...]] = []
        for evaluation, scales in self._scales_by_rows():
            places = positions
            if evaluation is not self:
                places = evaluation.rows.searchsorted(rows).tolist()
            for scale in scales:
                weighers.append(scale.unit.name)
                products = scale.products
                nothing = scale.is_constant
                shares.append(() if nothing else tuple([products.item(at) for at in places]))
        totals = tuple([self._totals.item(at) for at in positions])
        return Ranked(tuple(weighers), names, nodenames, totals, tuple(shares))

    def _scales_by_rows(self) -> Iterator[tuple[Evaluation, list[Scale]]]:
        """All scales that make up the totals, with the evaluation over whose rows they are."""
        if self._parent is not None and not self._scales:
            yield self._parent, self._parent._scales or []
        yield self, [*(self._scales or ()), *self._further]

    def narrowed(
        self,
        hosts: HostTable,
        spec: RequestSpec,
        results: FilterResults,
        weights: Sequence[Weigher],
    ) -> Evaluation:
        """The evaluation of one request of the class: fewer survivors, and further weights."""
        if results is self.results and not weights:
            return self
        evaluation = Evaluation(hosts, results, weights, self._scale)
        evaluation._parent, evaluation.selections = self, self.selections
        return evaluation

    def catch_up(self, hosts: HostTable, spec: RequestSpec) -> bool:
        """Update the hosts that have changed; False: it takes an evaluation of all hosts."""
        touched = hosts.touched_since(self._marks)
        if touched is None or hosts.now_s > self.results.valid_until_s:
            return False
        changed, used = touched
        if not (rows := changed | used):
            return True
        # To evaluate all hosts in arrays costs less than so many one by one.
        if len(changed) + len(used) > FEW + len(hosts) // _ONE_IN or not self.results.passed:
            return False
        if changed:
            self.results.facts_changed()
            for scale in self._scales or ():
                scale.score_of_row = None
            # Their heartbeats are new: the results may now expire sooner than before.
            self.results.update_expiry(hosts.take(np.array(list(changed))), spec)
            for row in changed:
                self.selections.pop(row, None)
        self._ends = self._best = None
        # Filters leave limits host by host, which an array operation would lose.
        if len(rows) <= FEW or self.results.leaves_limits:
            updated = [self._update_host(hosts.state(row), spec, changed) for row in rows]
            concerned = any(updated)
        else:
            concerned = self._update_hosts(hosts, spec, sorted(rows), changed)
        if self._scales is not None:
            self._update_totals(rows, self._scales if concerned else self._using)
        self._marks = hosts.marks()
        return True

    def changed(self, hosts: HostTable) -> Mask | None:
        """The hosts that were touched since this was evaluated; None: any may have been."""
        touched = hosts.touched_since(self._marks)
        if touched is None:
            return None
        mask = np.zeros(len(hosts), bool)
        mask[[*touched[0], *touched[1]]] = True
        return mask

    def inherit(self, before: Evaluation, hosts: HostTable) -> None:
        """Take over the selections of hosts that did not change from an outdated evaluation."""
        touched = hosts.touched_since(before._marks)
        if touched is not None:
            self.selections = before.selections
            for row in touched[0]:
                self.selections.pop(row, None)

    def _weigh(self, hosts: HostTable, spec: RequestSpec) -> None:
        if self._parent is not None:
            try:
                totals = self._parent.totals(hosts, spec)
            except ComputeHostMetricNotFound:
                pass  # the host without the metric may not be a survivor of this request
            else:
                self._weigh_as_part(hosts, spec, self._parent, totals)
                return
        rows = self.rows
        view: Hosts = hosts if len(rows) == len(hosts) else hosts.take(rows)
        units = (*self._parent._weights, *self._weights) if self._parent else self._weights
        self._scales = self._scales_of(view, spec, units)
        self._using = [scale for scale in self._scales if scale.unit.reads_use]
        # Rows and totals, and what each scale keeps.
        self.size = self.results.size + 2 * rows.nbytes + sum([each.size for each in self._scales])
        self._add_up()

    def _scales_of(self, view: Hosts, spec: RequestSpec, units: Sequence[Weigher]) -> list[Scale]:
        scales = (self._scale.of(unit, view, spec) for unit in units)
        return [scale for scale in scales if scale is not None]

    def _weigh_as_part(
        self, hosts: HostTable, spec: RequestSpec, whole: Evaluation, totals: Values
    ) -> None:
        # Normalised scores depend on which hosts are left, so the totals of the class can be taken
        # over only if no scale changes without the hosts that are not.
        others = np.flatnonzero(~self.results.survivors[whole.rows])
        scales = whole._scales or []
        if all(scale.unchanged_without(others) for scale in scales):
            self._scales, self._totals = [], np.delete(totals, others)
        else:
            self._scales = [scale.without(others) for scale in scales]
            self._add_up()
        rows = self.rows
        view: Hosts = hosts if len(rows) == len(hosts) else hosts.take(rows)
        self._further = self._scales_of(view, spec, self._weights)
        for scale in self._further:
            if not scale.is_constant:
                self._totals += scale.products

    def _add_up(self) -> None:
        if len(self._totals) != len(self.rows):
            self._totals = np.empty(len(self.rows))
        products = [scale.products for scale in self._scales or () if not scale.is_constant]
        for start in range(0, len(self._totals), _BLOCK):
            totals = self._totals[start : start + _BLOCK]
            totals.fill(0.0)
            # In the order of the weights, as when all are evaluated afresh: floating-point sums
            # depend on it, and ties between hosts on their last bit.
            for product in products:
                totals += product[start : start + _BLOCK]

    def _update_host(self, host: HostState, spec: RequestSpec, changed: set[int]) -> bool:
        """Update one host; returns whether scales that do not look at use changed, too."""
        facts = host.row in changed
        counted = bool(self.results.survivors[host.row])
        counts = self.results.update_host(host, spec, facts=facts)
        if self._scales is None:
            self._rows = self._rows if counts == counted else None
            return True
        at = self._place(host.row)
        if counts and counted:
            if facts:
                for scale in self._scales:
                    scale.put(at, host, spec)
            else:
                for scale in self._using:
                    scale.put_use(at, host, spec)
        elif counts:
            self._insert(at, host, spec)
        elif counted:
            self._remove(at)
        return facts or counts != counted

    def _update_hosts(
        self, hosts: HostTable, spec: RequestSpec, touched: list[int], changed: set[int]
    ) -> bool:
        """Update some hosts at once, as :meth:`_update_host` does each."""
        rows = np.array(touched)
        facts = np.array([row in changed for row in touched])
        counted = self.results.survivors[rows]
        counts = self.results.update_rows(hosts, spec, rows, facts)
        concerned = bool(changed) or bool((counted != counts).any())
        if self._scales is None:
            self._rows = None if concerned else self._rows
            return True
        # Those that leave or come first: they move the places of all behind them.
        for row in rows[counted & ~counts].tolist():
            self._remove(self._place(row))
        for row in rows[counts & ~counted].tolist():
            self._insert(self._place(row), hosts.state(row), spec)
        for scales, which in ((self._using, counted & counts), (self._scales, facts & counted)):
            stayed = rows[which & counts]
            if len(stayed):
                view, places = hosts.take(stayed), self.rows.searchsorted(stayed)
                for scale in scales:
                    scale.put_all(places, view, spec)
        return concerned

    def _place(self, row: int) -> int:
        """The position of a row among the survivors, or where it would be inserted.

        numpy's search releases the interpreter lock, which other threads wait for: to get it back
        costs many times as much as the search.
        """
        return bisect_left(self.rows.data, row)

    def _insert(self, at: int, host: HostState, spec: RequestSpec) -> None:
        self._rows = np.insert(self.rows, at, host.row)
        # Its total is added up with those of the other touched rows.
        self._totals = np.insert(self._totals, at, 0.0)
        for scale in self._scales or ():
            scale.insert(at, host, spec)

    def _remove(self, at: int) -> None:
        self._rows = np.delete(self.rows, at)
        self._totals = np.delete(self._totals, at)
        for scale in self._scales or ():
            scale.delete(at)

    def _update_totals(self, touched: set[int], scales: Sequence[Scale]) -> None:
        if len(self.rows) < 2:
            self._scales = None
            return
        survivors = self.results.survivors
        rows = [row for row in touched if survivors[row]]
        is_few = len(rows) <= FEW
        places = list(map(self._place, rows)) if is_few else self.rows.searchsorted(rows)
        spread_anew = [scale.update_products(places) for scale in scales]
        if any(spread_anew):
            self._add_up()
            return
        products = [scale.products for scale in self._scales or () if not scale.is_constant]
        if is_few:
            for at in places:
                total = 0.0  # in the order of _add_up(), and not by sum(), which compensates errors
                for product in products:
                    total += product.item(at)
                self._totals[at] = total
            return
        totals = np.zeros(len(places))
        for product in products:
            totals += product[places]
        self._totals[places] = totals
