"""From a request to reserved hosts: the clusters that may serve it, in their order, and decisions.

A request is decided in one cluster if possible, over all otherwise, under the cluster's lock, on
hosts less all reservations. A decision counts only once the store has accepted the claims under the
fencing token. A refused commit costs another attempt, never a double booking.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler_worker.errors import NoValidHost, RequestError
from scheduler_worker.model.decisions import Decision, Diagnosis, nearness
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.ports import Seen
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Request
from scheduler_worker.scheduling.queue_priority import priority_boost_s
from scheduler_worker.service.requests import multi_cluster
from scheduler_worker.service.requests.dependencies import PlacementDependencies
from scheduler_worker.service.requests.lease import ClusterView, migration_of
from scheduler_worker.service.requests.queue import ClusterQueue
from scheduler_worker.service.state.attempt import CLUSTER_HINT, PlacementAttempt
from scheduler_worker.service.state.replica import ClusterReplica
from scheduler_worker.service.state.reservations import given_up, reserved_rows

_MAX_READS = 4
"""How often all clusters are read while hosts move between them."""


class Candidates(NamedTuple):
    """The clusters to try for a request, the best first."""

    clusters: Sequence[ClusterReplica]
    is_split: bool = False
    """Whether its instances are in several of them already."""
    moves_seen: Mapping[str, int] = {}
    """Cluster -> its count of host moves when it was read."""


class _Instances(NamedTuple):
    """What clusters know of a request's instances."""

    moves_seen: Mapping[str, int]
    """Cluster -> its count of host moves before it was read."""
    homes: dict[str, str]
    """Instance uuid -> the cluster of its reservation."""
    moving: list[ClusterReplica]
    """The clusters in which a balance moves one."""
    given_up: set[str]
    """The clusters where one gives up its host."""


def refusal(
    refused: NoValidHost, replicas: Sequence[ClusterReplica], spec: RequestSpec
) -> NoValidHost:
    """The refusal to answer: more specific where there are no hosts, or none of that name.

    A destination or forced host that is in no cluster is reported in Nova's words.
    """
    destination = spec.requested_destination
    host = (destination and destination.host) or next(iter(spec.force_hosts or ()), None)
    node = (destination and destination.node) or next(iter(spec.force_nodes or ()), None)
    if (host or node) and not any(_has(replica, host, node) for replica in replicas):
        return NoValidHost(f"No such host - host: {host} node: {node} ", refused.diagnosis)
    if refused.reason != NOT_ENOUGH_HOSTS or any(len(replica.table) for replica in replicas):
        return refused
    where = f" to cluster {replicas[0].scope}" if spec.hint(CLUSTER_HINT) else ""
    return NoValidHost(f"There are no hosts: none has reported{where}.", refused.diagnosis)


def _has(replica: ClusterReplica, host: str | None, node: str | None) -> bool:
    with replica.lock:
        records = replica.table.records
        named = replica.table.rows_of([host], ignore_case=True).nonzero()[0] if host else None
        rows = range(len(records)) if named is None else named.tolist()
        return any(not node or records[row].nodename == node for row in rows)


