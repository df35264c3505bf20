"""Select destinations: from a request to reserved hosts.

Decisions are made under the cluster's lock on hosts less all reservations, and count only once the
store has accepted the claims under the fencing token. A refused commit costs another attempt, never
a double booking.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from scheduler_worker.errors import (
    Conflict,
    DeadlineExceeded,
    NoValidHost,
    StateUnavailable,
)
from scheduler_worker.model.decisions import Decision, Diagnosis, Explanation
from scheduler_worker.observer import Observer, Outcome
from scheduler_worker.ports import Clock, ClusterLock
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Request
from scheduler_worker.scheduling.queue_priority import priority_boost_s
from scheduler_worker.service.placement import alternates, multi_cluster
from scheduler_worker.service.placement.asking import Asking, AskingPorts
from scheduler_worker.service.placement.candidates import Candidates, ClusterChoice, refusal
from scheduler_worker.service.placement.claim_pool import ClaimJob
from scheduler_worker.service.placement.claiming import Claiming, HostsRefused, PlacementPorts
from scheduler_worker.service.placement.explaining import Explaining
from scheduler_worker.service.placement.freshness import Freshness
from scheduler_worker.service.placement.give_back import take_back
from scheduler_worker.service.placement.rehearsal import Rehearsal
from scheduler_worker.service.placement.waiting import CapacityWaiters
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state.dependencies import Dependencies, Limits
from scheduler_worker.service.state.intents import DecidedElsewhere, PlacementIntents
from scheduler_worker.service.state.lease import ClusterView
from scheduler_worker.service.state.moves import Moves
from scheduler_worker.service.state.queue import ClusterQueue
from scheduler_worker.service.state.records import Verdict
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.service.state.routing import Routing
from scheduler_worker.service.state.trace import RequestTrace
from scheduler_worker.service.state.verdicts import Verdicts
from scheduler_worker.service.state.writing import Writer
from scheduler_worker.waiters import YieldSlot, complete, keep_slot

_QUESTIONS = 3
"""How often Placement is asked about one decision, while others' claims are being written."""


class _Made(NamedTuple):
    """A decision, where it was committed, and its claim in Placement."""

    decision: Decision
    routing: Routing
    claim: ClaimJob | None = None


