"""Clusters and hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from scheduler_worker.api.access import Access
from scheduler_worker.api.rights import Action
from scheduler_worker.api.v1.operations import (
    Answer,
    Call,
    Operation,
    Page,
    PageQuery,
    given,
    moment,
)
from scheduler_worker.api.v1.problems import Failed
from scheduler_worker.errors import NotFound
from scheduler_worker.model import policies
from scheduler_worker.model.aggregates import zones
from scheduler_worker.model.host_records import (
    HostRecord,
    HostState,
    compute_reported_at_s,
    limits_of,
    out_of_service,
    reported_use,
    state_of,
)
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.model.topology import (
    NUMACell,
    NUMATopology,
    PCIPools,
    numbers,
    read_pci_pools,
)
from scheduler_worker.service.inventory.listing import Listing, hosts_called, hosts_of, record_of
from scheduler_worker.service.state.replica import ClusterReplica, Fleet


class Policy(msgspec.Struct, frozen=True):
    """The policy under which a cluster's next decision is made."""

    id: str
    name: str
    version: int


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster."""

    name: str
    policy: Policy
    hosts: int
    reservations: int


class ClusterDetails(Cluster, frozen=True, kw_only=True):
    """A cluster, with the whole document of its policy."""

    document: dict[str, Any]


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


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """PCI devices of one kind that the host reports as free; `free` is less all reservations."""

    vendor_id: str
    product_id: str
    numa_node: int | None
    reported: int
    free: int
    tags: dict[str, str | None]


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


class HostQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which hosts are listed."""

    cluster: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    state: HostState | UnsetType = UNSET


class InventoryOperations:
    """Serves what is known of clusters and hosts."""

    def __init__(
        self,
        *,
        access: Access,
        fleet: Fleet,
        clusters: Callable[[], Iterable[str]],
        nova_policy: Callable[[], ClusterPolicy],
        down_after_s: float,
    ) -> None:
        """``clusters`` has the names of all clusters, also of those without hosts.

        A host without a heartbeat for ``down_after_s`` counts as down.
        """
        self._access = access
        self._fleet = fleet
        self._listing = Listing(fleet)
        self._clusters = clusters
        self._nova_policy = nova_policy
        self._down_after_s = down_after_s

    def operations(self) -> Sequence[Operation]:
        """What is served."""
        return [
            Operation(
                "GET", "/clusters", "list_clusters", "Clusters by name.", self.list_clusters,
                answer=Page[Cluster], query=PageQuery,
            ),
            Operation(
                "GET", "/clusters/{name}", "get_cluster", "A cluster with its policy.",
                self.get_cluster, answer=ClusterDetails,
            ),
            Operation(
                "GET", "/hosts", "list_hosts", "Hosts by uuid.", self.list_hosts,
                answer=Page[Host], query=HostQuery,
            ),
            Operation(
                "GET", "/hosts/{name}", "get_host",
                "A host by its uuid, or by a name that no other host has.", self.get_host,
                answer=HostDetails, errors=(HTTPStatus.CONFLICT,),
            ),
        ]  # fmt: skip

    # Clusters

    def list_clusters(self, call: Call) -> Answer:
        self._check_reader(call)
        marker = given(call.query.marker) or ""
        names = sorted(each for each in self._clusters() if each > marker)
        shown = names[: call.query.limit]
        following = shown[-1] if len(names) > len(shown) else None
        return call.page([self._cluster(each)[0] for each in shown], following)

    def get_cluster(self, call: Call, name: str) -> Answer:
        self._check_reader(call)
        if name not in self._clusters():
            raise NotFound("cluster", name)
        cluster, policy = self._cluster(name)
        document = policies.to_plain(policy)
        return Answer(ClusterDetails(**msgspec.structs.asdict(cluster), document=document))

    def _cluster(self, name: str) -> tuple[Cluster, ClusterPolicy]:
        replica = self._fleet.cluster(name)
        with replica.lock:
            replica.refresh(self._fleet.store)
            policy = replica.policy or self._nova_policy()
            cluster = Cluster(
                name=name,
                policy=Policy(policy.id, policy.name, policy.version),
                hosts=len(replica.table),
                reservations=len(replica.reservations),
            )
        return cluster, policy

    # Hosts

    def list_hosts(self, call: Call) -> Answer:
        self._check_reader(call)
        query: HostQuery = call.query

        def is_wanted(replica: ClusterReplica, uuid: str) -> bool:
            record = record_of(replica, uuid)
            if query.name is not UNSET and query.name not in {record.host, record.nodename}:
                return False
            state = state_of(record, replica.table.now_s, self._down_after_s)
            return query.state in {UNSET, state}

        page = self._listing.page(
            "hosts", hosts_of, self._host,
            given(query.cluster), given(query.marker), query.limit,
            where=None if query.name is query.state is UNSET else is_wanted,
        )  # fmt: skip
        return call.page(page["hosts"], page["next"])

    def get_host(self, call: Call, name: str) -> Answer:
        self._check_reader(call)

        def called(replica: ClusterReplica) -> Iterable[str]:
            return hosts_called(replica, name)

        def is_node(replica: ClusterReplica, uuid: str) -> bool:
            return record_of(replica, uuid).nodename == name

        # Names of nodes have no index; few differ from the name of their host.
        for keys_of, where in (called, None), (hosts_of, is_node):
            page = self._listing.page(
                "hosts", keys_of, self._details, None, None, MOST_OF_A_NAME, where=where
            )
            if page["hosts"]:
                break
        return Answer(only_host(page["hosts"], name))

    def _host(self, replica: ClusterReplica, uuid: str) -> Host:
        table, record = self._fleet.prepare(replica), record_of(replica, uuid)
        reserved = [each.resources for each in table.reservations_of_host(uuid)]
        state = state_of(record, table.now_s, self._down_after_s)
        used, limit = reported_use(record), limits_of(record)
        aggregates = table.aggregates_of(record.host)
        reason = out_of_service(record)
        if state == "down" and reason is None:
            reason = f"it has not been heard of within {self._down_after_s:g} s"
        return Host(
            uuid=uuid,
            name=record.host,
            nodename=record.nodename,
            cluster=replica.scope,
            zones=sorted(zones(aggregates)),
            state=state,
            reason=reason,
            reported_at=moment(compute_reported_at_s(record)),
            vcpus=Amount(
                record.vcpus, used.vcpus, sum(each.vcpus for each in reserved), limit.vcpus
            ),
            memory_mb=Amount(
                record.memory_mb,
                used.memory_mb,
                sum(each.memory_mb for each in reserved),
                limit.memory_mb,
            ),
            disk_mb=Amount(
                1024 * record.local_gb,
                used.disk_mb,
                sum(each.disk_mb for each in reserved),
                limit.disk_mb,
            ),
            aggregates=sorted(each.name for each in aggregates),
            instances=len(table.reported_instances(record.host)),
            reservations=len(reserved),
        )

    def _details(self, replica: ClusterReplica, uuid: str) -> HostDetails:
        row = replica.table.row_of(uuid)
        assert row is not None  # noqa: S101 - listed under the same lock
        record, host = replica.table.records[row], replica.table.state(row)
        topology: NUMATopology | None = host.numa_topology
        return HostDetails(
            **msgspec.structs.asdict(self._host(replica, uuid)),
            instance_uuids=sorted(replica.table.reported_instances(record.host)),
            numa_cells=[_cell(each) for each in topology.cells] if topology else [],
            devices=_devices(record, host.pci_pools),
            record=msgspec.to_builtins(record),
        )

    def _check_reader(self, call: Call) -> None:
        self._access.check(call.caller, Action.READ, "")


