"""Select destinations: from a request to hosts that are reserved, and claimed in Placement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from scheduler_worker import events
from scheduler_worker.errors import DeadlineExceeded, NoValidHost, StateUnavailable
from scheduler_worker.model.decisions import Decision, Diagnosis, Explanation
from scheduler_worker.observer import Observer, Outcome, PhaseName
from scheduler_worker.ports import Clock, ClusterLock
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Request
from scheduler_worker.service.placement import alternates
from scheduler_worker.service.placement.allocation_candidates import (
    AllocationCandidatesClient,
    CandidatesPorts,
)
from scheduler_worker.service.placement.candidates import ClusterChoice
from scheduler_worker.service.placement.claim_batcher import ClaimJob
from scheduler_worker.service.placement.claims import HostsRefused, PlacementClaims, PlacementPorts
from scheduler_worker.service.placement.dependencies import PlacementDependencies, PlacementLimits
from scheduler_worker.service.placement.explaining import Explaining, Rehearsal
from scheduler_worker.service.placement.give_back import take_back
from scheduler_worker.service.placement.refresh import RefreshBarrier
from scheduler_worker.service.placement.reserving import Reserving
from scheduler_worker.service.placement.verifying import Verification, Verifying, VerifyingPorts
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state.intents import PlacementIntents
from scheduler_worker.service.state.moves import Moves
from scheduler_worker.service.state.records import Verdict
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.state.routing import Routing
from scheduler_worker.service.state.trace import RequestTrace
from scheduler_worker.service.state.verdicts import Verdicts
from scheduler_worker.service.state.writing import Writer
from scheduler_worker.waiters import YieldSlot, complete, keep_slot


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
        limits: PlacementLimits,
        observer: Observer | None = None,
        placement: PlacementPorts | None = None,
        asking: CandidatesPorts | None = None,
        freshness: RefreshBarrier | None = None,
        verifying: VerifyingPorts | None = None,
        keep: Callable[[Request, Outcome, Decision | None], None] | None = None,
    ) -> None:
        """With ``placement``, hosts are claimed there before callers are answered.

        With ``asking``, Placement is asked about requests that take from sharing providers.
        With ``freshness``, requests wait until all hosts are known, and for another look at them
        before they are refused. With ``verifying``, chosen hosts are compared with where they are
        from before callers are answered. ``keep`` is given each request as it was asked, how it
        ended, and its decision if it got one; it must not block.
        """
        observer = observer or Observer()
        self._keep = keep
        self._deps = PlacementDependencies(
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
        choice = ClusterChoice(self._deps)
        self._asking = AllocationCandidatesClient(self._deps, asking) if asking else None
        self._reserving = Reserving(self._deps, choice, self._asking, freshness)
        self._explaining = Explaining(self._deps, choice, self._asking, freshness)
        self._claiming = PlacementClaims(self._deps, placement) if placement else None
        self._verifying = Verifying(self._deps, verifying) if verifying else None
        self._verdicts = Verdicts(fleet.store, clock, remember_s=limits.remember_answers_s)
        self._unanswered: dict[int, _Made] = {}

    @property
    def max_alternates(self) -> int:
        """How many further hosts a caller may be offered for an instance."""
        return self._deps.limits.max_attempts - 1

    @property
    def waiting(self) -> int:
        """How many requests wait for capacity."""
        return self._reserving.waiting

    @property
    def waiting_for_feed(self) -> int:
        """How many requests wait until hosts are known, or were looked at again."""
        return self._reserving.waiting_for_feed

    def describe(self, cluster: str) -> dict[str, object]:
        """The requests waiting for a cluster, and this process's lease of it; takes no lock."""
        return self._reserving.describe(cluster)

    def stop_waiting(self) -> None:
        """End all waits for capacity and for the feed with WorkerStops, now and from now on; so
        also for Placement, while it is away.
        """
        self._reserving.stop_waiting()
        if self._claiming is not None:
            self._claiming.stop_waiting()

    def close(self, timeout_s: float) -> int:
        """Finish with Placement; returns how many claims were not taken back that should be."""
        if self._asking is not None:
            self._asking.close()
        if self._verifying is not None:
            self._verifying.close()
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
            await self._reserving.await_hosts(trace, yield_slot)
            made = await self._select_and_claim(trace, routing, yield_slot)
            if clock.monotonic_s() >= trace.caller_deadline_s:
                self._take_back(made)
                raise DeadlineExceeded("The request was decided when its caller no longer waited.")
        except Exception as error:
            if isinstance(error, StateUnavailable):
                observer.count(events.STATE_ERRORS)
            self._decided(request, trace.failed(error, clock.monotonic_s()))
            if trace.look and isinstance(error, NoValidHost):
                observer.count(events.SECOND_LOOKS, "refused" if trace.look == "done" else "late")
            raise
        if trace.look:
            observer.count(
                events.SECOND_LOOKS, "alternates" if trace.looks_for_alternates else "placed"
            )
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

    async def _select_and_claim(
        self, trace: RequestTrace, routing: Routing, yield_slot: YieldSlot
    ) -> _Made:
        """Decide, claim and verify; decide again without the hosts that Placement refuses, or as
        hosts turn out to be by now.
        """
        claiming, asked = self._claiming, trace.request
        if claiming is not None and not claiming.applies(asked):
            claiming = None
        diagnosis: Diagnosis | None = None
        job: ClaimJob | None = None
        for _ in range(self._deps.limits.max_attempts_to_commit):
            decision = await self._reserving.reserve(trace, routing, yield_slot)
            diagnosis = decision.diagnosis
            if claiming is not None:
                job = claiming.job(asked, decision, trace.caller_deadline_s, job)
            made = await self._confirmed(trace, _Made(decision, routing, job), yield_slot)
            if made is not None:
                return made
        raise NoValidHost(NOT_ENOUGH_HOSTS, diagnosis)

    async def _confirmed(
        self, trace: RequestTrace, made: _Made, yield_slot: YieldSlot
    ) -> _Made | None:
        """What was made, claimed and verified; None: it was taken back, and is to be made again."""
        verification = self._verification(trace, made.decision)
        verified: Decision | None = None
        try:
            if self._claiming is not None and made.claim is not None:
                with self._spent("claim", trace):
                    await self._claiming.claim(made.claim, made.decision, yield_slot)
            verified = await self._verified(trace, made.decision, verification)
        except HostsRefused as refused:
            trace.request = trace.request.without(refused.hosts)
        except BaseException:
            self._take_back(made)
            raise
        if verified is None:
            self._take_back(made)
            return None
        if self._asking and made.claim and trace.request.spec.allocation_candidates:
            self._asking.claimed(made.decision.claims)
        return made._replace(decision=verified)

    @contextmanager
    def _spent(self, phase: PhaseName, trace: RequestTrace) -> Iterator[None]:
        begun_s = self._deps.clock.monotonic_s()
        try:
            yield
        finally:
            trace.spent(phase, begun_s, self._deps.clock.monotonic_s())

    def _verification(self, trace: RequestTrace, decision: Decision) -> Verification | None:
        if self._verifying is None:
            return None
        return self._verifying.begin(trace.request, decision, trace.caller_deadline_s)

    async def _verified(
        self, trace: RequestTrace, decision: Decision, verification: Verification | None
    ) -> Decision | None:
        """The decision, with other alternates where some have changed; None: a chosen host has."""
        for is_last in (False, True):
            if verification is None:
                break
            with self._spent("verify", trace):
                changed = await verification.changed()
            if not changed:
                break
            chosen = [some[0] for some in decision.selections]
            if hosts := {each.service_host for each in chosen if each.compute_node_uuid in changed}:
                if again := hosts & trace.changed:
                    # What cannot be stored, such as a tree that is gone, would be chosen for ever.
                    trace.request = trace.request.without(again)
                trace.changed |= hosts
                return None
            decision = alternates.without(decision, changed)
            if not is_last:
                decision = alternates.renewed(self._deps, decision, trace.request, trace.cluster)
                verification = self._verification(trace, decision)
        return decision

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
        deleted = take_back(self._deps, made.routing)
        if self._claiming is not None and made.claim is not None:
            self._claiming.take_back(made.claim, {claims[each] for each in deleted})

    # Explaining

    def explain(
        self, request: Request, *, hosts: Sequence[str] = (), limit: int = 100
    ) -> Explanation:
        """Why hosts would be chosen or not, as :meth:`Explaining.explain` says."""
        return self._explaining.explain(request, hosts=hosts, limit=limit)

    def rehearse(self, request: Request, *, limit: int) -> Rehearsal:
        """What would be decided now, as :meth:`Explaining.rehearse` says."""
        return self._explaining.rehearse(request, limit=limit)