class ClusterChoice:
    """Chooses the candidate clusters of requests from the clusters of the fleet."""

    def __init__(self, deps: PlacementDependencies) -> None:
        self._deps = deps
        self._globals_read_s = float("-inf")
        self._has_known_several = False

    def refresh_globals(self, since_s: float | None = None) -> Seen:
        """Read aggregates and cluster names, unless that was done a short while ago.

        With ``since_s``: unless it was done after that time of the monotonic clock. Returns what
        this process has seen of them.
        """
        now_s = self._deps.clock.monotonic_s()
        if since_s is None:
            since_s = now_s - self._deps.limits.globals_max_age_s
        if self._globals_read_s <= since_s or not self._deps.fleet.globals.names:
            self._deps.fleet.refresh_globals()
            self._globals_read_s = now_s
        return self._deps.fleet.globals.seen

    def eligible(self, request: Request) -> Sequence[ClusterReplica]:
        """The clusters that may serve the request: its named one, or all. Raises RequestError."""
        fleet = self._deps.fleet
        named = request.spec.hint(CLUSTER_HINT)
        if named is not None:
            if named not in fleet.globals.names:
                self.refresh_globals(self._deps.clock.monotonic_s())
            names = fleet.globals.names
            if not isinstance(named, str) or named not in names:
                raise RequestError(
                    "spec_obj.scheduler_hints.cluster",
                    f"there is no cluster {named!r}; known are {', '.join(names) or 'none'}",
                )
            return [fleet.cluster(named)]
        clusters = fleet.clusters()
        self._has_known_several |= len(clusters) > 1
        return self._decidable(clusters)

    def _decidable(self, replicas: Sequence[ClusterReplica]) -> Sequence[ClusterReplica]:
        """Those whose policy this worker has all units for; all of them if there are none such."""
        pipelines = self._deps.pipelines()
        return [replica for replica in replicas if pipelines.can_decide(replica)] or replicas

    def any_cluster(self, request: Request) -> bool:
        """Whether the request may go to any of several clusters.

        A fleet that had several clusters counts as having them still: after the store has lost its
        data, clusters reappear one by one as their hosts report.
        """
        return self._has_known_several and request.spec.hint(CLUSTER_HINT) is None

    def candidates(
        self, replicas: Sequence[ClusterReplica], request: Request, declared: Mapping[str, int] = {}
    ) -> Candidates:
        """The clusters that seem to have a host for the request, if any has; otherwise all.

        First come the clusters where an instance has its host already, gives one up, or was
        declared to be decided (by others than the request, which ``declared`` intents at these
        versions), then those with the best weights. All clusters are read first, because an earlier
        delivery of the request may have a reservation in any of them, made by another worker.
        Concurrent requests share these reads.
        """
        if len(replicas) < 2:
            return Candidates(replicas)
        known = self._instances(replicas, request)
        # A VM that a balance moves stays in its cluster.
        if known.moving:
            return Candidates(known.moving, moves_seen=known.moves_seen)
        replicas = self._decidable(replicas)
        intents = self._deps.placement_intents.by_others(request.instance_uuids, declared)
        homes = {*(intents | known.homes).values()}
        with contextlib.ExitStack() as held:
            # In the order of their names: the fleet lists them so.
            for replica in replicas:
                held.enter_context(replica.lock)
            views = [ClusterView.current(self._deps, replica) for replica in replicas]
            fitting = [replicas[at] for at in multi_cluster.in_order(views, request.spec)]
        preferred = homes | known.given_up
        at_home = [replica for replica in (*fitting, *replicas) if replica.scope in preferred]
        ranked = list(dict.fromkeys((*at_home, *fitting))) or replicas
        return Candidates(ranked, is_split=len(homes) > 1, moves_seen=known.moves_seen)

    def _instances(self, replicas: Sequence[ClusterReplica], request: Request) -> _Instances:
        """Read all clusters, and look for the request's instances in them."""
        store, clock = self._deps.fleet.store, self._deps.clock
        for _ in range(_MAX_READS):
            known = _Instances(_moves_seen(replicas), {}, [], set())
            now_s = clock.monotonic_s()
            for scope in (self._deps.placement_intents, *replicas):
                scope.catch_up(store, clock, now_s)
            # A reservation that leaves with its host is in no cluster until the host has arrived.
            self._deps.moves.finish(instances=request.instance_uuids)
            for replica in replicas:
                with replica.lock:
                    table = self._deps.fleet.prepare(replica)
                    reserved = reserved_rows(replica, table, request)
                    known.homes.update(dict.fromkeys(reserved, replica.scope))
                    if migration_of(replica, request) is not None:
                        known.moving.append(replica)
                    if given_up(replica, table, request):
                        known.given_up.add(replica.scope)
            nothing_moved = known.moves_seen == _moves_seen(replicas)
            if nothing_moved or len(known.homes) == len(request.instance_uuids):
                break
            # Otherwise one may have gone from a cluster not yet read to one read already.
        return known


def _moves_seen(replicas: Sequence[ClusterReplica]) -> dict[str, int]:
    return {replica.scope: replica.moves_seen for replica in replicas}


