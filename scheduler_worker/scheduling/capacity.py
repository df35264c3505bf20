"""How many more instances of one kind the hosts of a cluster take, under the cluster's policy.

The count is that of placing instances until one is refused, each in a request of its own. Hosts do
not depend on each other then, so each is counted by itself, in one of two ways:

* A filter that reads columns is asked about all hosts at once, as they would be after some
  instances, so that ratios, reserved amounts, units, steps and limits count as they do in a
  decision. One that refuses a host after n instances is taken to refuse it after more than n, too.
* What an instance takes of a host's NUMA cells, of its devices and of its providers depends on
  those before it. If these decide, or a unit does not say what it reads, copies of the hosts are
  filled, with the claims that decisions would make, until a filter refuses. Hosts that are alike in
  all that these filters read are filled once.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from msgspec import structs

from scheduler_worker.model.capacity import (
    ClusterCapacity,
    FlavorCapacity,
    LimitingResource,
    RejectedHosts,
)
from scheduler_worker.model.columns import COLUMNS, CONSUMED, take
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import ClaimOrReservation, HostSubset, Mask, Values
from scheduler_worker.model.inventories import UNUSED
from scheduler_worker.model.policy_references import PolicyReference
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.virt import NO_USE, VirtUse
from scheduler_worker.scheduling.filter_results import left_by
from scheduler_worker.scheduling.filters.numa_topology import (
    NUMATopologyFilter,
    PciPassthroughFilter,
)
from scheduler_worker.scheduling.ovirt.demand import virt_use_of
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.scheduling.prefilters.units import ResourceProviders
from scheduler_worker.scheduling.selections import resources_of

_OBJECTS = {"provider_tree", "numa_topology", "pci_pools", "virt_use"}


class NotInColumns(Exception):
    """What a filter looks at cannot be told without placing the instances one by one."""


class InstanceCost(NamedTuple):
    """What one instance takes of each host."""

    amounts: Mapping[str, Values]
    """Column -> what is subtracted from it: one number, or one for each host."""
    virt: VirtUse
    unknown: Collection[str]
    """Columns that depend on which cells, devices and providers are chosen."""


class HostsAfter(HostSubset):
    """The hosts of a table after ``placed`` more instances on each.

    Filters that read columns can be asked about it; filters of single hosts, or of cells,
    devices and providers that the instances take from, get :class:`NotInColumns`.
    """

    def __init__(self, hosts: HostTable, taken: InstanceCost, placed: Values | int) -> None:
        super().__init__(hosts, slice(None))
        self._taken = taken
        self._placed = placed

    def __len__(self) -> int:
        return len(self._table)

    def column(self, name: str) -> Values:
        if name in self._taken.unknown:
            raise NotInColumns(name)
        values = super().column(name)
        if name == "virt_use" and self._taken.virt != NO_USE:
            return self._virt_use(values)
        amount = self._taken.amounts.get(name)
        return values if amount is None else values - amount * self._placed

    def _virt_use(self, values: Values) -> Values:
        uses = np.empty(len(values), object)
        placed = np.broadcast_to(self._placed, len(values)).tolist()
        for row, (use, times) in enumerate(zip(values, placed, strict=True)):
            uses[row] = use.plus(self._taken.virt, times)
        return uses

    def _one_by_one(self, *_: Any, **__: Any) -> Any:
        raise NotInColumns("single hosts")

    state = states = take = reservations_of_provider = _one_by_one


UNBOUNDED = 2**20
"""A host that a filter would let take so many instances is not bounded by that filter."""


def refused_after(unit: Filter, hosts: HostTable, taken: InstanceCost, spec: RequestSpec) -> Values:
    """For each host after how many instances the filter first refuses it; at most UNBOUNDED.

    Raises NotInColumns: the filter looks at what only placing one by one can tell.
    """

    def passes(placed: Values | int) -> Mask:
        return unit.passes(HostsAfter(hosts, taken, placed), spec)

    fits = passes(0)
    endless = fits & passes(UNBOUNDED)
    # Doubling steps pass the last fit of every host, halving ones find it: some 40 calls in all.
    growing, step = fits & ~endless, 1
    while step < UNBOUNDED and growing.any():
        growing &= passes(step)
        step *= 2
    last = np.zeros(len(hosts), "i8")  # after so many instances the filter is known to pass
    while step > 1:
        step //= 2
        last += step * passes(last + step)
    return np.where(endless, UNBOUNDED, np.where(fits, last + 1, 0))


_ALIKE = (NUMATopologyFilter, PciPassthroughFilter, ResourceProviders)
_READ = (
    *("numa_topology", "pci_pools", "cpu_allocation_ratio", "ram_allocation_ratio"),
    *("has_inventories", *UNUSED.values()),
)
"""What these filters read of a host's columns, beside its providers and aggregates."""
MOST_STEPS = 20_000
"""Instances that are placed on copies for one question; then upper bounds have to do."""


