"""From candidate clusters to reserved hosts: in one cluster if possible, over all otherwise.

Decisions are made under the cluster's lock on hosts less all reservations, and count only once the
store has accepted the claims under the fencing token. A refused commit costs another attempt, never
a double booking.
"""

from collections.abc import Sequence

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.decisions import Decision, Diagnosis, nearness
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS
from scheduler_worker.scheduling.queue_priority import priority_boost_s
from scheduler_worker.service.placement import multi_cluster
from scheduler_worker.service.placement.candidates import Candidates, refusal
from scheduler_worker.service.placement.dependencies import PlacementDependencies
from scheduler_worker.service.placement.lease import ClusterView
from scheduler_worker.service.placement.queue import ClusterQueue
from scheduler_worker.service.state.attempt import PlacementAttempt
from scheduler_worker.service.state.replica import ClusterReplica


class ClusterQueues:
    """The queues of all clusters; safe for threads."""

    def __init__(self, deps: PlacementDependencies) -> None:
        self._deps = deps
        self._queues: dict[str, ClusterQueue] = {}

    def describe(self, cluster: str) -> dict[str, object]:
        """The requests in a cluster's queue, and this process's lease of it; takes no lock."""
        now_s = self._deps.clock.monotonic_s()
        queue, grant = self._queues.get(cluster), self._deps.grants.get(cluster)
        arrivals_s = queue.arrivals_s() if queue else []
        return {
            "in_line": len(arrivals_s),
            "oldest_s": round(now_s - min(arrivals_s, default=now_s), 3),
            "token": grant and grant.token.number,
            "held_s": grant and round(now_s - self._deps.granted_s(grant), 3),
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
