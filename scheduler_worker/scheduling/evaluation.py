"""The result of all units on all hosts for one equivalence class of requests, updated in place.

Between two requests of the same class a handful of hosts has changed, so to evaluate ten thousand
hosts for each request would mostly repeat work. An evaluation keeps which hosts each filter passed
and what each weight scored, and asks the units again, through their row methods, only about the
hosts that changed. The outcome is the same to the last bit as that of evaluating all hosts afresh.

Units whose answers cannot be kept (see ``equivalence.py``) are asked for each request about the
hosts that the others left: :meth:`Evaluation.narrowed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from scheduler_worker.errors import ComputeHostMetricNotFound
from scheduler_worker.model.decisions import Ranked, Selection
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Rows, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.filter_results import FilterResults
from scheduler_worker.scheduling.plugin import Weigher
from scheduler_worker.scheduling.scales import Scale

_FEW, _ONE_IN, _ONE_IN_ROWS = 8, 500, 20
"""Up to how many changed hosts are updated one by one: ``_FEW``, and one in so many of all hosts.
Asking about one host costs much more than its share of a column operation, so with more changes it
is cheaper to evaluate all hosts afresh. A filter that looks at rows costs as much either way, so
where there is one the limit is higher."""


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
        self._marks = hosts.marks()
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
        if len(self.rows) < 2:
            return np.zeros(len(self.rows))
        if self._scales is None:
            self._weigh(hosts, spec)
        return self._totals

    def ranked(self, hosts: HostTable, positions: Sequence[int]) -> Ranked:
        """The survivors at these positions in :attr:`rows`, with what makes up their totals.

        :meth:`totals` was read. It is done for every decision that is kept, of a few hosts: taking
        single numbers costs a fraction of indexing arrays by arrays.
        """
        rows = [self.rows.item(at) for at in positions]
        records = [hosts.records[row] for row in rows]
        names = tuple([each.host for each in records])
        nodenames = tuple([each.nodename for each in records])
        if len(self.rows) < 2:
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
        found = Evaluation(hosts, results, weights, self._scale)
        found._parent, found.selections = self, self.selections
        return found

    def catch_up(self, hosts: HostTable, spec: RequestSpec) -> bool:
        """Update the hosts that have changed; False: it takes an evaluation of all hosts."""
        touched = hosts.touched_since(self._marks)
        if touched is None or hosts.now_s > self.results.valid_until_s:
            return False
        changed, used = touched
        if not changed and not used:
            return True
        one_in = _ONE_IN_ROWS if self.results.looks_at_rows else _ONE_IN
        if len(changed) + len(used) > _FEW + len(hosts) // one_in or not self.results.passed:
            return False
        if changed:
            # Their heartbeats are new: the results may now expire sooner than before.
            self.results.update_expiry(hosts.take(np.array(list(changed))), spec)
            for row in changed:
                self.selections.pop(row, None)
        touched_rows = changed | used
        concerned = [
            self._update_host(hosts.state(row), spec, facts=row in changed) for row in touched_rows
        ]
        if self._scales is not None:
            self._update_totals(touched_rows, self._scales if any(concerned) else self._using)
        self._marks = hosts.marks()
        return True

    def changed(self, hosts: HostTable) -> Mask | None:
        """The hosts that were touched since this was evaluated; None: any may have been."""
        touched = hosts.touched_since(self._marks)
        if touched is None:
            return None
        found = np.zeros(len(hosts), bool)
        found[[*touched[0], *touched[1]]] = True
        return found

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
        # In the order of the weights, as when all are evaluated afresh: floating-point sums depend
        # on it, and ties between hosts on their last bit.
        if len(self._totals) == len(self.rows):
            self._totals.fill(0.0)
        else:
            self._totals = np.zeros(len(self.rows))
        for scale in self._scales or ():
            if not scale.is_constant:
                self._totals += scale.products

    def _update_host(self, host: HostState, spec: RequestSpec, *, facts: bool) -> bool:
        """Update one host; returns whether scales that do not look at use changed, too."""
        counted = bool(self.results.survivors[host.row])
        counts = self.results.update_host(host, spec, facts=facts)
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

    def _update_totals(self, touched: set[int], scales: Sequence[Scale]) -> None:
        """Update the totals after some hosts were updated."""
        if len(self.rows) < 2:
            self._scales = None
            return
        survivors = self.results.survivors
        places = [int(self.rows.searchsorted(row)) for row in touched if survivors[row]]
        spread_anew = [scale.update_products(places) for scale in scales]
        if any(spread_anew):
            self._add_up()
            return
        uneven = [scale.products for scale in self._scales or () if not scale.is_constant]
        for at in places:
            self._totals[at] = sum([products.item(at) for products in uneven])
