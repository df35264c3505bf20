"""Pages over all clusters, of what this process's replicas hold, brought up to date first."""

import contextlib
import heapq
from collections.abc import Callable, Iterable
from typing import TypeVar

from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.service.state.replica import ClusterReplica, Fleet

Row = TypeVar("Row")


def page(
    fleet: Fleet,
    keys_of: Callable[[ClusterReplica], Iterable[str]],
    row: Callable[[ClusterReplica, str], Row],
    *,
    limit: int,
    cluster: str | None = None,
    marker: str | None = None,
    where: Callable[[ClusterReplica, str], bool] | None = None,
) -> tuple[list[Row], str | None]:
    """The rows after the marker, of one cluster or all, for which ``where`` holds; the next marker.

    Only the rows of the page are built, and only their keys are kept meanwhile: a page takes as
    much memory in a large fleet as in a small one. Raises RequestError for an unknown cluster, and
    StateUnavailable.
    """
    fleet.refresh_globals()
    replicas = list(fleet.clusters()) if cluster is None else [fleet.known_cluster(cluster)]
    with contextlib.ExitStack() as held:
        for replica in replicas:
            held.enter_context(replica.reading(fleet.store))
        pairs = (
            (key, replica)
            for replica in replicas
            for key in keys_of(replica)
            if (marker is None or key > marker) and (where is None or where(replica, key))
        )
        first = heapq.nsmallest(limit + 1, pairs, key=lambda pair: pair[0])
        shown = first[:limit]
        rows = [row(replica, key) for key, replica in shown]
    return rows, shown[-1][0] if len(first) > limit else None


def hosts_of(replica: ClusterReplica) -> Iterable[str]:
    """The uuids of a cluster's hosts."""
    return (record.uuid for record in replica.table.records)


def record_of(replica: ClusterReplica, uuid: str) -> HostRecord:
    """The record of a host that the replica has; the caller holds its lock."""
    row = replica.table.row_of(uuid)
    assert row is not None  # noqa: S101 - listed under the same lock
    return replica.table.records[row]
