"""From a request to reserved hosts.

Decisions are made under the cluster's lock on hosts less all reservations, and count only once the
store has accepted the claims under the fencing token. A refused commit costs another attempt, never
a double booking.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from scheduler_worker.errors import Conflict, NoValidHost
from scheduler_worker.model.decisions import Decision, Diagnosis, nearness
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Request
from scheduler_worker.scheduling.prefilters.candidates_query import queries
from scheduler_worker.scheduling.prefilters.needs import needs_of
from scheduler_worker.scheduling.queue_priority import priority_boost_s
from scheduler_worker.service.placement import alternates, multi_cluster
from scheduler_worker.service.placement.allocation_candidates import AllocationCandidatesClient
from scheduler_worker.service.placement.candidates import Candidates, ClusterChoice, refusal
from scheduler_worker.service.placement.dependencies import PlacementDependencies
from scheduler_worker.service.placement.give_back import take_back
from scheduler_worker.service.placement.lease import ClusterView
from scheduler_worker.service.placement.queue import ClusterQueue
from scheduler_worker.service.placement.refresh import RefreshBarrier
from scheduler_worker.service.placement.waiting import CapacityWaits
from scheduler_worker.service.state.intents import DecidedElsewhere
from scheduler_worker.service.state.replica import ClusterReplica
from scheduler_worker.service.state.routing import Routing
from scheduler_worker.service.state.trace import RequestTrace
from scheduler_worker.waiters import YieldSlot

_MOST_FOUND = 1000
"""Candidates that a look asks for; nova-scheduler asks for as many."""
_QUESTIONS = 3
"""How often Placement is asked about one decision, while others' claims are being written."""