class HostToFill(NamedTuple):
    """A copy of one host, with all that filters may look at."""

    row: int
    record: HostRecord
    version: int
    reservations: Sequence[ClaimOrReservation]
    instances: Mapping[str, Mapping[str, Any]]
    most: int
    """How many instances the other filters let it take."""
    kind: Hashable
    """Hosts of one kind take as many instances."""


def _table(like: HostTable, hosts: Collection[HostToFill]) -> HostTable:
    """Copies of hosts; ``like`` has the time and the aggregates."""
    copies = HostTable()
    copies.now_s = like.now_s
    if hosts:
        copies.set_aggregates(like.aggregates)
        copies.metadata_keys, copies.metadata_items = like.metadata_keys, like.metadata_items
    for host in hosts:
        copies.put(host.record, host.version)
        copies.set_instances(host.record.host, host.instances)
        for reservation in host.reservations:
            copies.consume(reservation)
    return copies


NOTHING = "nothing"
"""What limits a host that takes any number."""


class Measurement:
    """What columns tell of the room for one kind of instance, and the hosts still to be filled.

    To make one takes milliseconds and reads the table; :meth:`finish` may take long and does not.
    """

    def __init__(self, pipeline: Pipeline, hosts: HostTable, spec: RequestSpec) -> None:
        """Raises as filters do: RequestError, NoValidHost."""
        self._pipeline, self._hosts, self._spec = pipeline, hosts, spec
        self.instances = np.full(len(hosts), UNBOUNDED, "i8")
        """How many instances fit by the filters that judge capacity; UNBOUNDED: any number."""
        self.limits = [NOTHING]
        self.limited_by = np.zeros(len(hosts), "i8")
        """The index in ``limits`` of what runs out first."""
        groups = hosts.by_aggregates()
        zones = [pipeline.selections.zone_of(member) for member in groups.members]
        self.zones = groups.numbers.copy(), zones
        """The group of each host, and the zone of each group."""
        self.is_exact = True
        asked = pipeline.evaluator.asked(spec)
        static = [unit for unit in asked if unit.of_one_request or not unit.reads_use]
        self.filters = [unit.name for unit in static]
        self.lost_to, survivors = _lost_to(static, hosts, spec)
        """The index in ``filters`` of the filter that rejects the host all the same; -1: none."""
        taken = _taken(pipeline, hosts, spec)
        judging = [unit for unit in asked if unit not in static]
        self._to_ask = [unit for unit in judging if not self._count(unit, taken)]
        self._to_fill = self._copies(survivors) if self._to_ask else []

    def _count(self, unit: Filter, taken: InstanceCost) -> bool:
        """Take in what a filter says by columns; False: it has to be asked one by one."""
        if unit.looks_at_rows or not (unit.declares_reads() and unit.is_internal()):
            return False
        hosts, spec = self._hosts, self._spec
        try:
            counts = refused_after(unit, hosts, taken, spec)
            lacking = unit.shortages(HostsAfter(hosts, taken, counts), spec)
        except NotInColumns:
            return False
        fewer = counts < self.instances
        self.instances = np.where(fewer, counts, self.instances)
        for name, amounts in lacking.items():
            self._limit(fewer & (amounts > 0), name)
            fewer &= ~(amounts > 0)
        self._limit(fewer, unit.name)
        return True

    def _limit(self, rows: Mask, name: str) -> None:
        if rows.any():
            self.limited_by[rows] = self._number(name)

    def _number(self, name: str) -> int:
        if name not in self.limits:
            self.limits.append(name)
        return self.limits.index(name)

    def _copies(self, survivors: Mask) -> list[HostToFill]:
        """Copies of the hosts that take one instance; the others are full."""
        survivors = survivors & (self.instances > 0)
        for unit in self._to_ask:
            after = left_by(unit, self._hosts, self._spec, survivors)
            self.instances[survivors & ~after] = 0
            self._limit(survivors & ~after, unit.name)
            survivors = after
        is_alike = all(type(unit) in _ALIKE for unit in self._to_ask)
        return [self._copied(row, is_alike) for row in np.flatnonzero(survivors).tolist()]

    def _copied(self, row: int, is_alike: bool) -> HostToFill:
        hosts, most = self._hosts, int(self.instances[row])
        record, kind = hosts.records[row], row if not is_alike else _kind(hosts, row, most)
        return HostToFill(
            row=row,
            record=record,
            version=hosts.versions[row],
            reservations=hosts.reservations_of_host(record.uuid),
            instances=hosts.reported_instances(record.host),
            most=most,
            kind=kind,
        )

    def finish(self, steps: Iterator[int]) -> Self:
        """Fill the hosts that have to be filled, in so many steps; needs no lock of the table."""
        kinds = {host.kind: host for host in self._to_fill}
        copies = _table(self._hosts, kinds.values())
        filled = {kind: self._filled(copies, host, steps) for kind, host in kinds.items()}
        for host in self._to_fill:
            self.instances[host.row], refused_by = filled[host.kind]
            if refused_by is not None:
                self.limited_by[host.row] = self._number(refused_by)
        return self

    def _filled(
        self, copies: HostTable, host: HostToFill, steps: Iterator[int]
    ) -> tuple[int, str | None]:
        """How many instances a copy takes, and the filter that refuses more.

        None: it takes all that the other filters let it take.
        """
        row = copies.row_of(host.record.uuid)
        assert row is not None  # noqa: S101 - it was just put
        state, selections = copies.state(row), self._pipeline.selections
        for placed in range(host.most):
            if next(steps, None) is None:
                self.is_exact = False
                break
            request = structs.replace(self._spec, instance_uuid=f"{row}/{placed}")
            for unit in self._to_ask:
                if not unit.host_passes(state, request):
                    return placed, unit.name
            limits = selections.of(copies, row, request, None).limits
            copies.consume(selections.claim(state, request, limits, ""))
        return host.most, None


