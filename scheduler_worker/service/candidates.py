"""Which clusters may serve a request, and which of them first."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.hold import Means
from scheduler_worker.service.replica import ClusterReplica

CLUSTER_HINT = "cluster"
"""The scheduler hint that names a cluster."""


class Prospect(NamedTuple):
    """The clusters that seem to have a host for a request, the most promising first."""

    clusters: Sequence[ClusterReplica]
    is_apart: bool = False
    """Its instances are in several of them already."""


def told_of_destination(
    refused: NoValidHost, replicas: Sequence[ClusterReplica], spec: RequestSpec
) -> NoValidHost:
    """The refusal, in Nova's words where a destination or forced host is in no cluster."""
    destination = spec.requested_destination
    host = (destination and destination.host) or next(iter(spec.force_hosts or ()), None)
    node = (destination and destination.node) or next(iter(spec.force_nodes or ()), None)
    if (not host and not node) or any(_has(replica, host, node) for replica in replicas):
        return refused
    return NoValidHost(f"No such host - host: {host} node: {node} ", refused.diagnosis)


def _has(replica: ClusterReplica, host: str | None, node: str | None) -> bool:
    with replica.lock:
        records = replica.table.records
        named = replica.table.rows_of([host], ignore_case=True).nonzero()[0] if host else None
        rows = range(len(records)) if named is None else named.tolist()
        return any(not node or records[row].nodename == node for row in rows)


class Candidates:
    """The clusters of the fleet, as one request sees them."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._globals_read_s = float("-inf")
        self._has_known_several = False

    def freshen(self) -> None:
        """Look for aggregates and new clusters, if that was not done a short while ago."""
        now_s = self._means.clock.monotonic_s()
        is_old = now_s - self._globals_read_s > self._means.limits.globals_max_age_s
        if is_old or not self._means.fleet.names():
            self._means.fleet.refresh_globals()
            self._globals_read_s = now_s

    def serving(self, request: Request) -> Sequence[ClusterReplica]:
        """The clusters that may serve the request: the one that it names, or all.

        Raises:
            RequestError: it names a cluster that does not exist.
        """
        fleet = self._means.fleet
        named = request.spec.hint(CLUSTER_HINT)
        names = fleet.names()
        if named is not None:
            if not isinstance(named, str) or named not in names:
                raise RequestError(
                    "spec_obj.scheduler_hints.cluster",
                    f"there is no cluster {named!r}; known are {', '.join(names) or 'none'}",
                )
            return [fleet.cluster(named)]
        clusters = fleet.clusters()
        self._has_known_several |= len(clusters) > 1
        return clusters

    def roams(self, request: Request) -> bool:
        """Whether the request may go to any of several clusters.

        A fleet that had several has them still: after a loss of the store they report one by one.
        """
        return self._has_known_several and request.spec.hint(CLUSTER_HINT) is None

    def promising(
        self,
        replicas: Sequence[ClusterReplica],
        request: Request,
        claimed: Mapping[str, int] | None = None,
    ) -> Prospect:
        """Those that seem to have a host for it, if any has: the most promising first.

        That is where an instance has its host already, or was said to be decided (by others than
        the request, which has ``claimed`` it at these versions); then where the best weight is. In
        none of the others may an earlier delivery of the request have a promise, made by another
        worker say; so all are looked at now. Requests that come together share these looks.
        """
        if len(replicas) < 2:
            return Prospect(replicas)
        store, clock = self._means.fleet.store, self._means.clock
        now_s = clock.monotonic_s()
        for replica in (self._means.whereabouts, *replicas):
            replica.catch_up(store, clock, now_s)
        homes = self._homes(replicas, request, claimed)
        scores = self._scores(replicas, request.spec)
        fitting = [
            each for each in replicas if each.scope in homes or scores[each.scope] is not None
        ]
        in_order = sorted(
            fitting or replicas,
            key=lambda each: (each.scope not in homes, -(scores[each.scope] or 0.0)),
        )
        return Prospect(in_order, is_apart=len(homes) > 1)

    def _homes(
        self,
        replicas: Sequence[ClusterReplica],
        request: Request,
        claimed: Mapping[str, int] | None,
    ) -> set[str]:
        """The clusters where its instances are promised, or else are being decided."""
        found = self._means.whereabouts.said_by_others(request.instance_uuids, claimed)
        for replica in replicas:
            with replica.lock:
                promised = self._means.ground(replica).promised(request)
            found.update(dict.fromkeys(promised, replica.scope))
        return set(found.values())

    def _scores(
        self, replicas: Sequence[ClusterReplica], spec: RequestSpec
    ) -> dict[str, float | None]:
        """The best weight in each cluster, as they look without their locks; None: nothing fits."""
        with contextlib.ExitStack() as held:
            for replica in replicas:
                held.enter_context(replica.lock)
            tables = [self._means.fleet.prepare(replica) for replica in replicas]
            best = self._means.pipeline().best_weights(tables, spec)
        return dict(zip((replica.scope for replica in replicas), best, strict=True))