class ClusterQueues:
    """The queues of all clusters; safe for threads."""

    def __init__(self, deps: PlacementDependencies) -> None:
        self._deps = deps
        self._queues: dict[str, ClusterQueue] = {}

    def describe(self, cluster: str) -> dict[str, object]:
        """The requests in a cluster's queue, and this process's lease of it; takes no lock."""
        now_s = self._deps.clock.monotonic_s()
        queue, grants = self._queues.get(cluster), list(self._deps.grants.values())
        # After a lease that has expired there may be another; the newer one is the lock's.
        grant = next((grant for grant in reversed(grants) if grant.scope == cluster), None)
        arrivals_s = queue.arrivals_s() if queue else []
        return {
            "in_line": len(arrivals_s),
            "oldest_s": round(now_s - min(arrivals_s, default=now_s), 3),
            "token": grant and grant.token.number,
            "held_s": grant and round(now_s - grant.granted_at_s, 3),
        }

    async def decide(
        self, candidates: Candidates, attempt: PlacementAttempt, deadline_s: float
    ) -> Decision:
        """Wait in the queue until ``deadline_s``, decide, and reserve its hosts.

        Raises as :meth:`ClusterQueue.decide` and :func:`multi_cluster.place` do.
        """
        clusters = candidates.clusters
        if attempt.request.spec.is_rebuild_check:
            return self._check(clusters, attempt)
        if not candidates.is_split:
            try:
                return await self._decide_in_one(clusters, attempt, deadline_s)
            except NoValidHost as refused:
                if len(clusters) < 2 or len(attempt.request.instance_uuids) < 2:
                    raise
                in_one = refused
        try:
            return multi_cluster.place(self._deps, clusters, attempt, deadline_s=deadline_s)
        except NoValidHost:
            if candidates.is_split:
                raise
            raise in_one from None  # it has the diagnosis of a whole cluster

    async def _decide_in_one(
        self, clusters: Sequence[ClusterReplica], attempt: PlacementAttempt, deadline_s: float
    ) -> Decision:
        """Try one cluster after the other; the refusal is of the cluster that came nearest."""
        boost_s = self._priority_boost_s(attempt)
        refusals: list[tuple[str, NoValidHost]] = []
        for replica in clusters:
            queue = self._queues.get(replica.scope)
            if queue is None:  # of two threads that make one, both get the first
                queue = self._queues.setdefault(replica.scope, ClusterQueue(replica, self._deps))
            try:
                return await queue.decide(attempt, deadline_s=deadline_s, priority_boost_s=boost_s)
            except NoValidHost as error:
                refusals.append((replica.scope, error))
                if attempt.is_partly_reserved:
                    break  # no other cluster can have all of its instances
        if not refusals:
            raise NoValidHost(NOT_ENOUGH_HOSTS, Diagnosis())
        attempt.refusals = len(refusals)
        attempt.refusing_hosts = sum(_diagnosis(error).hosts for _, error in refusals)
        attempt.cluster, nearest = max(refusals, key=lambda each: nearness(_diagnosis(each[1])))
        raise nearest

    def _priority_boost_s(self, attempt: PlacementAttempt) -> float:
        limits, request = self._deps.limits, attempt.request
        if limits.ordering == "fifo":
            return 0.0
        return priority_boost_s(
            request.spec,
            len(request.instance_uuids),
            priority=request.priority,
            max_priority_boost_s=limits.max_priority_boost_s,
        )

    def _check(self, clusters: Sequence[ClusterReplica], attempt: PlacementAttempt) -> Decision:
        """Decide a rebuild check; it reserves nothing, so it needs no lock."""
        refused = NoValidHost(NOT_ENOUGH_HOSTS, Diagnosis())
        for replica in clusters:
            attempt.cluster = replica.scope
            with replica.reading(self._deps.fleet.store):
                try:
                    return ClusterView.current(self._deps, replica).decide(attempt.request)
                except NoValidHost as error:
                    refused = error
        raise refusal(refused, clusters, attempt.request.spec)


def _diagnosis(refused: NoValidHost) -> Diagnosis:
    return refused.diagnosis or Diagnosis()
