"""Requests that no host can take now, but one could if pending reservations were released.

Such a request waits without a lock and without a slot until capacity of its cluster changes, checks
whether it would fit, and only then queues for the lock again. New reservations of others do not
count as a change, so waiting requests cost little while a cluster is busy.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence

from scheduler_worker.errors import NoValidHost
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.requests import multi_cluster
from scheduler_worker.service.requests.dependencies import PlacementDependencies
from scheduler_worker.service.requests.lease import ClusterView
from scheduler_worker.service.state.attempt import PlacementAttempt
from scheduler_worker.service.state.replica import ClusterReplica
from scheduler_worker.service.state.waits import ScopeWatch

Clusters = Sequence[ClusterReplica]


class CapacityWaits:
    """The requests of this process that wait for capacity, at most ``max_waiting``."""

    def __init__(self, deps: PlacementDependencies) -> None:
        self._deps = deps
        self._guard = threading.Lock()
        self._watches: dict[str, ScopeWatch] = {}
        self._closed = False
        self.waiting = 0
        """How many requests wait now."""

    def waiting_for(self, cluster: str) -> int:
        """How many requests watch this cluster; takes no lock."""
        watch = self._watches.get(cluster)
        return watch.waiting if watch else 0

    def close(self) -> None:
        """End all waits, present and future: they fail with WorkerStops."""
        with self._guard:
            self._closed = True
            watches = list(self._watches.values())
        for watch in watches:
            watch.close()

    async def wait(self, attempt: PlacementAttempt, clusters: Clusters, until_s: float) -> bool:
        """Wait until the request would fit; none of the clusters has a host for it now.

        Returns False if it does not fit even without pending reservations, if too many requests
        wait already, or after ``until_s`` of the monotonic clock. ``clusters`` are in the order of
        preference; if several could take the request, the first of them is watched.

        Raises:
            WorkerStops: the worker shuts down; another one may take the request.
            StateUnavailable: the cluster cannot be watched any more.
        """
        clock, request = self._deps.clock, attempt.request
        since_s = clock.monotonic_s()
        if until_s <= since_s or not (possible := self._possible(clusters, request)):
            return False
        with self._guard:
            if self.waiting >= self._deps.limits.max_waiting:
                return False
            self.waiting += 1
        watched = next((view for view in possible if view.reservations), possible[0])
        refused_at = attempt.refused_at.get(watched.scope)

        def fits() -> bool | None:
            """None until a change helps, or until it is certain that none will."""
            nonlocal refused_at
            if clock.monotonic_s() >= attempt.caller_deadline_s:
                return False  # the watch may be late, behind a commit that is repeated
            if watched.capacity_version == refused_at:
                return None
            refused_at = watched.capacity_version
            if self._fits(possible, request):
                return True
            if self._would_fit(possible, request):
                return None
            # Unless the reservations it waited for were released between the two checks.
            return self._fits(possible, request)

        try:
            return bool(await self._watch(watched).until(fits, until_s, attempt.yield_slot))
        finally:
            attempt.spent("pending", since_s, clock.monotonic_s())
            with self._guard:
                self.waiting -= 1

    def _watch(self, replica: ClusterReplica) -> ScopeWatch:
        with self._guard:
            watch = self._watches.get(replica.scope)
            if watch is None:
                watch = ScopeWatch(replica, self._deps.fleet.store, self._deps.clock)
                self._watches[replica.scope] = watch
                if self._closed:
                    watch.close()
            return watch

    # Checks without the clusters' locks

    def _possible(self, clusters: Clusters, request: Request) -> Clusters:
        """The first cluster that could take the request, or all of them if only these could."""
        for replica in clusters:
            if self._would_fit([replica], request):
                return [replica]
        if len(clusters) > 1 and len(request.instance_uuids) > 1:
            return clusters if self._would_fit(clusters, request) else ()
        return ()

    def _fits(self, clusters: Clusters, request: Request) -> bool:
        """Whether these clusters have hosts for the request now."""
        with self._views(clusters) as views:
            return self._can_place(views, request)

    def _would_fit(self, clusters: Clusters, request: Request) -> bool:
        """Whether they would have hosts if all pending reservations were released."""
        with self._views(clusters) as views:
            freed = [view.without_pending() for view in views]
            return any(freed) and self._can_place(
                [free or view for free, view in zip(freed, views, strict=True)], request
            )

    @contextlib.contextmanager
    def _views(self, clusters: Clusters) -> Iterator[list[ClusterView]]:
        with contextlib.ExitStack() as held:
            for replica in sorted(clusters, key=lambda cluster: cluster.scope):
                held.enter_context(replica.lock)
            yield [ClusterView.current(self._deps, replica) for replica in clusters]

    def _can_place(self, views: Sequence[ClusterView], request: Request) -> bool:
        try:
            decision = multi_cluster.decide(views, request)
        except NoValidHost:
            return False
        multi_cluster.give_back(views, decision.claims)
        return True