MOST_OF_A_NAME = 20
"""Hosts of one name that an error lists."""


class _Identified(Protocol):
    @property
    def uuid(self) -> str: ...


AnyHost = TypeVar("AnyHost", bound=_Identified)


def only_host(found: Sequence[AnyHost], name: str, what: str = "host") -> AnyHost:
    """The host that a name means, of all that have it; one of this uuid comes first.

    Raises NotFound where there is none, and Failed with 409 where there are several.
    """
    exact = [each for each in found if each.uuid == name] or found
    if not exact:
        raise NotFound(what, name)
    if len(exact) > 1:
        uuids = ", ".join(each.uuid for each in exact)
        raise Failed(
            HTTPStatus.CONFLICT, f"Several hosts have the name {name!r}; use a uuid: {uuids}."
        )
    return exact[0]


def _cell(cell: NUMACell) -> NumaCell:
    return NumaCell(
        id=cell.id,
        socket=cell.socket,
        memory_mb=cell.memory,
        memory_used_mb=cell.memory_usage,
        shared_cpus=list(numbers(cell.cpuset)),
        dedicated_cpus=list(numbers(cell.pcpuset)),
        pinned_cpus=list(numbers(cell.pcpuset & ~cell.free_pcpus)),
        cores=[list(numbers(each)) for each in cell.siblings],
        pages=[
            NumaPages(each.size_kb, each.total, each.used + each.reserved) for each in cell.mempages
        ],
    )


def _devices(record: HostRecord, free: PCIPools) -> list[Devices]:
    """The pools as reported, each with what reservations leave of it."""
    return [
        Devices(
            vendor_id=pool.vendor_id,
            product_id=pool.product_id,
            numa_node=pool.numa_node,
            reported=pool.count,
            free=sum(each.count for each in free if each.is_of(pool)),
            tags=pool.tags,
        )
        for pool in read_pci_pools(record.pci_device_pools)
    ]