def _kind(hosts: HostTable, row: int, most: int) -> Hashable:
    columns = tuple(hosts.columns[name].item(row) for name in _READ)
    providers = hosts.columns["provider_tree"].item(row).providers
    return columns, providers, tuple(map(id, hosts.aggregates_of(hosts.records[row].host))), most


def _lost_to(filters: Sequence[Filter], hosts: HostTable, spec: RequestSpec) -> tuple[Values, Mask]:
    """The index of the first of the filters that rejects each host, and the hosts that are left."""
    lost_to, survivors = np.full(len(hosts), -1, "i8"), np.ones(len(hosts), bool)
    for number, unit in enumerate(filters):
        after = left_by(unit, hosts, spec, survivors)
        lost_to[survivors & ~after] = number
        survivors = after
    return lost_to, survivors


def _taken(pipeline: Pipeline, hosts: HostTable, spec: RequestSpec) -> InstanceCost:
    unknown = ["provider_tree"] if pipeline.providers.applies(spec) else []
    if spec.numa_topology or spec.pci_requests:
        unknown += ["numa_topology", "pci_pools", "free_pci_devices"]
    virt = (virt_use_of(spec) if spec.vm else None) or NO_USE
    row = {c.name: np.zeros(1, c.dtype) for c in COLUMNS if c.name in CONSUMED}
    row["virt_use"][0] = NO_USE
    take(row, 0, structs.replace(resources_of(spec.flavor), virt=virt), 1)
    amounts = {name: -values[0] for name, values in row.items() if name not in _OBJECTS}
    of_root = pipeline.inventories.taken_in_columns(hosts, spec)
    return InstanceCost(
        {name: n for name, n in amounts.items() if n} | dict(of_root), virt, unknown
    )


