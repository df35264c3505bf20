"""Hosts: what they have, what is used, and what is reserved beside that; one, some, or all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from scheduler_worker.conversion import convert
from scheduler_worker.errors import Ambiguous, NotFound
from scheduler_worker.model.aggregates import zones
from scheduler_worker.model.host_records import (
    HostRecord,
    HostState,
    compute_reported_at_s,
    known_as,
    limits_of,
    out_of_service,
    reported_use,
    state_of,
)
from scheduler_worker.model.topology import (
    NUMACell,
    PCIDevice,
    PCIPool,
    PCIPools,
    numbers,
    read_pci_pools,
)
from scheduler_worker.operations.operation import Call, Page, PageQuery, moment, operation

if TYPE_CHECKING:
    from scheduler_worker.model.hosts import ClaimOrReservation
    from scheduler_worker.operations.services import UseCases
    from scheduler_worker.service.state.replica import ClusterReplica


class Amount(msgspec.Struct, frozen=True):
    """An amount of a host: in all, used by its own report, and held by reservations.

    `limit`: how much may be used, that is, what is not kept for the host itself, times its
    allocation ratio.
    """

    total: int
    used: int
    reserved: int
    limit: int


class NumaPages(msgspec.Struct, frozen=True):
    """The pages of one size of a NUMA cell; `used` has reservations as well."""

    size_kb: int
    total: int
    used: int


class NumaCell(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA cell of a host, less all reservations: CPUs by number, memory in MiB."""

    id: int
    socket: int | None
    memory_mb: int
    memory_used_mb: int
    shared_cpus: list[int]
    dedicated_cpus: list[int]
    pinned_cpus: list[int]
    cores: list[list[int]]
    """The CPUs of each core."""
    pages: list[NumaPages]


class Devices(PCIDevice, frozen=True, kw_only=True):
    """PCI devices of one kind that the host reports as free; `free` is less all reservations."""

    reported: int
    free: int


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A compute node. `down`: forced down, asleep, or without a heartbeat for `service_down_time`.

    Asleep is a host in maintenance, or switched off.
    """

    uuid: str
    name: str
    nodename: str
    cluster: str
    zones: list[str]
    state: HostState
    reason: str | None
    reported_at: datetime | None
    vcpus: Amount
    memory_mb: Amount
    disk_mb: Amount
    aggregates: list[str]
    instances: int
    reservations: int


class HostDetails(Host, frozen=True, kw_only=True):
    """A compute node, with its instances and everything that was reported of it."""

    instance_uuids: list[str]
    numa_cells: list[NumaCell]
    devices: list[Devices]
    record: dict[str, Any]


class ClusterHostsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which hosts are listed."""

    cluster: Annotated[str | None, Meta(description="Only hosts of this cluster.")] = None


