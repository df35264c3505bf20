"""What a chosen host means for the instance: its selection, and what it takes of the host.

That may be described as an allocation that Placement understands.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import structs

from scheduler_worker.model.aggregates import DEFAULT_AVAILABILITY_ZONE, zones
from scheduler_worker.model.claims import Claim, Resources
from scheduler_worker.model.decisions import Allocation, Selection
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Aggregates, HostState
from scheduler_worker.model.inventories import uses_on
from scheduler_worker.model.providers import ProviderUse
from scheduler_worker.model.requests import Flavor, RequestSpec, SchedulerLimits
from scheduler_worker.options import Opt
from scheduler_worker.scheduling.destination import names_destination
from scheduler_worker.scheduling.evaluation import Evaluation
from scheduler_worker.scheduling.evaluator import EquivalenceClasses
from scheduler_worker.scheduling.numa.constraints import taken_by
from scheduler_worker.scheduling.ovirt.demand import virt_use_of
from scheduler_worker.scheduling.pci.pools import providers_of
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.scheduling.prefilters import units
from scheduler_worker.scheduling.prefilters.needs import amounts_of

FLAVOR = ""
"""The name of the flavor's own group in mappings."""


def groups_of(spec: RequestSpec) -> list[str]:
    """The names of the groups for which the caller needs to know a provider."""
    groups = spec.requested_resources or ()
    return [group.requester_id for group in groups if group.requester_id]


def mappings_on(host: HostState, spec: RequestSpec, taken: Resources) -> dict[str, list[str]]:
    """The provider that serves each of these groups: the host's own where none was chosen."""
    providers = {use.group: use.provider for use in taken.providers}
    providers |= providers_of(spec, taken.pci or ())
    return {group: [providers.get(group, host.uuid)] for group in groups_of(spec)}


def allocation_on(host: HostState, spec: RequestSpec, taken: Resources) -> Allocation:
    """The whole allocation: vCPUs, memory and disk of the host, and what else was chosen there.

    Raises RequestError for an invalid request.
    """
    taken_of = uses_on(host.record, taken)
    uses = [(use.group, use.provider, use.resources) for use in taken_of if use.resources]
    chosen = {group for group, _, _ in uses}
    mappings = mappings_on(host, spec, taken)
    uses += [
        (group.requester_id or "", mappings[group.requester_id or ""][0], group.resources)
        for group in spec.requested_resources or ()
        if group.requester_id and group.requester_id not in chosen  # devices, for example
    ]
    if not host.has_inventories:  # else it is in what is taken
        of_flavor = {name for group, _, resources in uses if group == FLAVOR for name in resources}
        of_host = {name: amount for name, amount in amounts_of(spec) if name not in of_flavor}
        if of_host:
            uses.insert(0, (FLAVOR, host.uuid, of_host))
    return _allocation(uses)


def _allocation(uses: list[tuple[str, str, dict[str, int]]]) -> Allocation:
    """Adds up what is taken of each provider; ``uses`` are group, provider and amounts."""
    totals: dict[str, dict[str, int]] = {}
    mappings: dict[str, list[str]] = {}
    for group, provider, resources in uses:
        serving = mappings.setdefault(group, [])
        if provider not in serving:
            serving.append(provider)
        for name, amount in resources.items():
            total = totals.setdefault(provider, {})
            total[name] = total.get(name, 0) + amount
    return Allocation({each: {"resources": total} for each, total in totals.items()}, mappings)


class PlacementOptions(msgspec.Struct, frozen=True):
    """Options of placement that are no unit's, under the names of the configuration."""

    default_availability_zone: str = DEFAULT_AVAILABILITY_ZONE
    packing_host_numa_cells_allocation_strategy: Annotated[bool, Opt(mutable=True)] = False
    """Whether NUMA instances fill a host's cells one after the other, instead of spreading evenly
    over them."""
    claims_in_placement: bool = False
    """Describes in each selection what Placement is to allocate for it."""
    ranked_hosts: int = 0
    """How many of the best hosts a decision names, with what each weigher gave them."""


