"""Select destinations: from a request to promised hosts.

What is decided is decided under the cluster's lock on hosts less everything promised, and exists
only once the store has accepted the claims under the fencing token. A refused commit costs another
round, never a double booking.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from scheduler_worker.errors import Conflict, NoValidHost, StateUnavailable
from scheduler_worker.model.decisions import Decision, Diagnosis
from scheduler_worker.pauses import complete
from scheduler_worker.ports import Clock, ClusterLock, Observer
from scheduler_worker.scheduling.ease import head_start_s
from scheduler_worker.scheduling.explain import explain
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Pipeline, Request
from scheduler_worker.service import spread
from scheduler_worker.service.candidates import Candidates, Prospect, told_of_destination
from scheduler_worker.service.ground import dice
from scheduler_worker.service.hold import Limits, Means
from scheduler_worker.service.line import ClusterLine
from scheduler_worker.service.replica import ClusterReplica, Fleet
from scheduler_worker.service.trail import Trail
from scheduler_worker.service.waiting import WaitingRoom
from scheduler_worker.service.whereabouts import Elsewhere, Whereabouts

StepAside = Callable[[], AbstractContextManager[None]]


class Scheduler:
    """The use case behind every ``select_destinations`` and ``explain``."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        lock: ClusterLock,
        pipeline: Callable[[], Pipeline],
        clock: Clock,
        limits: Limits,
        observer: Observer | None = None,
    ) -> None:
        self._means = Means(
            fleet, lock, pipeline, clock, limits, observer or Observer(), {}, Whereabouts()
        )
        self._candidates = Candidates(self._means)
        self._room = WaitingRoom(self._means)
        self._lines: dict[str, ClusterLine] = {}
        self._guard = threading.Lock()
        self._unanswered: dict[int, Decision] = {}

    # Selecting

    @property
    def max_alternates(self) -> int:
        """How many further hosts a caller may be offered for an instance."""
        return self._means.pipeline().options.max_attempts - 1

    @property
    def waiting(self) -> int:
        """How many requests wait for promised resources to be given back."""
        return self._room.waiting

    def describe(self, cluster: str) -> dict[str, object]:
        """Who waits for what in a cluster, and this process's hold of it; takes no lock."""
        now_s = self._means.clock.monotonic_s()
        line, hold = self._lines.get(cluster), self._means.holds.get(cluster)
        arrivals_s = line.arrivals_s() if line else []
        return {
            "in_line": len(arrivals_s),
            "oldest_s": round(now_s - min(arrivals_s, default=now_s), 3),
            "waiting_for_pending": self._room.waiting_for(cluster),
            "token": hold and hold.grant.token.number,
            "held_s": hold and round(hold.held_s(), 3),
        }

    def stop_waiting(self) -> None:
        """The worker stops: whoever waits so fails with Conflict, now and from now on."""
        self._room.close()

    def select(self, request: Request, *, patience_s: float | None = None) -> Decision:
        """The same as :meth:`selecting`, for callers with a thread of their own."""
        return complete(self.selecting(request, patience_s=patience_s))

    async def selecting(
        self,
        request: Request,
        *,
        patience_s: float | None = None,
        step_aside: StepAside = nullcontext,
    ) -> Decision:
        """Choose and promise a host for every instance of the request.

        It pauses for its turn. If no host passes but one would if pending promises were given
        back, it waits for that, inside ``step_aside()``. ``patience_s`` is how long the caller
        will wait altogether.

        Raises:
            NoValidHost: with the diagnosis of the last try.
            ClusterLockTimeout, Conflict, StateUnavailable: nothing is promised; try again.
        """
        clock, observer = self._means.clock, self._means.observer
        trail = Trail(request, clock.monotonic_s())
        patient_until_s = trail.arrived_s + (float("inf") if patience_s is None else patience_s)
        try:
            decision = await self._select(trail, patient_until_s, step_aside)
        except Exception as error:
            if isinstance(error, StateUnavailable):
                observer.state_failed()
            observer.decided(trail.failed(error, clock.monotonic_s()))
            raise
        self._unanswered[id(decision)] = decision
        observer.decided(trail.placed(decision, clock.monotonic_s()))
        return decision

    async def _select(
        self, trail: Trail, patient_until_s: float, step_aside: StepAside
    ) -> Decision:
        clock, limits = self._means.clock, self._means.limits
        self._candidates.freshen()
        wait_until_s: float | None = None
        while True:
            serving = self._candidates.serving(trail.request)
            prospect = self._candidates.promising(serving, trail.request, trail.claimed)
            candidates, trail.roams = prospect.clusters, self._candidates.roams(trail.request)
            if trail.request.spec.is_rebuild_check:
                return self._checked(candidates, trail)
            now_s = clock.monotonic_s()
            deadline_s = min(patient_until_s, now_s + limits.acquire_timeout_s)
            try:
                return await self._decided(prospect, trail, deadline_s)
            except Elsewhere:
                trail.turn_away()
                if trail.detours >= limits.max_attempts_to_commit:
                    raise Conflict("Others ask for the same instances; try again.") from None
                continue
            except NoValidHost as error:
                refused = error
            if wait_until_s is None:
                wait_until_s = min(patient_until_s, clock.monotonic_s() + limits.wait_timeout_s)
            in_order = [*candidates, *(each for each in serving if each not in candidates)]
            if not self._room.wait(trail, in_order, until_s=wait_until_s, step_aside=step_aside):
                raise told_of_destination(refused, serving, trail.request.spec)

    async def _decided(self, prospect: Prospect, trail: Trail, deadline_s: float) -> Decision:
        candidates = prospect.clusters
        if prospect.is_apart:
            return spread.place(self._means, candidates, trail, deadline_s=deadline_s)
        try:
            return await self._first(candidates, trail, deadline_s)
        except NoValidHost as refused:
            if len(candidates) < 2 or len(trail.request.instance_uuids) < 2:
                raise
            try:
                return spread.place(self._means, candidates, trail, deadline_s=deadline_s)
            except NoValidHost:
                raise refused from None  # which tells more

    async def _first(
        self, candidates: Sequence[ClusterReplica], trail: Trail, deadline_s: float
    ) -> Decision:
        head_start = self._head_start_s(trail.request)
        refused = NoValidHost(NOT_ENOUGH_HOSTS, Diagnosis())
        for replica in candidates:
            try:
                return await self._line(replica).decide(
                    trail, deadline_s=deadline_s, head_start_s=head_start
                )
            except NoValidHost as error:
                refused = error
        raise refused

    def _head_start_s(self, request: Request) -> float:
        limits = self._means.limits
        if limits.ordering == "fifo":
            return 0.0
        return head_start_s(
            request.spec,
            len(request.instance_uuids),
            priority=request.priority,
            max_head_start_s=limits.max_head_start_s,
        )

    def _line(self, replica: ClusterReplica) -> ClusterLine:
        with self._guard:
            line = self._lines.get(replica.scope)
            if line is None:
                line = self._lines[replica.scope] = ClusterLine(replica, self._means)
            return line

    def _checked(self, candidates: Sequence[ClusterReplica], trail: Trail) -> Decision:
        """A decision that promises nothing needs no lock."""
        refused = NoValidHost(NOT_ENOUGH_HOSTS, Diagnosis())
        for replica in candidates:
            trail.cluster = replica.scope
            with replica.lock:
                replica.refresh(self._means.fleet.store)
                try:
                    return self._means.ground(replica).decide(trail.request, self._means.pipeline())
                except NoValidHost as error:
                    refused = error
        raise refused

    def answered(self, decision: Decision) -> None:
        """The caller has the decision: its promises are no longer ours to give back."""
        self._unanswered.pop(id(decision), None)

    def unanswered(self) -> list[str]:
        """The instances that were promised a host and whose caller has not been told."""
        decisions = list(self._unanswered.values())
        return [claim.instance_uuid for each in decisions for claim in each.claims]

    # Explaining

    def explain(
        self, request: Request, *, hosts: Sequence[str] = (), limit: int = 100
    ) -> dict[str, Diagnosis]:
        """For each candidate cluster, why its hosts would be chosen or not; promises nothing."""
        self._means.fleet.refresh_globals()
        prospect = self._candidates.promising(self._candidates.serving(request), request)
        return {
            replica.scope: self._explain(replica, request, hosts, limit)
            for replica in prospect.clusters
        }

    def _explain(
        self, replica: ClusterReplica, request: Request, hosts: Sequence[str], limit: int
    ) -> Diagnosis:
        with replica.lock:
            replica.refresh(self._means.fleet.store)
            return explain(
                self._means.pipeline(),
                self._means.fleet.prepare(replica),
                request,
                dice(request),
                only=hosts,
                limit=limit,
            )
