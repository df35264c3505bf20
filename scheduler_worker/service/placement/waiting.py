"""Requests that no host can take now, but one could if unannounced reservations were released.

Such a request waits without a lock and without a slot until capacity of its cluster changes, checks
whether it would fit, and only then queues for the lock again. New reservations of others do not
count as a change, so waiting requests cost little while a cluster is busy. However many requests
wait for a cluster, this process watches it once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from scheduler_worker.errors import NoValidHost, WorkerStops
from scheduler_worker.ports import Seen
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.placement import multi_cluster
from scheduler_worker.service.placement.dependencies import PlacementDependencies
from scheduler_worker.service.placement.lease import ClusterView
from scheduler_worker.service.state.replica import ClusterReplica
from scheduler_worker.service.state.routing import Routing
from scheduler_worker.service.state.trace import RequestTrace
from scheduler_worker.waiters import YieldSlot

Clusters = Sequence[ClusterReplica]


class CapacityWaiters:
    """The requests of this process that wait for capacity, at most ``max_waiting``."""

    def __init__(self, deps: PlacementDependencies) -> None:
        self._deps = deps
        self._guard = threading.Lock()
        self._watches: dict[str, _ClusterWatch] = {}
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

    def wait(
        self,
        trace: RequestTrace,
        routing: Routing,
        clusters: Clusters,
        *,
        until_s: float,
        yield_slot: YieldSlot,
    ) -> bool:
        """Wait until the request would fit; none of the clusters has a host for it now.

        Returns False if it does not fit even without unannounced reservations, if too many requests
        wait already, or after ``until_s`` of the monotonic clock. ``clusters`` are in the order of
        preference; if several could take the request, the first of them is watched.

        Raises:
            WorkerStops: the worker shuts down; another one may take the request.
            StateUnavailable: the cluster cannot be watched any more.
        """
        if until_s <= self._deps.clock.monotonic_s():
            return False
        possible = self._possible(clusters, trace.request)
        if possible is None:
            return False
        with self._admitted() as is_admitted:
            return is_admitted and self._wait(trace, routing, possible, until_s, yield_slot)

    @contextlib.contextmanager
    def _admitted(self) -> Iterator[bool]:
        with self._guard:
            is_admitted = self.waiting < self._deps.limits.max_waiting
            self.waiting += is_admitted
        try:
            yield is_admitted
        finally:
            with self._guard:
                self.waiting -= is_admitted

    def _wait(
        self,
        trace: RequestTrace,
        routing: Routing,
        clusters: Clusters,
        until_s: float,
        yield_slot: YieldSlot,
    ) -> bool:
        clock = self._deps.clock
        since_s = clock.monotonic_s()
        try:
            with yield_slot():
                return self._until_it_fits(trace.request, routing, clusters, until_s)
        finally:
            trace.spent("pending", since_s, clock.monotonic_s())

    def _until_it_fits(
        self, request: Request, routing: Routing, clusters: Clusters, until_s: float
    ) -> bool:
        watched = next((each for each in clusters if each.reservations), clusters[0])
        watch = self._watch(watched)
        capacity_version = routing.refused_at.get(watched.scope)
        while watch.await_change(capacity_version, until_s):
            capacity_version = watched.capacity_version
            if self._fits(clusters, request):
                return True
            if not self._would_fit(clusters, request):
                # Unless the reservations it waited for were released between the two checks.
                return self._fits(clusters, request)
        return False

    def _watch(self, replica: ClusterReplica) -> _ClusterWatch:
        with self._guard:
            watch = self._watches.get(replica.scope)
            if watch is None:
                watch = self._watches[replica.scope] = _ClusterWatch(replica, self._deps)
            if self._closed:
                watch.close()
            return watch

    # Checks without the clusters' locks

    def _possible(self, clusters: Clusters, request: Request) -> Clusters | None:
        """The first cluster that could take the request, or all of them if only these could."""
        for replica in clusters:
            if self._would_fit([replica], request):
                return [replica]
        if len(clusters) > 1 and len(request.instance_uuids) > 1:
            return clusters if self._would_fit(clusters, request) else None
        return None

    def _fits(self, clusters: Clusters, request: Request) -> bool:
        """Whether these clusters have hosts for the request now."""
        with self._views(clusters) as views:
            return self._can_place(views, request)

    def _would_fit(self, clusters: Clusters, request: Request) -> bool:
        """Whether they would have hosts if all unannounced reservations were released."""
        with self._views(clusters) as views:
            freed = [view.without_unannounced() for view in views]
            return any(freed) and self._can_place(
                [free or view for free, view in zip(freed, views, strict=True)], request
            )

    @contextlib.contextmanager
    def _views(self, clusters: Clusters) -> Iterator[list[ClusterView]]:
        with contextlib.ExitStack() as held:
            for replica in sorted(clusters, key=lambda each: each.scope):
                held.enter_context(replica.lock)
            yield [ClusterView.current(self._deps, replica) for replica in clusters]

    def _can_place(self, views: Sequence[ClusterView], request: Request) -> bool:
        try:
            decision = multi_cluster.decide(views, request)
        except NoValidHost:
            return False
        multi_cluster.give_back(views, decision.claims)
        return True


class _ClusterWatch:
    """Watches one cluster for changes, in a thread that runs while requests wait for them."""

    def __init__(self, replica: ClusterReplica, deps: PlacementDependencies) -> None:
        self._replica = replica
        self._deps = deps
        self._changed = threading.Condition()
        self._deadlines_s: list[float] = []
        """The deadlines of the waiting requests."""
        self._notified = replica.capacity_version
        """The capacity version of the last notification."""
        self._watching = False
        self._closed = False
        self._failure: Exception | None = None

    @property
    def waiting(self) -> int:
        return len(self._deadlines_s)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def await_change(self, capacity_version: int | None, until_s: float) -> bool:
        """Wait until the cluster has another capacity version; False after ``until_s``."""
        with self._changed:
            self._deadlines_s.append(until_s)
            try:
                while self._replica.capacity_version == capacity_version:
                    left_s = until_s - self._deps.clock.monotonic_s()
                    if left_s <= 0:
                        return False
                    self._wait(left_s)
            finally:
                self._deadlines_s.remove(until_s)
        return True

    def _wait(self, left_s: float) -> None:
        if self._closed:
            raise WorkerStops("The worker stops; try again.")
        if not self._watching:
            self._watching, self._failure = True, None
            name = f"watch-{self._replica.scope}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
        self._changed.wait(left_s)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        """Watch until no request waits any more; an error here fails all that wait."""
        try:
            while (watching := self._next()) is not None:
                self._await_store(*watching)
        except Exception as error:
            with self._changed:
                self._watching, self._failure = False, error
                self._changed.notify_all()

    def _next(self) -> tuple[Seen, float] | None:
        """Notify of changes; returns what to wait for next and until when, None to stop."""
        with self._changed:
            # Read in this order: a change in between is notified now, and at worst awaited again.
            seen, capacity_version = self._replica.seen, self._replica.capacity_version
            now_s = self._deps.clock.monotonic_s()
            if capacity_version != self._notified or any(
                until_s <= now_s for until_s in self._deadlines_s
            ):
                self._notified = capacity_version
                self._changed.notify_all()
            if self._closed or not self._deadlines_s:
                self._watching = False
                return None
            return seen, max(self._deadlines_s)

    def _await_store(self, seen: Seen, until_s: float) -> None:
        store, clock = self._deps.fleet.store, self._deps.clock
        left_s = max(0.0, until_s - clock.monotonic_s())
        if store.await_change(self._replica.scope, seen, timeout_s=left_s):
            self._replica.catch_up(store, clock, clock.monotonic_s())
