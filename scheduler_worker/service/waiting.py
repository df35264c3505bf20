"""Requests that no host can take now, and one could if promised resources were given back.

Such a request waits, without a lock and without a slot, until there is news of its cluster, and
looks whether it would fit now; only then it queues for the lock again. New promises of others are
no news, so that those who wait cost little while a cluster is busy. However many of them wait for
one, this process watches it once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from scheduler_worker.errors import Conflict, NoValidHost
from scheduler_worker.ports import Seen
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service import spread
from scheduler_worker.service.ground import Ground
from scheduler_worker.service.hold import Means
from scheduler_worker.service.replica import ClusterReplica
from scheduler_worker.service.trail import Trail

Clusters = Sequence[ClusterReplica]
StepAside = Callable[[], AbstractContextManager[None]]


class WaitingRoom:
    """Where the requests of this process wait for pending resources, at most ``max_waiting``."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._guard = threading.Lock()
        self._watches: dict[str, _Watch] = {}
        self._closed = False
        self.waiting = 0
        """How many wait now."""

    def waiting_for(self, scope: str) -> int:
        """How many of them look to this cluster first; takes no lock."""
        watch = self._watches.get(scope)
        return watch.waiting if watch else 0

    def close(self) -> None:
        """End all waits, those to come included: they fail with Conflict."""
        with self._guard:
            self._closed = True
            watches = list(self._watches.values())
        for watch in watches:
            watch.close()

    def wait(
        self, trail: Trail, serving: Clusters, *, until_s: float, step_aside: StepAside
    ) -> bool:
        """Wait until the request would fit; none of the clusters has a host for it now.

        False when it does not fit even without pending promises, when too many wait already, or
        after ``until_s``. Where several clusters give hope, the first of them is watched: they
        come in the order in which they suit.

        Raises:
            Conflict: the worker stops.
            StateUnavailable: the cluster cannot be watched any more.
        """
        if until_s <= self._means.clock.monotonic_s():
            return False
        clusters = self._hopeful(serving, trail.request)
        if clusters is None:
            return False
        with self._seat() as seated:
            return seated and self._sit(trail, clusters, until_s, step_aside)

    @contextlib.contextmanager
    def _seat(self) -> Iterator[bool]:
        with self._guard:
            seated = self.waiting < self._means.limits.max_waiting
            self.waiting += seated
        try:
            yield seated
        finally:
            with self._guard:
                self.waiting -= seated

    def _sit(self, trail: Trail, clusters: Clusters, until_s: float, step_aside: StepAside) -> bool:
        clock = self._means.clock
        since_s = clock.monotonic_s()
        try:
            with step_aside():
                return self._until_it_fits(trail, clusters, until_s)
        finally:
            trail.waited_for_pending_s += clock.monotonic_s() - since_s

    def _until_it_fits(self, trail: Trail, clusters: Clusters, until_s: float) -> bool:
        watched = _most_promising(clusters)
        watch = self._watch(watched)
        news = trail.refused_at.get(watched.scope)
        while watch.until_other(news, until_s):
            news = watched.news
            if self._fits(clusters, trail.request):
                return True
            if not self._would_fit(clusters, trail.request):
                # Unless what it waited for was given back between the two looks.
                return self._fits(clusters, trail.request)
        return False

    def _watch(self, replica: ClusterReplica) -> _Watch:
        with self._guard:
            watch = self._watches.get(replica.scope)
            if watch is None:
                watch = self._watches[replica.scope] = _Watch(replica, self._means)
            if self._closed:
                watch.close()
            return watch

    # Looking, without the clusters' locks

    def _hopeful(self, serving: Clusters, request: Request) -> Clusters | None:
        """The first cluster that could take the request, or all of them if only these could."""
        for replica in serving:
            if self._would_fit([replica], request):
                return [replica]
        if len(serving) > 1 and len(request.instance_uuids) > 1:
            return serving if self._would_fit(serving, request) else None
        return None

    def _fits(self, clusters: Clusters, request: Request) -> bool:
        """Whether these clusters have hosts for the request now."""
        with self._grounds(clusters) as grounds:
            return self._can_take(grounds, request)

    def _would_fit(self, clusters: Clusters, request: Request) -> bool:
        """Whether they would have, if all pending promises were given back."""
        with self._grounds(clusters) as grounds:
            freed = [ground.without_pending() for ground in grounds]
            return any(freed) and self._can_take(
                [free or ground for free, ground in zip(freed, grounds, strict=True)], request
            )

    @contextlib.contextmanager
    def _grounds(self, clusters: Clusters) -> Iterator[list[Ground]]:
        with contextlib.ExitStack() as held:
            for replica in sorted(clusters, key=lambda each: each.scope):
                held.enter_context(replica.lock)
            yield [self._means.ground(replica) for replica in clusters]

    def _can_take(self, grounds: Sequence[Ground], request: Request) -> bool:
        try:
            decision = spread.decide(grounds, self._means.pipeline(), request)
        except NoValidHost:
            return False
        spread.give_up(grounds, decision.claims)
        return True


def _most_promising(clusters: Clusters) -> ClusterReplica:
    return next((each for each in clusters if each.promises), clusters[0])


class _Watch:
    """Looks out for changes of one cluster, as long as somebody waits for them."""

    def __init__(self, replica: ClusterReplica, means: Means) -> None:
        self._replica = replica
        self._means = means
        self._changed = threading.Condition()
        self._deadlines_s: list[float] = []
        """Until when each of those waits who wait."""
        self._told = replica.news
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

    def until_other(self, news: int | None, until_s: float) -> bool:
        """Wait until this process has other news of the cluster; False after ``until_s``."""
        with self._changed:
            self._deadlines_s.append(until_s)
            try:
                while self._replica.news == news:
                    left_s = until_s - self._means.clock.monotonic_s()
                    if left_s <= 0:
                        return False
                    self._wait(left_s)
            finally:
                self._deadlines_s.remove(until_s)
        return True

    def _wait(self, left_s: float) -> None:
        if self._closed:
            raise Conflict("The worker stops; try again.")
        if not self._watching:
            self._watching, self._failure = True, None
            name = f"watch-{self._replica.scope}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
        self._changed.wait(left_s)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        """Watch until nobody waits any more; what fails here fails for all who wait."""
        try:
            while (watching := self._next()) is not None:
                self._look_out(*watching)
        except Exception as error:
            with self._changed:
                self._watching, self._failure = False, error
                self._changed.notify_all()

    def _next(self) -> tuple[Seen, float] | None:
        """Tell of what is known now, and what to wait for next; None: nobody waits."""
        with self._changed:
            # In this order: what comes in between is told now, and looked for once more at worst.
            seen, news = self._replica.seen, self._replica.news
            now_s = self._means.clock.monotonic_s()
            if news != self._told or any(until_s <= now_s for until_s in self._deadlines_s):
                self._told = news
                self._changed.notify_all()
            if self._closed or not self._deadlines_s:
                self._watching = False
                return None
            return seen, max(self._deadlines_s)

    def _look_out(self, seen: Seen, until_s: float) -> None:
        store, clock = self._means.fleet.store, self._means.clock
        left_s = max(0.0, until_s - clock.monotonic_s())
        if store.await_change(self._replica.scope, seen, timeout_s=left_s):
            self._replica.catch_up(store, clock, clock.monotonic_s())