class Scheduler:
    """The use case behind every ``select_destinations`` and ``explain``; safe for threads."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        lock: ClusterLock,
        pipelines: Callable[[], Pipelines],
        clock: Clock,
        limits: Limits,
        observer: Observer | None = None,
        placement: PlacementPorts | None = None,
        asking: AskingPorts | None = None,
        freshness: Freshness | None = None,
        keep: Callable[[Request, Outcome, Decision | None], None] | None = None,
    ) -> None:
        """With ``placement``, hosts are claimed there before callers are answered.

        With ``asking``, Placement is asked about requests that take from sharing providers.
        With ``freshness``, requests wait until all hosts are known, and for another look at them
        before they are refused. ``keep`` is given each request as it was asked, how it ended, and
        its decision if it got one; it must not block.
        """
        observer = observer or Observer()
        self._keep = keep
        self._freshness = freshness
        self._deps = Dependencies(
            fleet=fleet,
            lock=lock,
            pipelines=pipelines,
            clock=clock,
            limits=limits,
            observer=observer,
            grants={},
            placement_intents=PlacementIntents(),
            moves=Moves(fleet, observer, remember_answers_s=limits.remember_answers_s),
            writer=Writer(fleet.store, observer),
        )
        self._choice = ClusterChoice(self._deps)
        self._verdicts = Verdicts(fleet.store, clock, remember_s=limits.remember_answers_s)
        self._waiters = CapacityWaiters(self._deps)
        self._queues: dict[str, ClusterQueue] = {}
        self._guard = threading.Lock()
        self._claiming = Claiming(self._deps, placement) if placement else None
        self._asking = Asking(self._deps, asking) if asking else None
        self._unanswered: dict[int, _Made] = {}

    @property
    def max_alternates(self) -> int:
        """How many further hosts a caller may be offered for an instance."""
        return self._deps.limits.max_attempts - 1

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
        """End all waits for capacity and for the feed with WorkerStops, now and from now on; so
        also for Placement, while it is away.
        """
        self._waiters.close()
        if self._freshness is not None:
            self._freshness.close()
        if self._asking is not None:
            self._asking.stop_waiting()
        if self._claiming is not None:
            self._claiming.stop_waiting()

    def close(self, timeout_s: float) -> int:
        """Finish with Placement; returns how many claims were not taken back that should be."""
        if self._asking is not None:
            self._asking.close()
        return self._claiming.close(timeout_s) if self._claiming else 0

    # Selecting

    def select(self, request: Request, *, patience_s: float | None = None) -> Decision:
        """Like :meth:`selecting`, for callers with a thread of their own."""
        return complete(self.selecting(request, patience_s=patience_s))

    async def selecting(
        self,
        request: Request,
        *,
        patience_s: float | None = None,
        yield_slot: YieldSlot = keep_slot,
    ) -> Decision:
        """Choose and reserve a host for every instance of the request, and claim it in Placement.

        Waits for the request's turn. If no host passes but one would if unannounced reservations
        were released, waits for that too, and for Placement, inside ``yield_slot``. ``patience_s``
        is how long the caller waits for the answer.

        Raises:
            NoValidHost: with the diagnosis of the last attempt.
            AllocationUpdateFailed, PlacementUnavailable, PlacementRefused: it cannot be claimed.
            DeadlineExceeded: the caller no longer waits, or would not; nothing stays reserved.
            ClusterLockTimeout, Conflict, StateUnavailable: nothing is reserved; try again.
        """
        clock, observer = self._deps.clock, self._deps.observer
        now_s = clock.monotonic_s()
        caller_deadline_s = math.inf if patience_s is None else now_s + patience_s
        trace, routing = RequestTrace(request, now_s, caller_deadline_s), Routing()
        try:
            await self._await_hosts(trace, yield_slot)
            made = await self._select_and_claim(trace, routing, yield_slot)
            if clock.monotonic_s() >= trace.caller_deadline_s:
                self._take_back(made)
                raise DeadlineExceeded("The request was decided when its caller no longer waited.")
        except Exception as error:
            if isinstance(error, StateUnavailable):
                observer.state_failed()
            self._decided(request, trace.failed(error, clock.monotonic_s()))
            if trace.look and isinstance(error, NoValidHost):
                observer.looked_again("refused" if trace.look == "done" else "late")
            raise
        if trace.look:
            observer.looked_again("alternates" if trace.looks_for_alternates else "placed")
        self._unanswered[id(made.decision)] = made
        self._decided(request, trace.placed(made.decision, clock.monotonic_s()), made.decision)
        return made.decision

    def _decided(
        self, request: Request, outcome: Outcome, decision: Decision | None = None
    ) -> None:
        self._deps.observer.decided(outcome)
        if self._keep is not None:
            self._keep(request, outcome, decision)

    async def selecting_once(
        self,
        digest: str,
        request: Request,
        *,
        patience_s: float | None = None,
        yield_slot: YieldSlot = keep_slot,
    ) -> Decision:
        """Like :meth:`selecting`, for a cast, which every worker that gets a copy answers.

        ``digest`` is the same for all copies. Whether the request gets hosts is recorded under it,
        so that all copies are answered alike.
        """
        select = partial(self.selecting, request, patience_s=patience_s, yield_slot=yield_slot)
        try:
            decision = await select()
        except NoValidHost as refused:
            recorded = self._verdicts.record(digest, Verdict(refused.reason))
            if recorded.refusal is not None:
                raise
            # Another copy got hosts; the second attempt finds them, unless they were released.
            return await select()
        try:
            recorded = self._verdicts.record(digest, Verdict())
            if recorded.refusal is not None:
                raise NoValidHost(recorded.refusal)
        except BaseException:
            self.take_back(decision)
            raise
        return decision

    async def _await_hosts(self, trace: RequestTrace, yield_slot: YieldSlot) -> None:
        """Wait until all hosts are known; else refuse, in the way that callers handle best."""
        freshness = self._freshness
        if freshness and (why := await freshness.until_ready(trace.caller_deadline_s, yield_slot)):
            raise NoValidHost(why)

    async def _look_again(
        self, trace: RequestTrace, yield_slot: YieldSlot, *, for_alternates: bool = False
    ) -> bool:
        """Have the source of hosts looked at, once for each request; whether that was done."""
        if self._freshness is None or trace.look is not None:
            return False
        trace.looks_for_alternates = for_alternates
        spec, deadline_s = trace.request.spec, trace.caller_deadline_s
        begun_s = self._deps.clock.monotonic_s()
        is_done = await self._freshness.look(spec, deadline_s, yield_slot)
        trace.look_s = self._deps.clock.monotonic_s() - begun_s
        trace.look = "done" if is_done else "late"
        if is_done:
            self._choice.refresh_globals(anew=True)
        return is_done

    async def _select_and_claim(
        self, trace: RequestTrace, routing: Routing, yield_slot: YieldSlot
    ) -> _Made:
        """Decide; where claims are made decide again, without the hosts that Placement refuses."""
        claiming, asked, clock = self._claiming, trace.request, self._deps.clock
        if claiming is None or not claiming.applies(asked):
            return _Made(await self._ask_and_select(trace, routing, yield_slot), routing)
        diagnosis: Diagnosis | None = None
        job: ClaimJob | None = None
        for _ in range(self._deps.limits.max_attempts_to_commit):
            decision = await self._ask_and_select(trace, routing, yield_slot)
            diagnosis = decision.diagnosis
            job = claiming.job(asked, decision, trace.caller_deadline_s, job)
            made = _Made(decision, routing, job)
            begun_s = clock.monotonic_s()
            try:
                await claiming.claim(job, decision, yield_slot)
            except HostsRefused as refused:
                self._take_back(made)
                trace.request = trace.request.without(refused.hosts)
            except BaseException:
                self._take_back(made)
                raise
            else:
                if self._asking is not None and trace.request.spec.allocation_candidates:
                    self._asking.claimed(decision.claims)
                return made
            finally:
                trace.claim_s += clock.monotonic_s() - begun_s
        raise NoValidHost(NOT_ENOUGH_HOSTS, diagnosis)

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
            self._take_back(_Made(decision, routing))
            raise
        return decision

    async def _ask_and_select(
        self, trace: RequestTrace, routing: Routing, yield_slot: YieldSlot
    ) -> Decision:
        """Select with Placement's answer where it has to be asked."""
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

    async def _select(
        self, trace: RequestTrace, routing: Routing, yield_slot: YieldSlot, *, waits: bool = True
    ) -> Decision:
        clock, limits, request = self._deps.clock, self._deps.limits, trace.request
        self._choice.refresh_globals()
        wait_until_s: float | None = None
        while True:
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
            if await self._look_again(trace, yield_slot):
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
            if not waits or not self._waiters.wait(
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
        """Try one cluster after the other."""
        boost_s = self._priority_boost_s(trace.request)
        refused = NoValidHost(NOT_ENOUGH_HOSTS, Diagnosis())
        for replica in clusters:
            try:
                return await self._queue(replica).decide(
                    trace, routing, deadline_s=deadline_s, priority_boost_s=boost_s
                )
            except NoValidHost as error:
                refused = error
                if routing.is_partly_reserved:
                    break  # no other cluster can have all of its instances
        raise refused

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

    # Answers

    def answered(self, decision: Decision) -> None:
        """Record that the caller has the decision: its reservations stay."""
        self._unanswered.pop(id(decision), None)

    def unanswered(self) -> list[str]:
        """The instances with reservations whose callers were not answered yet."""
        unanswered = list(self._unanswered.values())
        return [claim.instance_uuid for each in unanswered for claim in each.decision.claims]

    def take_back(self, decision: Decision) -> None:
        """Release what was reserved for a decision that cannot be answered any more, and claimed.

        A reservation that was answered to another request since, or announced, stays, and so does
        its claim. If the store cannot be reached, the reservations expire.
        """
        if unanswered := self._unanswered.pop(id(decision), None):
            self._take_back(unanswered)

    def take_back_unanswered(self) -> int:
        """Release all that is unanswered when the worker ends; returns how many instances."""
        instances = self.unanswered()
        for each in list(self._unanswered.values()):
            self.take_back(each.decision)
        return len(instances)

    def _take_back(self, made: _Made) -> None:
        claims = {claim.id: claim.instance_uuid for claim in made.decision.claims}
        deleted = take_back(self._deps, made.routing.committed)
        made.routing.committed.clear()
        if self._claiming is not None and made.claim is not None:
            self._claiming.take_back(made.claim, {claims[each] for each in deleted})

    # Explaining

    def explain(
        self, request: Request, *, hosts: Sequence[str] = (), limit: int = 100
    ) -> Explanation:
        """Why hosts would be chosen or not, as :meth:`Explaining.explain` says."""
        return self._explaining().explain(request, hosts=hosts, limit=limit)

    def rehearse(self, request: Request, *, limit: int) -> Rehearsal:
        """What would be decided now, as :meth:`Explaining.rehearse` says."""
        return self._explaining().rehearse(request, limit=limit)

    def _explaining(self) -> Explaining:
        return Explaining(self._deps, self._choice, self._asking, self._freshness)