class Reserving:
    """Decides requests in their turn and reserves the chosen hosts; safe for threads.

    With ``asking``, Placement is asked about requests that take from sharing providers. With
    ``freshness``, requests wait until all hosts are known, and for another look at them before they
    are refused.
    """

    def __init__(
        self,
        deps: PlacementDependencies,
        choice: ClusterChoice,
        asking: AllocationCandidatesClient | None,
        freshness: RefreshBarrier | None,
    ) -> None:
        self._deps = deps
        self._choice = choice
        self._asking = asking
        self._freshness = freshness
        self._waiters = CapacityWaits(deps)
        self._queues: dict[str, ClusterQueue] = {}
        self._guard = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many requests wait for capacity."""
        return self._waiters.waiting

    @property
    def waiting_for_feed(self) -> int:
        """How many requests wait until hosts are known, or were looked at again."""
        return self._freshness.waiting if self._freshness else 0

    def describe(self, cluster: str) -> dict[str, object]:
        """The requests waiting for a cluster, and this process's lease of it; takes no lock."""
        now_s = self._deps.clock.monotonic_s()
        queue, grant = self._queues.get(cluster), self._deps.grants.get(cluster)
        arrivals_s = queue.arrivals_s() if queue else []
        return {
            "in_line": len(arrivals_s),
            "oldest_s": round(now_s - min(arrivals_s, default=now_s), 3),
            "waiting_for_pending": self._waiters.waiting_for(cluster),
            "token": grant and grant.token.number,
            "held_s": grant and round(self._deps.held_s(grant), 3),
        }

    def stop_waiting(self) -> None:
        """End all waits, now and from now on, with WorkerStops."""
        self._waiters.close()
        if self._freshness is not None:
            self._freshness.close()
        if self._asking is not None:
            self._asking.stop_waiting()

    async def await_hosts(self, trace: RequestTrace, yield_slot: YieldSlot) -> None:
        """Wait until all hosts are known; else refuse, in the way that callers handle best."""
        freshness = self._freshness
        if freshness and (why := await freshness.until_ready(trace.caller_deadline_s, yield_slot)):
            raise NoValidHost(why)

    async def reserve(
        self, trace: RequestTrace, routing: Routing, yield_slot: YieldSlot
    ) -> Decision:
        """Decide and reserve, with Placement's answer where it has to be asked.

        Waits for the request's turn, for capacity that unannounced reservations hold, and for
        Placement, inside ``yield_slot``. What is reserved is in ``routing``. Raises as
        :meth:`Scheduler.selecting`.
        """
        asking = self._asking
        if asking is None:
            return await self._select_with_alternates(trace, routing, yield_slot)
        self._choice.refresh_globals()
        for left in reversed(range(_QUESTIONS)):
            trace.request = await asking.ask(trace.request, trace.caller_deadline_s, yield_slot)
            if left == 0 or trace.request.spec.allocation_candidates is None:
                break
            try:
                return await self._select_with_alternates(trace, routing, yield_slot, waits=False)
            except NoValidHost:
                if not asking.is_doubtful(trace.request):
                    break
        return await self._select_with_alternates(trace, routing, yield_slot)

    async def _select_with_alternates(
        self, trace: RequestTrace, routing: Routing, yield_slot: YieldSlot, *, waits: bool = True
    ) -> Decision:
        """Decide; hosts are looked at again for alternates that the decision lacks.

        A caller whose build fails everywhere else would count on them as on the first host.
        """
        decision = await self._select(trace, routing, yield_slot, waits=waits)
        try:
            if alternates.are_short(decision, trace.request) and await self._look_again(
                trace, yield_slot, for_alternates=True
            ):
                return alternates.renewed(self._deps, decision, trace.request, trace.cluster)
        except BaseException:
            take_back(self._deps, routing)
            raise
        return decision

    async def _look_again(
        self, trace: RequestTrace, yield_slot: YieldSlot, *, for_alternates: bool = False
    ) -> bool:
        """Have the source of hosts looked at, once for each request; whether that was done."""
        if self._freshness is None or trace.look is not None:
            return False
        trace.looks_for_alternates = for_alternates
        spec, deadline_s = trace.request.spec, trace.caller_deadline_s
        needs = needs_of(spec, self._deps.pipelines().nova.candidates.parameters)
        aggregates = list(self._deps.fleet.globals.aggregates.values())
        asked = [each.text for each in queries(spec, needs, aggregates, _MOST_FOUND)]
        begun_s = self._deps.clock.monotonic_s()
        is_done = await self._freshness.refresh(asked, deadline_s, yield_slot)
        trace.spent("look", begun_s, self._deps.clock.monotonic_s())
        trace.look = "done" if is_done else "late"
        if is_done:
            self._choice.refresh_globals(self._deps.clock.monotonic_s())
        return is_done

    async def _select(
        self, trace: RequestTrace, routing: Routing, yield_slot: YieldSlot, *, waits: bool = True
    ) -> Decision:
        clock, limits, request = self._deps.clock, self._deps.limits, trace.request
        begun_s = clock.monotonic_s()
        wait_until_s: float | None = None
        while True:
            seen = self._choice.refresh_globals()
            eligible = self._choice.eligible(request)
            candidates = self._choice.candidates(eligible, request, routing.declared)
            routing.any_cluster = self._choice.any_cluster(request)
            routing.moves_seen = candidates.moves_seen
            now_s = clock.monotonic_s()
            deadline_s = min(trace.caller_deadline_s, now_s + limits.acquire_timeout_s)
            try:
                return await self._decide(candidates, trace, routing, deadline_s)
            except DecidedElsewhere:
                self._detour(routing)
                continue
            except NoValidHost as error:
                refused = error
            # Another worker may have got a cluster, or changed an aggregate, since the last read.
            is_new = self._choice.refresh_globals(begun_s) != seen
            if is_new or await self._look_again(trace, yield_slot):
                continue
            if request.spec.is_rebuild_check:
                raise refused
            if wait_until_s is None:
                # Half of the caller's time is left for the next attempt and for the answer.
                now_s = clock.monotonic_s()
                wait_until_s = min(
                    (now_s + trace.caller_deadline_s) / 2, now_s + limits.wait_timeout_s
                )
            preferred = list(dict.fromkeys((*candidates.clusters, *eligible)))
            if not waits or not await self._waiters.wait(
                trace, routing, preferred, until_s=wait_until_s, yield_slot=yield_slot
            ):
                raise refusal(refused, eligible, request.spec)

    def _detour(self, routing: Routing) -> None:
        """Raises Conflict after many."""
        routing.detour()
        if routing.detours >= self._deps.limits.max_attempts_to_commit:
            raise Conflict("Other requests for the same instances are being decided; try again.")

    async def _decide(
        self, candidates: Candidates, trace: RequestTrace, routing: Routing, deadline_s: float
    ) -> Decision:
        """Decide in one cluster if possible, and over all candidates otherwise."""
        clusters = candidates.clusters
        if trace.request.spec.is_rebuild_check:
            return self._check(clusters, trace)
        place = partial(
            multi_cluster.place, self._deps, clusters, trace, routing, deadline_s=deadline_s
        )
        if candidates.is_split:
            return place()
        try:
            return await self._decide_in_one(clusters, trace, routing, deadline_s)
        except NoValidHost as refused:
            if len(clusters) < 2 or len(trace.request.instance_uuids) < 2:
                raise
            try:
                return place()
            except NoValidHost:
                raise refused from None  # it has the diagnosis of a whole cluster

    async def _decide_in_one(
        self,
        clusters: Sequence[ClusterReplica],
        trace: RequestTrace,
        routing: Routing,
        deadline_s: float,
    ) -> Decision:
        """Try one cluster after the other; the refusal is of the one that came nearest."""
        boost_s = self._priority_boost_s(trace.request)
        refusals: list[tuple[str, NoValidHost]] = []
        for replica in clusters:
            try:
                return await self._queue(replica).decide(
                    trace, routing, deadline_s=deadline_s, priority_boost_s=boost_s
                )
            except NoValidHost as error:
                refusals.append((replica.scope, error))
                if routing.is_partly_reserved:
                    break  # no other cluster can have all of its instances
        if not refusals:
            raise NoValidHost(NOT_ENOUGH_HOSTS, Diagnosis())
        trace.refusals = len(refusals)
        trace.refusing_hosts = sum(_diagnosis(error).hosts for _, error in refusals)
        trace.cluster, nearest = max(refusals, key=lambda each: nearness(_diagnosis(each[1])))
        raise nearest

    def _priority_boost_s(self, request: Request) -> float:
        limits = self._deps.limits
        if limits.ordering == "fifo":
            return 0.0
        return priority_boost_s(
            request.spec,
            len(request.instance_uuids),
            priority=request.priority,
            max_priority_boost_s=limits.max_priority_boost_s,
        )

    def _queue(self, replica: ClusterReplica) -> ClusterQueue:
        with self._guard:
            queue = self._queues.get(replica.scope)
            if queue is None:
                queue = self._queues[replica.scope] = ClusterQueue(replica, self._deps)
            return queue

    def _check(self, clusters: Sequence[ClusterReplica], trace: RequestTrace) -> Decision:
        """Decide a rebuild check; it reserves nothing, so it needs no lock."""
        refused = NoValidHost(NOT_ENOUGH_HOSTS, Diagnosis())
        for replica in clusters:
            trace.cluster = replica.scope
            with replica.lock:
                replica.refresh(self._deps.fleet.store)
                try:
                    return ClusterView.current(self._deps, replica).decide(trace.request)
                except NoValidHost as error:
                    refused = error
        raise refusal(refused, clusters, trace.request.spec)


def _diagnosis(refused: NoValidHost) -> Diagnosis:
    return refused.diagnosis or Diagnosis()
