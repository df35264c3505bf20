"""From hosts and a request to a decision: filter, weigh, pick, consume, again for each instance.

This file does what Nova's filter scheduler does after it has its hosts, in the same order:
destination, ignored and forced hosts first; then the enabled filters, each over the survivors of
the one before; then the weighers; then the choice. It changes nothing but the table it is given,
in which the claims it returns are consumed: whoever calls it owns that table and takes the claims
back if they cannot be kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.aggregates import zones
from scheduler_worker.model.claims import Claim, PendingResource
from scheduler_worker.model.decisions import Decision, Diagnosis, Selection
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import HostState, Mask, Promise, Rows
from scheduler_worker.model.requests import Flavor, RequestSpec, SchedulerLimits
from scheduler_worker.scheduling.classes import Classes
from scheduler_worker.scheduling.numa.hosts import taken_by
from scheduler_worker.scheduling.numa.requests import with_page_sizes
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pci.requests import providers_of
from scheduler_worker.scheduling.plugin import Filter, Weigher
from scheduler_worker.scheduling.prefilters.units import RequestFilters, ResourceProviders
from scheduler_worker.scheduling.ranking import Dice, Ranking
from scheduler_worker.scheduling.standing import Standing, Survey

NOT_ENOUGH_HOSTS = "There are not enough hosts available."
_KEPT_BYTES = 64 * 2**20
_BYTES_A_HOST = 128
_FEWEST_KEPT = 2
"""How much of a cluster's standings is kept, what a host takes in one, and how many at least."""


