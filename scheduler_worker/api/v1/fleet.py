"""All hosts at once in columns, for pictures of a whole fleet."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from scheduler_worker.api.access import Access
from scheduler_worker.api.rights import Action
from scheduler_worker.api.v1.operations import Answer, Call, Operation
from scheduler_worker.errors import NotFound
from scheduler_worker.model.aggregates import zones
from scheduler_worker.model.host_records import (
    HostRecord,
    HostState,
    compute_reported_at_s,
    limits_of,
    reported_use,
    state_of,
)
from scheduler_worker.model.hosts import ClaimOrReservation
from scheduler_worker.service.state.replica import ClusterReplica, Fleet


class Use(msgspec.Struct, frozen=True):
    """An amount of each host: the limit of its use, its use as reported, and what is reserved."""

    limit: list[int] = []
    used: list[int] = []
    reserved: list[int] = []

    def add(self, limit: int, used: int, reserved: int) -> None:
        """Append one host."""
        self.limit.append(limit)
        self.used.append(used)
        self.reserved.append(reserved)


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
    vcpus: Use = msgspec.field(default_factory=Use)
    memory_mb: Use = msgspec.field(default_factory=Use)
    disk_mb: Use = msgspec.field(default_factory=Use)


class FleetQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of which cluster the hosts are; all, if it is left out."""

    cluster: str | UnsetType = UNSET


class FleetOperations:
    """Serves the whole fleet."""

    def __init__(self, access: Access, fleet: Fleet, down_after_s: float) -> None:
        """A host without a heartbeat for ``down_after_s`` counts as down."""
        self._access = access
        self._fleet = fleet
        self._down_after_s = down_after_s

    def operations(self) -> Sequence[Operation]:
        """What is served."""
        return [
            Operation(
                "GET", "/fleet", "get_fleet", "All hosts in columns, without pages.",
                self.get_fleet, answer=FleetColumns, query=FleetQuery,
            )
        ]  # fmt: skip

    def get_fleet(self, call: Call) -> Answer:
        self._access.check(call.caller, Action.READ, "")
        query: FleetQuery = call.query
        self._fleet.refresh_globals()
        names = sorted(self._fleet.names())
        if query.cluster is not UNSET:
            if query.cluster not in names:
                raise NotFound("cluster", query.cluster)
            names = [query.cluster]
        columns = FleetColumns()
        for name in names:
            self._add(columns, self._fleet.cluster(name))
        return Answer(columns)

    def _add(self, columns: FleetColumns, replica: ClusterReplica) -> None:
        with replica.lock:  # decisions need it: nothing is computed of the records meanwhile
            replica.refresh(self._fleet.store)
            table = self._fleet.prepare(replica)
            now_s = table.now_s
            aggregates = table.aggregates
            found = [
                (record, len(table.reported_instances(record.host)), held)
                for record in table.records
                for held in [table.reservations_of_host(record.uuid)]
            ]
        found.sort(key=lambda each: each[0].uuid)
        for record, instances, held in found:
            columns.cluster.append(replica.scope)
            columns.zone.append(min(zones(aggregates.get(record.host, ())), default=None))
            columns.instances.append(instances)
            columns.reservations.append(len(held))
            self._add_host(columns, record, now_s)
            _add_use(columns, record, held)

    def _add_host(self, columns: FleetColumns, record: HostRecord, now_s: float) -> None:
        reported_at_s = compute_reported_at_s(record)
        columns.uuid.append(record.uuid)
        columns.name.append(record.host)
        columns.state.append(state_of(record, now_s, self._down_after_s))
        columns.age_s.append(max(0, round(now_s - reported_at_s)) if reported_at_s else None)


def _add_use(columns: FleetColumns, record: HostRecord, held: Sequence[ClaimOrReservation]) -> None:
    limit, used = limits_of(record), reported_use(record)
    reserved = [each.resources for each in held]
    columns.vcpus.add(limit.vcpus, used.vcpus, sum(each.vcpus for each in reserved))
    columns.memory_mb.add(limit.memory_mb, used.memory_mb, sum(each.memory_mb for each in reserved))
    columns.disk_mb.add(limit.disk_mb, used.disk_mb, sum(each.disk_mb for each in reserved))