class Selections:
    """Describes chosen hosts to the caller, and what instances claim on them."""

    def __init__(
        self,
        filters: Sequence[Filter],
        inventories: units.Inventories,
        providers: units.ResourceProviders,
        candidates: units.PlacementCandidates,
        classes: EquivalenceClasses,
        options: PlacementOptions,
    ) -> None:
        self._inventories = inventories
        self._providers = providers
        self._candidates = candidates
        self._classes = classes
        self._options = options
        self._zone_key = ("zone", options.default_availability_zone)
        self._limiting = [
            unit for unit in filters if unit.leaves_limits or type(unit).limits is not Filter.limits
        ]
        self._can_be_kept = all(unit.limits_of_facts for unit in self._limiting)
        """Whether a selection stays the same until its host reports."""

    def of(
        self, hosts: HostTable, row: int, spec: RequestSpec, evaluation: Evaluation | None
    ) -> Selection:
        """The selection of a row; but for its allocation it is kept with the evaluation."""
        kept = evaluation.selections if evaluation and self._can_be_kept else {}
        selection = kept.get(row)
        if selection is None:
            selection = kept[row] = self._made(hosts.state(row), spec, evaluation)
        allocation = self._allocation(hosts, row, spec, selection.limits)
        if allocation is None:
            return selection
        return structs.replace(selection, allocation=allocation)

    def claim(
        self, host: HostState, spec: RequestSpec, limits: SchedulerLimits, request_id: str
    ) -> Claim:
        """The claim of an instance on its host, within the limits of its selection."""
        return Claim(
            instance_uuid=spec.instance_uuid or "",
            host_uuid=host.uuid,
            host=host.host,
            nodename=host.nodename,
            resources=self._taken(host, spec, limits),
            host_version=host.version,
            request_id=request_id,
            project_id=spec.project_id,
        )

    def alternates(
        self,
        hosts: HostTable,
        ranking: Iterable[int],
        chosen: Sequence[tuple[int, Selection]],
        spec: RequestSpec,
        evaluation: Evaluation | None,
        count: int,
    ) -> list[Selection]:
        """The next ``count`` hosts of the ranking in each cell in which a host was chosen."""
        missing = dict.fromkeys((selection.cell_uuid for _, selection in chosen), count)
        taken = {row for row, _ in chosen}
        selections: list[Selection] = []
        for row in ranking:
            if not missing:
                break
            cell = hosts.records[row].cell_uuid
            if row not in taken and cell in missing:
                selections.append(self.of(hosts, row, spec, evaluation))
                missing[cell] -= 1
                if not missing[cell]:
                    del missing[cell]
        return selections

    def _made(self, host: HostState, spec: RequestSpec, evaluation: Evaluation | None) -> Selection:
        zones_of_hosts = host.table.derived(
            self._zone_key,
            lambda host: self.zone_of(host.aggregates),
            "O",
            lambda all_: all_.by_aggregates().each(self.zone_of, "O"),
        )
        return Selection(
            service_host=host.host,
            nodename=host.nodename,
            compute_node_uuid=host.uuid,
            cell_uuid=host.cell_uuid,
            limits=self._limits(host, spec, evaluation),
            availability_zone=str(zones_of_hosts[host.row]),
        )

    def _taken(self, host: HostState, spec: RequestSpec, limits: SchedulerLimits) -> Resources:
        """What the instance takes from the host, down to CPUs, devices and providers."""
        packs = self._options.packing_host_numa_cells_allocation_strategy
        inside = taken_by(spec, host, limits, packs=packs)
        uses = self._of_providers(host, spec)
        resources = resources_of(spec.flavor)
        if spec.vm and (use := virt_use_of(spec)):
            resources = structs.replace(resources, virt=use)
        if not (inside.cells or inside.devices or uses):
            return resources
        cells, devices = inside.cells or None, inside.devices or None
        return structs.replace(resources, numa=cells, pci=devices, providers=uses)

    def _of_providers(self, host: HostState, spec: RequestSpec) -> tuple[ProviderUse, ...]:
        if self._candidates.applies(spec):
            return self._candidates.taken_by(spec, host)
        uses = self._inventories.taken_by(spec, host)
        if names_destination(spec):  # filters may be skipped then, and finding the class asks them
            asks = self._providers.applies(spec)
        else:
            asks = self._providers in self._classes.of(spec).applying
        return uses + self._providers.taken_by(spec, host) if asks else uses

    def _allocation(
        self, hosts: HostTable, row: int, spec: RequestSpec, limits: SchedulerLimits
    ) -> Allocation | None:
        """What the instance takes of the host's providers: as reserved, or as would be taken.

        None where the caller has no use for it. Depends on what is free, so it is not kept.
        """
        is_claimed = self._options.claims_in_placement and not spec.is_rebuild_check
        if not (is_claimed or groups_of(spec)):
            return None
        host = hosts.state(row)
        reserved = host.reservations_of(spec.instance_uuid or "")
        taken = reserved[0].resources if reserved else self._taken(host, spec, limits)
        if is_claimed:
            return allocation_on(host, spec, taken)
        return Allocation(mappings=mappings_on(host, spec, taken))

    def zone_of(self, some: Aggregates) -> str:
        """One of the zones of hosts in these aggregates."""
        return min(zones(some), default=self._options.default_availability_zone)

    def _limits(
        self, host: HostState, spec: RequestSpec, evaluation: Evaluation | None
    ) -> SchedulerLimits:
        if spec.skips_filters:
            return SchedulerLimits()
        limits: dict[str, Any] = {}
        for unit in self._limiting:
            if unit.leaves_limits and unit.applies(spec):
                limits.update(_left(unit, host, spec, evaluation))
            limits.update(unit.limits(host, spec))
        names = ("vcpu", "memory_mb", "disk_gb")
        numbers = {name: int(limits[name]) for name in names if name in limits}
        return SchedulerLimits(numa_topology=limits.get("numa_topology"), **numbers)


def _left(
    unit: Filter, host: HostState, spec: RequestSpec, evaluation: Evaluation | None
) -> Mapping[str, Any]:
    """What a filter in Nova's signature has left on a host when it was asked about it."""
    known = None if evaluation is None else evaluation.results.limits.get(unit)
    if known is not None:
        return known.get(host.row, {})
    host.limits = {}  # it was not asked: the instance has its host already
    unit.host_passes(host, spec)
    return host.limits


def resources_of(flavor: Flavor) -> Resources:
    """What one instance of a flavor takes from its host."""
    return Resources(vcpus=flavor.vcpus, memory_mb=flavor.memory_mb, disk_mb=flavor.disk_mb)
