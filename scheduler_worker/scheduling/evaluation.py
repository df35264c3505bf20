"""The result of all units on all hosts for one equivalence class of requests, updated in place.

Between two requests of the same class a handful of hosts has changed, so to evaluate ten thousand
hosts for each request would mostly repeat work. An evaluation keeps which hosts each filter passed
and what each weight scored, and asks the units again, through their row methods, only about the
hosts that changed. The outcome is the same to the last bit as that of evaluating all hosts afresh.

Units whose answers cannot be kept (see ``evaluator.py``) are asked for each request about the
hosts that the others left: :meth:`Evaluation.narrowed`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np

from scheduler_worker.errors import ComputeHostMetricNotFound
from scheduler_worker.model.decisions import Ranked, Selection
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Rows, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.filter_results import FilterResults
from scheduler_worker.scheduling.plugin import Weigher
from scheduler_worker.scheduling.scales import FEW, Scale, WeightEnds

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
        rows = list(map(survivors.item, positions))
        records = list(map(hosts.records.__getitem__, rows))
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
            weighers += [scale.unit.name for scale in scales]
            shares += [
                () if scale.is_constant else tuple(map(scale.products.item, places))
                for scale in scales
            ]
        totals = tuple(map(self._totals.item, positions))
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
            self._facts_changed(hosts, spec, changed)
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

    def _facts_changed(self, hosts: HostTable, spec: RequestSpec, changed: set[int]) -> None:
        """Forget what was read of facts, because these rows have new facts."""
        self.results.facts_changed(hosts.take(np.array(list(changed))), spec)
        for scale in self._scales or ():
            scale.facts_changed()
        for row in changed:
            self.selections.pop(row, None)

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