def of_cluster(cluster: str, policy: PolicyReference, room: Measurement) -> ClusterCapacity:
    """The capacity of a cluster for one kind of instance."""
    survivors = room.lost_to < 0
    limited = dict(sorted(_limited(room, survivors), key=lambda item: -item[1].hosts))
    return ClusterCapacity(
        cluster=cluster,
        policy=policy,
        instances=_sum(room, survivors),
        is_exact=room.is_exact,
        hosts=len(survivors),
        fitting_hosts=int(np.count_nonzero(room.instances[survivors])),
        runs_out_first=_most((name, limit.hosts) for name, limit in limited.items()),
        zones=_by_zone(room, survivors),
        limited_by=limited,
        lost_to=dict(_lost(room)),
    )


def of_flavor(name: str, clusters: Sequence[ClusterCapacity]) -> FlavorCapacity:
    """The capacity of all clusters for one flavor."""
    counts = [cluster.instances for cluster in clusters]
    hosts: Counter[str] = Counter()
    for cluster in clusters:
        hosts.update({limit: limited.hosts for limit, limited in cluster.limited_by.items()})
    return FlavorCapacity(
        name=name,
        instances=None if None in counts else sum(count or 0 for count in counts),
        is_exact=all(cluster.is_exact for cluster in clusters),
        runs_out_first=_most(hosts.items()),
        clusters=tuple(clusters),
    )


def _limited(room: Measurement, survivors: Mask) -> Iterator[tuple[str, LimitingResource]]:
    for number, name in enumerate(room.limits):
        of_it = survivors & (room.limited_by == number)
        if of_it.any():
            full = int(np.count_nonzero(of_it & (room.instances == 0)))
            yield name, LimitingResource(hosts=int(np.count_nonzero(of_it)), full_hosts=full)


def _lost(room: Measurement) -> Iterator[tuple[str, RejectedHosts]]:
    for number, name in enumerate(room.filters):
        of_it = room.lost_to == number
        if of_it.any():
            yield (
                name,
                RejectedHosts(hosts=int(np.count_nonzero(of_it)), instances=_sum(room, of_it)),
            )


def _sum(room: Measurement, rows: Mask) -> int | None:
    """None: a host among them takes any number."""
    counts = room.instances[rows]
    return None if (counts >= UNBOUNDED).any() else int(counts.sum())


def _most(counts: Iterable[tuple[str, int]]) -> str | None:
    """The limiting name with the highest count; the first among equals."""
    limiting = [count for count in counts if count[0] != NOTHING]
    return max(limiting, key=lambda count: count[1])[0] if limiting else None


def _by_zone(room: Measurement, survivors: Mask) -> dict[str, int | None]:
    numbers, zones = room.zones
    hosts = np.bincount(numbers, minlength=len(zones))
    endless = np.bincount(numbers[survivors & (room.instances >= UNBOUNDED)], minlength=len(zones))
    sums = np.bincount(numbers, np.where(survivors, room.instances, 0), minlength=len(zones))
    by_zone: dict[str, int | None] = {}
    for number in np.flatnonzero(hosts).tolist():
        zone = zones[number]
        before = by_zone.get(zone, 0)
        by_zone[zone] = None if before is None or endless[number] else before + int(sums[number])
    return dict(sorted(by_zone.items()))