class HostQuery(ClusterHostsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which hosts are listed; several conditions must all hold."""

    name: Annotated[
        str | None, Meta(description="Only hosts whose name or node name fits this shell pattern.")
    ] = None
    state: Annotated[HostState | None, Meta(description="Only hosts in this state.")] = None
    aggregate: Annotated[str | None, Meta(description="Only hosts of this aggregate.")] = None


class OneHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host."""

    name: Annotated[str, Meta(description="Its name, node name or uuid.")]


class ResourceUse(msgspec.Struct, frozen=True):
    """An amount of each host: the limit of its use, its use as reported, and what is reserved."""

    limit: list[int] = []
    used: list[int] = []
    reserved: list[int] = []

    def add(self, amount: Amount) -> None:
        self.limit.append(amount.limit)
        self.used.append(amount.used)
        self.reserved.append(amount.reserved)


class FleetColumns(msgspec.Struct, frozen=True):
    """All hosts, by cluster and uuid: the same place of each list is of the same host."""

    uuid: list[str] = []
    name: list[str] = []
    cluster: list[str] = []
    zone: list[str | None] = []
    """The first of its zones; null: it is in none."""
    state: list[HostState] = []
    age_s: list[int | None] = []
    """Seconds since the last report of its compute service; null: there was none."""
    instances: list[int] = []
    reservations: list[int] = []
    vcpus: ResourceUse = msgspec.field(default_factory=ResourceUse)
    memory_mb: ResourceUse = msgspec.field(default_factory=ResourceUse)
    disk_mb: ResourceUse = msgspec.field(default_factory=ResourceUse)


class FleetQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which hosts are in the columns."""

    cluster: Annotated[str | None, Meta(description="Only hosts of this cluster.")] = None


@operation(
    "GET",
    "/hosts",
    command="host list",
    columns={
        "Host": "name",
        "Cluster": "cluster",
        "State": "state",
        "VCPUs": "vcpus.total",
        "VCPUs Used": "vcpus.used",
        "VCPUs Reserved": "vcpus.reserved",
        "Memory MB": "memory_mb.total",
        "Memory MB Used": "memory_mb.used",
        "Memory MB Reserved": "memory_mb.reserved",
        "Instances": "instances",
        "Reservations": "reservations",
    },
    long={
        "UUID": "uuid",
        "Node": "nodename",
        "Aggregates": "aggregates",
        "Disk MB": "disk_mb.total",
        "Disk MB Used": "disk_mb.used",
    },
)
def list_hosts(call: Call, query: HostQuery) -> Page[Host]:
    """List hosts by uuid, with what they have, what is used, and what is reserved beside that.

    The state is up, down (no heartbeat, forced down, or asleep) or disabled.

      scheduler-workerctl host list --cluster east --state down
      scheduler-workerctl host list --name 'compute-1*' --sort-column 'VCPUs Used'
    """
    from scheduler_worker.service.inventory import listing

    services = call.services

    def is_wanted(replica: ClusterReplica, uuid: str) -> bool:
        record = listing.record_of(replica, uuid)
        if query.name is not None and not any(
            fnmatchcase(name, query.name) for name in (record.host, record.nodename)
        ):
            return False
        if query.aggregate is not None:
            aggregates = services.fleet.prepare(replica).aggregates_of(record.host)
            if query.aggregate not in {aggregate.name for aggregate in aggregates}:
                return False
        return query.state in {None, state_of(record, replica.table.now_s, services.down_after_s)}

    has_conditions = any((query.name, query.state, query.aggregate))
    return Page(
        *listing.page(
            services.fleet,
            listing.hosts_of,
            lambda replica, uuid: _host(services, replica, uuid),
            cluster=query.cluster,
            marker=query.marker,
            limit=query.limit,
            where=is_wanted if has_conditions else None,
        )
    )


@operation("GET", "/hosts/{name}", command="host show")
def get_host(call: Call, target: OneHost) -> HostDetails:
    """Show all that is known of a host."""
    from scheduler_worker.service.inventory import listing

    services = call.services
    uuid = only_one([record.uuid for record in called(services, target.name)], target.name, "host")
    hosts, _ = listing.page(
        services.fleet,
        lambda replica: [uuid] if replica.table.row_of(uuid) is not None else [],
        lambda replica, uuid: _details(services, replica, uuid),
        limit=1,
    )
    if not hosts:  # it was removed a moment ago
        raise NotFound("host", target.name)
    return hosts[0]


def called(services: UseCases, name: str) -> Sequence[HostRecord]:
    """The hosts that are called so, :data:`MOST_OF_A_NAME` at most: see :func:`known_as`."""
    from scheduler_worker.service.inventory import listing

    def indexed(replica: ClusterReplica) -> Iterable[str]:
        table = replica.table
        is_uuid = table.row_of(name) is not None
        return [name] if is_uuid else [record.uuid for record in table.find(name)]

    def is_called(replica: ClusterReplica, uuid: str) -> bool:
        return name in known_as(listing.record_of(replica, uuid))

    # Names of nodes have no index; few differ from the name of their host.
    for keys_of in indexed, listing.hosts_of:
        records, _ = listing.page(
            services.fleet, keys_of, listing.record_of, limit=MOST_OF_A_NAME, where=is_called
        )
        if records:
            break
    return records


MOST_OF_A_NAME = 20
"""Hosts of one name that an error lists."""


def only_one(uuids: Sequence[str], name: str, what: str) -> str:
    """The host that a name means, of all that have it; one of this uuid comes first.

    Raises NotFound, and Ambiguous.
    """
    exact = [uuid for uuid in uuids if uuid == name] or uuids
    if not exact:
        raise NotFound(what, name)
    if len(exact) > 1:
        raise Ambiguous(what, name, exact)
    return exact[0]


def amounts_of(
    hosts: Iterable[tuple[HostRecord, Sequence[ClaimOrReservation]]],
) -> dict[str, Amount]:
    """The amounts of hosts together, by name; each host comes with what is reserved on it."""
    sums = {name: [0, 0, 0, 0] for name in ("vcpus", "memory_mb", "disk_mb")}
    for record, held in hosts:
        used, limit = reported_use(record), limits_of(record)
        totals = {"vcpus": record.vcpus, "memory_mb": record.memory_mb}
        for name, amounts in sums.items():
            amounts[0] += totals.get(name, 1024 * record.local_gb)
            amounts[1] += getattr(used, name)
            amounts[2] += sum(getattr(claim.resources, name) for claim in held)
            amounts[3] += getattr(limit, name)
    return {name: Amount(*amounts) for name, amounts in sums.items()}


def _host(services: UseCases, replica: ClusterReplica, uuid: str) -> Host:
    from scheduler_worker.service.inventory import listing

    table, record = services.fleet.prepare(replica), listing.record_of(replica, uuid)
    held = table.reservations_of_host(uuid)
    state = state_of(record, table.now_s, services.down_after_s)
    aggregates = table.aggregates_of(record.host)
    reason = out_of_service(record)
    if state == "down" and reason is None:
        reason = f"it has not been heard of within {services.down_after_s:g} s"
    return Host(
        uuid=uuid,
        name=record.host,
        nodename=record.nodename,
        cluster=replica.scope,
        zones=sorted(zones(aggregates)),
        state=state,
        reason=reason,
        reported_at=moment(compute_reported_at_s(record)),
        **amounts_of([(record, held)]),
        aggregates=sorted(aggregate.name for aggregate in aggregates),
        instances=len(table.reported_instances(record.host)),
        reservations=len(held),
    )


def _details(services: UseCases, replica: ClusterReplica, uuid: str) -> HostDetails:
    row = replica.table.row_of(uuid)
    assert row is not None  # noqa: S101 - listed under the same lock
    record, host = replica.table.records[row], replica.table.state(row)
    topology, pools = host.numa_topology, read_pci_pools(record.pci_device_pools)
    return HostDetails(
        **msgspec.structs.asdict(_host(services, replica, uuid)),
        instance_uuids=sorted(replica.table.reported_instances(record.host)),
        numa_cells=[_cell(cell) for cell in topology.cells] if topology else [],
        devices=[_devices(pool, host.pci_pools) for pool in pools],
        record=msgspec.to_builtins(record),
    )


def _cell(cell: NUMACell) -> NumaCell:
    return NumaCell(
        id=cell.id,
        socket=cell.socket,
        memory_mb=cell.memory,
        memory_used_mb=cell.memory_usage,
        shared_cpus=list(numbers(cell.cpuset)),
        dedicated_cpus=list(numbers(cell.pcpuset)),
        pinned_cpus=list(numbers(cell.pcpuset & ~cell.free_pcpus)),
        cores=[list(numbers(sibling)) for sibling in cell.siblings],
        pages=[
            NumaPages(mempage.size_kb, mempage.total, mempage.used + mempage.reserved)
            for mempage in cell.mempages
        ],
    )


def _devices(pool: PCIPool, left: PCIPools) -> Devices:
    """A pool as reported, with what reservations leave of it."""
    counts = {"reported": pool.count, "free": sum(some.count for some in left if some.is_of(pool))}
    return convert(msgspec.structs.asdict(pool) | counts, Devices)


# All of them in columns, for pictures of a whole fleet


@operation("GET", "/fleet")
def get_fleet(call: Call, query: FleetQuery) -> FleetColumns:
    """Show all hosts in columns, without pages."""
    fleet = call.services.fleet
    fleet.refresh_globals()
    names = sorted(fleet.globals.names)
    if query.cluster is not None:
        if query.cluster not in names:
            raise NotFound("cluster", query.cluster)
        names = [query.cluster]
    columns = FleetColumns()
    for name in names:
        _add_columns(columns, call.services, fleet.cluster(name))
    return columns


def _add_columns(columns: FleetColumns, services: UseCases, replica: ClusterReplica) -> None:
    # Decisions need the lock: nothing is computed of the records meanwhile.
    with replica.reading(services.fleet.store):
        table = services.fleet.prepare(replica)
        now_s, aggregates = table.now_s, table.aggregates
        rows = [
            (record, len(table.reported_instances(record.host)), held)
            for record in table.records
            for held in [table.reservations_of_host(record.uuid)]
        ]
    rows.sort(key=lambda row: row[0].uuid)
    for record, instances, held in rows:
        reported_at_s = compute_reported_at_s(record)
        columns.uuid.append(record.uuid)
        columns.name.append(record.host)
        columns.cluster.append(replica.scope)
        columns.zone.append(min(zones(aggregates.get(record.host, ())), default=None))
        columns.state.append(state_of(record, now_s, services.down_after_s))
        columns.age_s.append(max(0, round(now_s - reported_at_s)) if reported_at_s else None)
        columns.instances.append(instances)
        columns.reservations.append(len(held))
        for amount, value in amounts_of([(record, held)]).items():
            getattr(columns, amount).add(value)