class Request(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is to be decided: ``spec`` for each of ``instance_uuids``."""

    spec: RequestSpec
    instance_uuids: tuple[str, ...]
    request_id: str = ""
    num_alternates: int = 0
    priority: int = 0
    """From -100 to 100; how the caller ranks it among others that wait."""


DESTINATION = "requested destination"
"""How explanations name the step before the filters."""
EARLIER_INSTANCES = "earlier instances"
"""The same step for a later instance: hosts that were dropped for an earlier one stay dropped."""


class Pipeline:
    """The compiled policy of a cluster: its filters, weighers and the choice among the best."""

    def __init__(
        self, filters: Sequence[Filter], weighers: Sequence[Weigher], options: Options
    ) -> None:
        self._providers = ResourceProviders(options)
        self.prefilters: tuple[Filter, ...] = (RequestFilters(options), self._providers)
        self.filters = tuple(filters)
        self._by_cost = tuple(sorted(self.filters, key=lambda unit: unit.looks_at_rows))
        """Who looks at rows one by one looks at those only that the others left."""
        self.weighers = tuple(weighers)
        self.options = options
        self._packs = options.packing_host_numa_cells_allocation_strategy
        units = (*self.prefilters, *self.filters, *self.weighers)
        self._narrowing = [unit for unit in self.filters if unit.of_one_request]
        self._classes = Classes(
            unit for unit in units if unit.reads_request and unit not in self._narrowing
        )
        self._limiting = [
            unit
            for unit in self.filters
            if unit.looks_at_rows or type(unit).limits is not Filter.limits
        ]
        self._selections_last = all(unit.limits_of_facts for unit in self._limiting)
        self._zone_key = ("zone", options.default_availability_zone)

    def decide(
        self,
        hosts: HostTable,
        request: Request,
        dice: Dice,
        promised: Mapping[str, int] | None = None,
    ) -> Decision:
        """Choose a host for every instance and consume the claims on ``hosts``.

        ``promised`` maps instances whose promise lives to its row: they keep their host and claim
        nothing more. A rebuild check claims nothing either.

        Raises:
            NoValidHost: not every instance has a host; nothing stays consumed.
        """
        claims: list[Claim] = []
        replaced: list[Promise | None] = []
        try:
            return self._decide(hosts, request, dice, promised or {}, claims, replaced)
        except BaseException:
            for claim, before in zip(claims, replaced, strict=True):
                hosts.end_promise(claim.id)
                if before is not None:
                    hosts.promise(before)
            raise

    def _decide(
        self,
        hosts: HostTable,
        request: Request,
        dice: Dice,
        promised: Mapping[str, int],
        claims: list[Claim],
        replaced: list[Promise | None],
    ) -> Decision:
        spec, judged, ranking = request.spec, None, None
        chosen: list[tuple[int, Selection]] = []
        for uuid in request.instance_uuids:
            spec = msgspec.structs.replace(spec, instance_uuid=uuid)
            row = promised.get(uuid)
            if row is None:
                judged = self._judged(hosts, spec, judged)
                if not judged.survey.passed:
                    raise NoValidHost(NOT_ENOUGH_HOSTS, judged.survey.diagnosis())
                ranking = self.rank(hosts, judged, spec, dice)
                row = ranking.first
            chosen.append((row, self._selected(hosts, row, spec, judged)))
            if uuid not in promised and not spec.is_rebuild_check:
                host = hosts.state(row)
                claim = _claim(host, spec, request.request_id, self._taken(host, spec))
                replaced.append(hosts.promise(claim))
                claims.append(claim)
                spec = with_page_sizes(spec, claim.resources)
            spec = with_group_host(spec, chosen[-1][1].service_host)
        diagnosis = judged.survey.diagnosis() if judged else Diagnosis(hosts=len(hosts))
        alternates: list[Selection] = []
        if request.num_alternates:
            if ranking is None or len(chosen) > 1:
                judged = self._judged(hosts, spec, judged)
                ranking = self.rank(hosts, judged, spec, dice) if judged.survey.passed else None
            alternates = self._alternates(
                hosts, judged, ranking, chosen, spec, request.num_alternates
            )
        return Decision(
            selections=tuple(
                [
                    (selection, *self._same_cell(alternates, selection, request.num_alternates))
                    for _, selection in chosen
                ]
            ),
            claims=tuple(claims),
            diagnosis=diagnosis,
        )

    # Filters

    def _judged(self, hosts: HostTable, spec: RequestSpec, before: Standing | None) -> Standing:
        """How the hosts stand now; ``before`` is how they stood for the request's last instance.

        A host that was dropped for an earlier instance stays dropped.
        """
        standing = self._kept(hosts, spec)
        if standing is None:
            return self.judged_anew(hosts, spec, before)
        if before is None or before is standing:
            return standing
        if (standing.survey.survivors & ~before.survey.survivors).any():
            return self.judged_anew(hosts, spec, before)
        return standing

    def _kept(self, hosts: HostTable, spec: RequestSpec) -> Standing | None:
        """The standing of the request's class, up to date, less what is of this request alone.

        None where nothing can be kept.
        """
        if spec.is_rebuild_check or names_destination(spec):
            return None
        kind = self._classes.of(spec)
        if not kind.is_told:
            return None
        standing: Standing | None = hosts.kept.pop(kind, None)
        if standing is None or not standing.catch_up(hosts, spec):
            before, standing = standing, self.judged_anew(hosts, spec, of_class=True)
            if before is not None:
                standing.inherit(before, hosts)
            most = max(_FEWEST_KEPT, _KEPT_BYTES // (_BYTES_A_HOST * max(1, len(hosts))))
            while len(hosts.kept) >= most:
                hosts.kept.popitem(last=False)
        hosts.kept[kind] = standing
        return standing.narrowed(hosts, spec, self._narrowing)

    def judged_anew(
        self,
        hosts: HostTable,
        spec: RequestSpec,
        before: Standing | None = None,
        *,
        of_class: bool = False,
        in_order: bool = False,
    ) -> Standing:
        """Ask every filter about every host that is left.

        ``of_class`` leaves out what is of one request alone. ``in_order`` asks the filters as they
        are configured, which changes who is told to have rejected a host, not which are rejected.
        """
        if before is None:
            first = DESTINATION, _destination_mask(hosts, spec)
        else:
            first = EARLIER_INSTANCES, before.survey.survivors
        units = self.filters if in_order else self._by_cost
        filters = list(self._filters_for(spec, units, first=before is None))
        survey = Survey(hosts, spec, filters, first=first, of_class=of_class)
        return Standing(hosts, survey, [unit for unit in self.weighers if unit.applies(spec)])

    def _filters_for(
        self, spec: RequestSpec, filters: Iterable[Filter], *, first: bool
    ) -> Iterable[Filter]:
        return (
            unit
            for unit in (*self.prefilters, *filters)
            if (unit.runs_on_forced_hosts or not spec.skips_filters)
            and (first or not unit.run_filter_once_per_request)
            and (unit.RUN_ON_REBUILD or not spec.is_rebuild_check)
        )

    # Weighers

    def rank(self, hosts: HostTable, standing: Standing, spec: RequestSpec, dice: Dice) -> Ranking:
        return Ranking(
            standing.rows,
            standing.totals(hosts, spec),
            subset=self.options.host_subset_size,
            shuffle=self.options.shuffle_best_same_weighed_hosts,
            dice=dice,
        )

    def best_weights(self, tables: Sequence[HostTable], spec: RequestSpec) -> list[float | None]:
        """The best weight in each table, normalised over the hosts of all; None: nobody passes."""
        views = [table.take(self._judged(table, spec, None).rows) for table in tables]
        ends = np.cumsum([len(view) for view in views])[:-1]
        totals = [np.zeros(len(view)) for view in views]
        for unit in self.weighers:
            if unit.applies(spec):
                raw = np.concatenate([unit.weigh(view, spec) for view in views])
                for at, part in enumerate(np.split(unit.normalized(raw), ends)):
                    totals[at] += unit.multiplier(views[at]) * part
        return [float(each.max()) if len(each) else None for each in totals]

    # Selections

    def _selected(
        self, hosts: HostTable, row: int, spec: RequestSpec, judged: Standing | None
    ) -> Selection:
        """The selection of a row, kept with the standing of the request's class."""
        if judged is None or spec.requested_resources or not self._selections_last:
            return self._selection(hosts.state(row), spec)
        selection = judged.selections.get(row)
        if selection is None:
            selection = judged.selections[row] = self._selection(hosts.state(row), spec)
        return selection

    def _selection(self, host: HostState, spec: RequestSpec) -> Selection:
        mappings = self._mappings(host, spec)
        return Selection(
            service_host=host.host,
            nodename=host.nodename,
            compute_node_uuid=host.uuid,
            cell_uuid=host.cell_uuid,
            limits=self._limits(host, spec),
            availability_zone=str(host.table.derived(self._zone_key, self._zone, "O")[host.row]),
            allocation_request=(
                json.dumps({"allocations": {}, "mappings": mappings}) if mappings else "null"
            ),
            allocation_request_version="1.36" if mappings else None,
        )

    def _taken(self, host: HostState, spec: RequestSpec) -> PendingResource:
        """What the instance takes from the host, down to CPUs, devices and providers."""
        inside = taken_by(spec, host, packs=self._packs)
        uses = self._providers.taken_by(spec, host) if self._asks_providers(spec) else ()
        resources = resources_of(spec.flavor)
        if not (inside.cells or inside.devices or uses):
            return resources
        return msgspec.structs.replace(
            resources, numa=inside.cells or None, pci=inside.devices or None, providers=uses
        )

    def _asks_providers(self, spec: RequestSpec) -> bool:
        if names_destination(spec):  # then filters may be skipped that its class would ask
            return self._providers.applies(spec)
        return self._providers in self._classes.of(spec).applying

    def _mappings(self, host: HostState, spec: RequestSpec) -> dict[str, list[str]]:
        """Which provider serves each group of the request: as promised, or as would be taken."""
        groups = [each.requester_id for each in spec.requested_resources or () if each.requester_id]
        if not groups:
            return {}
        promised = host.promises_of(spec.instance_uuid or "")
        taken = promised[0].resources if promised else self._taken(host, spec)
        providers = {use.group: use.provider for use in taken.providers}
        providers |= providers_of(spec, taken.pci or ())
        return {group: [providers.get(group, host.uuid)] for group in groups}

    def _zone(self, host: HostState) -> str:
        """One of the host's zones."""
        return min(zones(host.aggregates), default=self.options.default_availability_zone)

    def _limits(self, host: HostState, spec: RequestSpec) -> SchedulerLimits:
        if spec.skips_filters:
            return SchedulerLimits()
        for unit in self._limiting:
            if unit.looks_at_rows and unit.applies(spec):
                # A unit with a row face may leave limits behind; ask it again for this row.
                unit.host_passes(host, spec)
            host.limits.update(unit.limits(host, spec))
        limits = host.limits
        return SchedulerLimits(
            numa_topology=limits.get("numa_topology"),
            **{key: int(limits[key]) for key in ("vcpu", "memory_mb", "disk_gb") if key in limits},
        )

    def _alternates(
        self,
        hosts: HostTable,
        judged: Standing | None,
        ranking: Ranking | None,
        chosen: Sequence[tuple[int, Selection]],
        spec: RequestSpec,
        count: int,
    ) -> list[Selection]:
        """Enough unchosen hosts, in order, for every cell that was chosen."""
        missing = dict.fromkeys((selection.cell_uuid for _, selection in chosen), count)
        taken = {row for row, _ in chosen}
        found: list[Selection] = []
        for row in ranking or ():
            if not missing:
                break
            cell = hosts.records[row].cell_uuid
            if row not in taken and cell in missing:
                found.append(self._selected(hosts, row, spec, judged))
                missing[cell] -= 1
                if not missing[cell]:
                    del missing[cell]
        return found

    @staticmethod
    def _same_cell(alternates: list[Selection], chosen: Selection, count: int) -> list[Selection]:
        return [each for each in alternates if each.cell_uuid == chosen.cell_uuid][:count]


def resources_of(flavor: Flavor) -> PendingResource:
    """What one instance of a flavor takes from its host."""
    return PendingResource(vcpus=flavor.vcpus, memory_mb=flavor.memory_mb, disk_mb=flavor.disk_mb)


def _claim(host: HostState, spec: RequestSpec, request_id: str, taken: PendingResource) -> Claim:
    return Claim(
        instance_uuid=spec.instance_uuid or "",
        host_uuid=host.uuid,
        host=host.host,
        nodename=host.nodename,
        resources=taken,
        host_version=host.version,
        request_id=request_id,
        project_id=spec.project_id,
    )


def with_group_host(spec: RequestSpec, host: str) -> RequestSpec:
    """The request as the next instance sees it: its group is on one more host."""
    group = spec.instance_group
    if group is None or host in group.hosts:
        return spec
    grown = msgspec.structs.replace(group, hosts=(*group.hosts, host))
    return msgspec.structs.replace(spec, instance_group=grown)


def _destination_mask(hosts: HostTable, spec: RequestSpec) -> Mask:
    """Where the request may go before any filter is asked; see :func:`may_use`."""
    mask = np.ones(len(hosts), bool)
    destination = spec.requested_destination
    if destination is not None:
        if destination.host is not None:
            mask &= hosts.rows_of([destination.host])
            if destination.node is not None:
                mask &= _nodes(hosts, mask, [destination.node])
        if destination.cell_uuid and not destination.allow_cross_cell_move:
            mask &= hosts.derived(
                ("cell", destination.cell_uuid),
                lambda host: host.cell_uuid == destination.cell_uuid,
                "?",
            )
    if spec.ignore_hosts:
        mask &= ~hosts.rows_of(spec.ignore_hosts, ignore_case=True)
    if spec.force_hosts:
        mask &= hosts.rows_of(spec.force_hosts, ignore_case=True)
    if spec.force_nodes:
        mask &= _nodes(hosts, mask, spec.force_nodes)
    return mask


def _nodes(hosts: HostTable, mask: Mask, nodenames: Sequence[str]) -> Mask:
    kept: Rows = np.flatnonzero(mask)
    found = np.zeros_like(mask)
    found[[row for row in kept.tolist() if hosts.records[row].nodename in nodenames]] = True
    return found


def names_destination(spec: RequestSpec) -> bool:
    """Whether only some hosts are asked at all."""
    return bool(
        spec.requested_destination or spec.ignore_hosts or spec.force_hosts or spec.force_nodes
    )


def may_use(hosts: HostTable, row: int, spec: RequestSpec) -> bool:
    """Whether destination, ignored and forced hosts allow this row."""
    return bool(_destination_mask(hosts, spec)[row])
