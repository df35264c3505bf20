"""All hosts at once in columns, for pictures of a whole fleet."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from scheduler_worker.errors import NotFound
from scheduler_worker.model.aggregates import zones
from scheduler_worker.model.host_records import HostState, compute_reported_at_s, state_of
from scheduler_worker.operations.hosts import Amount, amounts_of
from scheduler_worker.operations.operation import Call, operation

if TYPE_CHECKING:
    from scheduler_worker.operations.services import UseCases
    from scheduler_worker.service.state.replica import ClusterReplica


class ResourceUse(msgspec.Struct, frozen=True):
    """An amount of each host: the limit of its use, its use as reported, and what is reserved."""

    limit: list[int] = []
    used: list[int] = []
    reserved: list[int] = []

    def add(self, amount: Amount) -> None:
        """Append one host."""
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


@operation("GET", "/fleet")
def get_fleet(call: Call, query: FleetQuery) -> FleetColumns:
    """Show all hosts in columns, without pages."""
    fleet = call.services.fleet
    fleet.refresh_globals()
    names = sorted(fleet.names())
    if query.cluster is not None:
        if query.cluster not in names:
            raise NotFound("cluster", query.cluster)
        names = [query.cluster]
    columns = FleetColumns()
    for name in names:
        _add(columns, call.services, fleet.cluster(name))
    return columns


def _add(columns: FleetColumns, services: "UseCases", replica: "ClusterReplica") -> None:
    with replica.lock:  # decisions need it: nothing is computed of the records meanwhile
        replica.refresh(services.fleet.store)
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
