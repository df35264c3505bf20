"""Pages of what the state holds, for operators and tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.hosts import HostState
from scheduler_worker.service.replica import ClusterReplica, Fleet

DEFAULT_LIMIT = 1000
MAX_LIMIT = 10_000

Page = dict[str, Any]


class Listing:
    """Reads the state through this process's replicas, brought up to date first."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def clusters(self, marker: str | None = None, limit: int | None = None) -> Page:
        """Clusters by name, with how much each holds."""
        rows = {}
        for replica in self._replicas(None):
            with replica.lock:
                replica.refresh(self._fleet.store)
                rows[replica.scope] = {
                    "cluster": replica.scope,
                    "version": replica.seen.version,
                    "epoch": replica.seen.epoch,
                    "hosts": len(replica.table),
                    "reservations": len(replica.promises),
                }
        return _page("clusters", rows, marker, limit)

    def hosts(
        self, cluster: str | None = None, marker: str | None = None, limit: int | None = None
    ) -> Page:
        """Hosts by uuid: the record, its aggregates and instances, and what is promised on it."""
        rows: dict[str, Mapping[str, Any]] = {}
        versions = {}
        for replica in self._replicas(cluster):
            with replica.lock:
                replica.refresh(self._fleet.store)
                versions[replica.scope] = replica.seen.version
                for host in self._fleet.prepare(replica).states():
                    rows[host.uuid] = _host(host, replica)
        return {**_page("hosts", rows, marker, limit), "version": versions}

    def reservations(
        self, cluster: str | None = None, marker: str | None = None, limit: int | None = None
    ) -> Page:
        """Live promises by id."""
        rows: dict[str, Mapping[str, Any]] = {}
        versions = {}
        for replica in self._replicas(cluster):
            with replica.lock:
                replica.refresh(self._fleet.store)
                versions[replica.scope] = replica.seen.version
                rows.update(
                    {
                        id: {"cluster": replica.scope, **_promise(each)}
                        for id, each in replica.promises.items()
                    }
                )
        return {**_page("reservations", rows, marker, limit), "version": versions}

    def _replicas(self, cluster: str | None) -> Iterable[ClusterReplica]:
        self._fleet.refresh_globals()
        if cluster is None:
            return self._fleet.clusters()
        if cluster not in self._fleet.names():
            known = ", ".join(self._fleet.names()) or "none"
            raise RequestError("cluster", f"there is no cluster {cluster!r}; known are {known}")
        return [self._fleet.cluster(cluster)]


def _host(host: HostState, replica: ClusterReplica) -> dict[str, Any]:
    promises = replica.table.promises_of_host(host.uuid)
    return {
        **msgspec.to_builtins(msgspec.structs.asdict(host.record)),
        "aggregates": [each.name for each in host.aggregates],
        "instances": sorted(replica.table.reported_instances(host.host)),
        "promised": {
            "instances": sorted(each.instance_uuid for each in promises),
            "vcpus": sum(each.resources.vcpus for each in promises),
            "memory_mb": sum(each.resources.memory_mb for each in promises),
            "disk_mb": sum(each.resources.disk_mb for each in promises),
        },
    }


def _promise(reservation: Reservation) -> dict[str, Any]:
    return {"id": reservation.id, **msgspec.to_builtins(msgspec.structs.asdict(reservation))}


def _page(
    name: str, rows: Mapping[str, Mapping[str, Any]], marker: str | None, limit: int | None
) -> Page:
    limit = DEFAULT_LIMIT if limit is None else limit
    if not 1 <= limit <= MAX_LIMIT:
        raise RequestError("limit", f"must be from 1 to {MAX_LIMIT}, got {limit}")
    keys = [key for key in sorted(rows) if marker is None or key > marker]
    shown = keys[:limit]
    return {
        name: [rows[key] for key in shown],
        "next": shown[-1] if len(keys) > limit else None,
    }
