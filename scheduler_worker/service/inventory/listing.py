"""Lists clusters, hosts and reservations in pages, for operators and tools."""

from __future__ import annotations

import contextlib
import heapq
import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.model.host_records import (
    HostRecord,
    HostState,
    compute_reported_at_s,
    out_of_service,
    state_of,
)
from scheduler_worker.service.state.replica import ClusterReplica, Fleet

DEFAULT_LIMIT = 1000
MAX_LIMIT = 10_000

Page = dict[str, Any]
Row = dict[str, Any]


class Listing:
    """Reads the state through this process's replicas, brought up to date first."""

    def __init__(self, fleet: Fleet, *, down_after_s: float = math.inf) -> None:
        """A host without a heartbeat for ``down_after_s`` counts as down."""
        self._fleet = fleet
        self._down_after_s = down_after_s

    def clusters(self, marker: str | None = None, limit: int | None = None) -> Page:
        """Clusters by name, with the number of hosts and reservations of each."""
        page = self.page("clusters", _name_of, _cluster, None, marker, limit)
        del page["version"]
        return page

    def hosts(
        self,
        cluster: str | None = None,
        marker: str | None = None,
        limit: int | None = None,
        *,
        host: str | None = None,
        state: str | None = None,
    ) -> Page:
        """Hosts by uuid: record, state, aggregates, instances, and the sum of the reservations.

        ``host`` is a name, node name or uuid, ``state`` one of
        :data:`~scheduler_worker.model.host_records.HOST_STATES`.
        """

        def is_wanted(replica: ClusterReplica, uuid: str) -> bool:
            record = record_of(replica, uuid)
            is_named = host in {None, uuid, record.host, record.nodename}
            return is_named and state in {None, self._state(replica, record)}

        return self.page("hosts", hosts_of, self._host, cluster, marker, limit, where=is_wanted)

    def reservations(
        self,
        cluster: str | None = None,
        marker: str | None = None,
        limit: int | None = None,
        *,
        host: str | None = None,
        instance: str | None = None,
    ) -> Page:
        """Live reservations by id; ``host`` as in :meth:`hosts`, ``instance`` is a uuid."""

        def is_wanted(replica: ClusterReplica, reservation_id: str) -> bool:
            found = replica.reservations[reservation_id]
            is_there = host in {None, found.host, found.nodename, found.host_uuid}
            return is_there and instance in {None, found.instance_uuid}

        return self.page(
            "reservations", reservations_of, _reservation, cluster, marker, limit, where=is_wanted
        )

    def page(
        self,
        name: str,
        keys_of: Callable[[ClusterReplica], Iterable[str]],
        row: Callable[[ClusterReplica, str], object],
        cluster: str | None,
        marker: str | None,
        limit: int | None,
        *,
        where: Callable[[ClusterReplica, str], bool] | None = None,
    ) -> Page:
        """The rows after the marker, of one cluster or all, for which ``where`` holds.

        Only the rows of the page are built, and only their keys are kept meanwhile: a page takes as
        much memory in a large fleet as in a small one. Raises RequestError for a limit out of
        bounds and an unknown cluster.
        """
        limit = DEFAULT_LIMIT if limit is None else limit
        if not 1 <= limit <= MAX_LIMIT:
            raise RequestError("limit", f"must be from 1 to {MAX_LIMIT}, got {limit}")
        versions: dict[str, int] = {}
        with contextlib.ExitStack() as held:
            replicas = list(self._replicas(cluster))
            for replica in replicas:
                held.enter_context(replica.lock)
                replica.refresh(self._fleet.store)
                versions[replica.scope] = replica.seen.version
            found = (
                (key, replica)
                for replica in replicas
                for key in keys_of(replica)
                if (marker is None or key > marker) and (where is None or where(replica, key))
            )
            first = heapq.nsmallest(limit + 1, found, key=lambda pair: pair[0])
            shown = first[:limit]
            return {
                name: [row(replica, key) for key, replica in shown],
                "next": shown[-1][0] if len(first) > limit else None,
                "version": versions,
            }

    def _host(self, replica: ClusterReplica, uuid: str) -> Row:
        table = self._fleet.prepare(replica)
        row = table.row_of(uuid)
        assert row is not None  # noqa: S101 - listed under the same lock
        host = table.state(row)
        reservations = table.reservations_of_host(uuid)
        return {
            **msgspec.to_builtins(msgspec.structs.asdict(host.record)),
            "state": self._state(replica, host.record),
            "state_reason": out_of_service(host.record),
            "compute_reported_at_s": compute_reported_at_s(host.record),
            "aggregates": [each.name for each in host.aggregates],
            "instances": sorted(table.reported_instances(host.host)),
            "promised": {
                "instances": sorted(each.instance_uuid for each in reservations),
                "vcpus": sum(each.resources.vcpus for each in reservations),
                "memory_mb": sum(each.resources.memory_mb for each in reservations),
                "disk_mb": sum(each.resources.disk_mb for each in reservations),
            },
        }

    def _state(self, replica: ClusterReplica, record: HostRecord) -> HostState:
        return state_of(record, replica.table.now_s, self._down_after_s)

    def _replicas(self, cluster: str | None) -> Iterable[ClusterReplica]:
        self._fleet.refresh_globals()
        if cluster is None:
            return self._fleet.clusters()
        if cluster not in self._fleet.names():
            known = ", ".join(self._fleet.names()) or "none"
            raise RequestError("cluster", f"there is no cluster {cluster!r}; known are {known}")
        return [self._fleet.cluster(cluster)]


def _name_of(replica: ClusterReplica) -> Iterable[str]:
    return [replica.scope]


def _cluster(replica: ClusterReplica, name: str) -> Row:
    return {
        "cluster": name,
        "version": replica.seen.version,
        "epoch": replica.seen.epoch,
        "hosts": len(replica.table),
        "reservations": len(replica.reservations),
    }


def hosts_of(replica: ClusterReplica) -> Iterable[str]:
    """The uuids of a cluster's hosts."""
    return (record.uuid for record in replica.table.records)


def hosts_called(replica: ClusterReplica, name: str) -> Iterable[str]:
    """The uuids of a cluster's hosts with this uuid or host name; all of them are not read."""
    table = replica.table
    return [name] if table.row_of(name) is not None else [each.uuid for each in table.find(name)]


def reservations_of(replica: ClusterReplica) -> Iterable[str]:
    """The ids of a cluster's reservations."""
    return replica.reservations.keys()


def record_of(replica: ClusterReplica, uuid: str) -> HostRecord:
    """The record of a host that the replica has; the caller holds its lock."""
    row = replica.table.row_of(uuid)
    assert row is not None  # noqa: S101 - listed under the same lock
    return replica.table.records[row]


def _reservation(replica: ClusterReplica, reservation_id: str) -> Row:
    stored = msgspec.to_builtins(msgspec.structs.asdict(replica.reservations[reservation_id]))
    return {"cluster": replica.scope, "id": reservation_id, **stored}
