"""Select destinations: the life of a request, from its arrival to hosts that are answered."""

import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum, auto
from functools import partial
from typing import Any

from scheduler_worker import events
from scheduler_worker.errors import DeadlineExceeded, NoValidHost, StateAway
from scheduler_worker.model.decisions import Decision
from scheduler_worker.observer import Observer, Outcome, PhaseName
from scheduler_worker.ports import Clock, ClusterLock, Seen
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Request
from scheduler_worker.scheduling.prefilters.candidates_query import queries
from scheduler_worker.scheduling.prefilters.needs import needs_of
from scheduler_worker.service.feed.refreshes import RefreshBarrier
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.requests import alternates
from scheduler_worker.service.requests.allocation_candidates import (
    AllocationCandidatesClient,
    CandidatesPorts,
)
from scheduler_worker.service.requests.claim_batcher import ClaimJob
from scheduler_worker.service.requests.claims import PlacementClaims, PlacementPorts
from scheduler_worker.service.requests.deciding import (
    Candidates,
    ClusterChoice,
    ClusterQueues,
    refusal,
)
from scheduler_worker.service.requests.dependencies import PlacementDependencies, PlacementLimits
from scheduler_worker.service.requests.explainer import Explainer
from scheduler_worker.service.requests.jobs import Pauses
from scheduler_worker.service.requests.lease import take_back
from scheduler_worker.service.requests.state_pauses import StatePauses
from scheduler_worker.service.requests.verifier import AnswerVerifier, Verification, VerifierPorts
from scheduler_worker.service.requests.waiting import CapacityWaits
from scheduler_worker.service.state.attempt import PlacementAttempt
from scheduler_worker.service.state.intents import DecidedElsewhere, PlacementIntents, Verdicts
from scheduler_worker.service.state.moves import Moves
from scheduler_worker.service.state.records import Verdict
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.service.state.writing import Writer
from scheduler_worker.waiters import YieldSlot, complete, keep_slot

_MOST_CANDIDATES = 1000
"""Candidates that a refresh asks for; nova-scheduler asks for as many."""
_QUESTIONS = 3
"""How often Placement is asked about one decision, while others' claims are being written."""


class LifeStage(IntEnum):
    """The stages of a request, in the order in which they are passed."""

    AWAIT_HOSTS = auto()
    ASK = auto()
    DECIDE = auto()
    COMPLETE = auto()
    BEGIN_VERIFYING = auto()
    CLAIM = auto()
    VERIFY = auto()
    NOTE_CLAIM = auto()


class _Life(PlacementAttempt):
    """An attempt, with what its stages hand on."""

    decision: Decision
    claim: ClaimJob | None = None
    refused_claim: ClaimJob | None = None
    """The last one that Placement did not take."""
    verification: Verification
    has_renewed = False
    """Whether its alternates were chosen again, as some had changed."""
    rounds = 0
    """How often its hosts were taken back and others decided."""
    # Of one round
    questions = 0
    begun_s: float | None = None
    wait_until_s: float | None = None


_Run = Callable[[_Life], Coroutine[Any, Any, LifeStage | None]]
"""Returns the stage to go back to; None: the next one follows."""


Keep = Callable[[Request, Outcome, Decision | None], None]
"""Is given each request as it was asked, how it ended, and its decision if it got one; must not
block."""


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
        barrier: RefreshBarrier | None = None,
        verifying: VerifierPorts | None = None,
        keep: Keep | None = None,
    ) -> None:
        """With ``placement``, hosts are claimed there before callers are answered.

        With ``asking``, Placement is asked about requests that take from sharing providers.
        With ``barrier``, requests wait until all hosts are known, and until these are read again
        before they are refused. With ``verifying``, chosen hosts are compared with where they are
        from before callers are answered. ``keep`` hears of each request that has ended.
        """
        observer = observer or Observer()
        self._keep = keep
        self._deps = deps = PlacementDependencies(
            fleet=fleet,
            lock=lock,
            pipelines=pipelines,
            clock=clock,
            limits=limits,
            observer=observer,
            grants={},
            placement_intents=PlacementIntents(fleet.store, limits.intent_ttl_s),
            moves=Moves(fleet, observer, remember_answers_s=limits.remember_answers_s),
            writer=Writer(fleet.store, observer),
        )
        self._choice = ClusterChoice(deps)
        self._queues = ClusterQueues(deps)
        self._capacity = CapacityWaits(deps)
        self._state_pauses = StatePauses(deps)
        self._barrier = barrier
        self._candidates = AllocationCandidatesClient(deps, asking) if asking else None
        self._claims = PlacementClaims(deps, placement) if placement else None
        self._verifying = AnswerVerifier(deps, verifying) if verifying else None
        self._verdicts = Verdicts(fleet.store, clock, remember_s=limits.remember_answers_s)
        self._unanswered: dict[int, _Life] = {}
        explaining = Explainer(deps, self._choice, self._candidates, barrier)
        self.explain, self.rehearse = explaining.explain, explaining.rehearse
        self._stages = list(self._life_here())

    def _life_here(self) -> Iterator[tuple[LifeStage, _Run]]:
        """The stages of a request in this deployment."""
        if self._barrier:
            yield LifeStage.AWAIT_HOSTS, partial(self._await_hosts, self._barrier)
        if self._candidates:
            yield LifeStage.ASK, partial(self._ask, self._candidates)
        yield LifeStage.DECIDE, self._decide
        if self._barrier:
            yield LifeStage.COMPLETE, self._complete_alternates
        if self._verifying:
            yield LifeStage.BEGIN_VERIFYING, partial(self._begin_verifying, self._verifying)
        if self._claims:
            yield LifeStage.CLAIM, partial(self._claim, self._claims)
        if self._verifying:
            yield LifeStage.VERIFY, partial(self._verify, self._verifying)
        if self._candidates and self._claims:
            yield LifeStage.NOTE_CLAIM, partial(self._note_claim, self._candidates)

    @property
    def max_alternates(self) -> int:
        """How many further hosts a caller may be offered for an instance."""
        return self._deps.limits.max_attempts - 1

    @property
    def waiting(self) -> int:
        """How many requests wait for capacity."""
        return self._capacity.waiting

    @property
    def waiting_for_feed(self) -> int:
        """How many requests wait until hosts are known, or were read again."""
        return self._barrier.waiting if self._barrier else 0

    def describe(self, cluster: str) -> dict[str, object]:
        """The requests waiting for a cluster, and this process's lease of it; takes no lock."""
        waiting = {"waiting_for_pending": self._capacity.waiting_for(cluster)}
        return self._queues.describe(cluster) | waiting

    def stop_waiting(self) -> None:
        """End all waits with WorkerStops, now and from now on; for Placement, while it is away."""
        self._capacity.close()
        self._state_pauses.close()
        if self._barrier is not None:
            self._barrier.close()
        for client in (self._candidates, self._claims):
            if client is not None:
                client.stop_waiting()

    def close(self, timeout_s: float) -> int:
        """Finish with Placement; returns how many claims were not taken back that should be."""
        for client in (self._candidates, self._verifying):
            if client is not None:
                client.close()
        return self._claims.close(timeout_s) if self._claims else 0

    # Selecting

    def select(self, request: Request, *, remaining_s: float | None = None) -> Decision:
        """Like :meth:`selecting`, for callers with a thread of their own."""
        return complete(self.selecting(request, remaining_s=remaining_s))

    async def selecting(
        self, request: Request, remaining_s: float | None = None, yield_slot: YieldSlot = keep_slot
    ) -> Decision:
        """Choose and reserve a host for every instance of the request, and claim it in Placement.

        Waits in the queue. If no host passes but one would if pending reservations
        were released, waits for that too, and for Placement and the state, inside ``yield_slot``.
        ``remaining_s`` is how long the caller waits for the answer.

        Raises:
            NoValidHost: with the diagnosis of the last attempt.
            AllocationUpdateFailed, PlacementUnavailable, PlacementRefused: it cannot be claimed.
            RequestError: the request is invalid, or its claim would have no owner.
            DeadlineExceeded: the caller no longer waits, or would not; nothing stays reserved.
            ClusterLockTimeout, Conflict, StateUnavailable: nothing is reserved, try again.
        """
        clock, observer = self._deps.clock, self._deps.observer
        now_s = clock.monotonic_s()
        deadline_s = now_s + (math.inf if remaining_s is None else remaining_s)
        life = _Life(request, now_s, deadline_s, yield_slot)
        try:
            if self._claims is not None:
                self._claims.check(request)
            await self._pass_stages(life)
            ended_s = clock.monotonic_s()
            if ended_s >= life.caller_deadline_s:
                raise DeadlineExceeded("The request was decided when its caller no longer waited.")
        except BaseException as error:
            self._take_back(life)
            if isinstance(error, Exception):
                self._decided(life, life.failed(error, clock.monotonic_s()))
            if life.refresh and isinstance(error, NoValidHost):
                observer.count(events.SECOND_LOOKS, "refused" if life.refresh == "done" else "late")
            raise
        if life.refresh:
            result = "alternates" if life.refreshes_alternates else "placed"
            observer.count(events.SECOND_LOOKS, result)
        self._unanswered[id(life.decision)] = life
        self._decided(life, life.placed(life.decision, ended_s), life.decision)
        return life.decision

    async def _pass_stages(self, life: _Life) -> None:
        stages, at, pauses = self._stages, 0, Pauses()
        while at < len(stages):
            try:
                back = await stages[at][1](life)
            except StateAway as away:
                await self._state_pauses.pause(life, away, pauses)
                # What was reserved and cannot be taken back is found, and kept.
                self._take_back(life)
                self._begin_again(life)
                back = LifeStage.AWAIT_HOSTS
            at += 1
            if back is not None:
                # A deployment may lack the stage to go back to: the first one from there on will
                # do.
                at = next(n for n, (stage, _) in enumerate(stages) if stage >= back)

    def _decided(self, life: _Life, outcome: Outcome, decision: Decision | None = None) -> None:
        self._deps.observer.decided(outcome)
        if self._keep is not None:
            self._keep(life.asked, outcome, decision)

    async def selecting_once(
        self,
        digest: str,
        request: Request,
        *,
        remaining_s: float | None = None,
        yield_slot: YieldSlot = keep_slot,
    ) -> Decision:
        """Like :meth:`selecting`, for a cast, which every worker that gets a copy answers.

        ``digest`` is the same for all copies. Whether the request gets hosts is recorded under it,
        so that all copies are answered alike.
        """
        select = partial(self.selecting, request, remaining_s=remaining_s, yield_slot=yield_slot)
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
        # Whatever went wrong, this copy answers nobody with what it reserved.
        except BaseException:
            self.take_back(decision)
            raise
        return decision

    # Stages

    async def _await_hosts(self, barrier: RefreshBarrier, life: _Life) -> None:
        """Wait until all hosts are known; else refuse, in the way that callers handle best."""
        if why := await barrier.until_ready(life.caller_deadline_s, life.yield_slot):
            raise NoValidHost(why)

    async def _ask(self, candidates: AllocationCandidatesClient, life: _Life) -> None:
        """Ask Placement for allocation candidates, where hosts' own trees do not suffice."""
        life.begun_s = None
        life.questions += 1
        self._choice.refresh_globals()
        life.request = await candidates.ask(life.request, life.caller_deadline_s, life.yield_slot)

    async def _decide(self, life: _Life) -> LifeStage | None:
        """Wait in a cluster's queue for its lock; decide, and commit."""
        clock, choice = self._deps.clock, self._choice
        if life.begun_s is None:
            life.begun_s = clock.monotonic_s()
        timeout_s = self._deps.limits.acquire_timeout_s
        deadline_s = min(life.caller_deadline_s, clock.monotonic_s() + timeout_s)
        seen = choice.refresh_globals()
        eligible = choice.eligible(life.request)
        candidates = choice.candidates(eligible, life.request, life.declared)
        life.any_cluster = choice.any_cluster(life.request)
        life.moves_seen = candidates.moves_seen
        try:
            life.decision = await self._queues.decide(candidates, life, deadline_s)
        except DecidedElsewhere:
            life.redirect(self._deps.limits.max_attempts_to_commit)
            return LifeStage.DECIDE
        except NoValidHost as error:
            refused = error
        else:
            return None
        return await self._refused(life, refused, seen, eligible, candidates)

    async def _refused(
        self,
        life: _Life,
        refused: NoValidHost,
        seen: Seen,
        eligible: Sequence[ClusterReplica],
        candidates: Candidates,
    ) -> LifeStage:
        """Where to go on once something has changed; raises the refusal if nothing does."""
        # Another worker may have got a cluster, or changed an aggregate, since the last read.
        is_new = self._choice.refresh_globals(life.begun_s) != seen
        if is_new or await self._refresh(life):
            return LifeStage.DECIDE
        # A rebuild stays on its host: no other host, and no wait, would help.
        if life.request.spec.is_rebuild_check:
            raise refused
        client = self._candidates
        if client and life.questions < _QUESTIONS and client.is_doubtful(life.request):
            return LifeStage.ASK
        if life.wait_until_s is None:
            # Half of the caller's time is left for the next attempt and for the answer.
            now_s, timeout_s = self._deps.clock.monotonic_s(), self._deps.limits.wait_timeout_s
            life.wait_until_s = min(life.half_time_s(now_s), now_s + timeout_s)
        preferred = list(dict.fromkeys((*candidates.clusters, *eligible)))
        if await self._capacity.wait(life, preferred, life.wait_until_s):
            return LifeStage.DECIDE
        raise refusal(refused, eligible, life.request.spec)

    async def _refresh(self, life: _Life, *, for_alternates: bool = False) -> bool:
        """Have hosts read again from their source, once for each request; whether that was done."""
        if self._barrier is None or life.refresh is not None:
            return False
        life.refreshes_alternates = for_alternates
        spec = life.request.spec
        needs = needs_of(spec, self._deps.pipelines().nova.candidates.parameters)
        aggregates = list(self._deps.fleet.globals.aggregates.values())
        asked = [query.text for query in queries(spec, needs, aggregates, _MOST_CANDIDATES)]
        with self._spent("look", life):
            is_done = await self._barrier.refresh(asked, life.caller_deadline_s, life.yield_slot)
        life.refresh = "done" if is_done else "late"
        if is_done:
            self._choice.refresh_globals(self._deps.clock.monotonic_s())
        return is_done

    async def _complete_alternates(self, life: _Life) -> None:
        """Have hosts read again for alternates that the decision lacks.

        A caller whose build fails everywhere else would count on them as on the first host.
        """
        is_short = alternates.are_short(life.decision, life.request)
        if is_short and await self._refresh(life, for_alternates=True):
            self._renew_alternates(life)

    async def _begin_verifying(self, verifying: AnswerVerifier, life: _Life) -> None:
        """Ask about the chosen hosts where they are from, while they are claimed."""
        life.verification = verifying.begin(life.request, life.decision, life.caller_deadline_s)

    async def _claim(self, claims: PlacementClaims, life: _Life) -> LifeStage | None:
        """Claim the chosen hosts in Placement."""
        if life.asked.spec.is_rebuild_check:
            return None
        deadline_s = life.caller_deadline_s
        life.claim = claims.job(life.asked, life.decision, deadline_s, life.refused_claim)
        with self._spent("claim", life):
            refused = await claims.claim(life.claim, life.decision, life.yield_slot)
        return self._again(life, refused) if refused else None

    async def _verify(self, verifying: AnswerVerifier, life: _Life) -> LifeStage | None:
        """Decide again if a chosen host has changed, and offer others for alternates that have."""
        with self._spent("verify", life):
            changed = await verifying.changed(life.decision, life.verification)
        chosen = [some[0] for some in life.decision.selections]
        hosts = {each.service_host for each in chosen if each.compute_node_uuid in changed}
        if hosts:
            # What cannot be stored, such as a tree that is gone, would be chosen for ever.
            again = hosts & life.changed
            life.changed |= hosts
            return self._again(life, again)
        if not changed:
            return None
        life.decision = alternates.without(life.decision, changed)
        if life.has_renewed:
            return None
        life.has_renewed = True
        self._renew_alternates(life)
        await self._begin_verifying(verifying, life)
        return LifeStage.VERIFY

    async def _note_claim(self, candidates: AllocationCandidatesClient, life: _Life) -> None:
        """From now on Placement answers with what was claimed."""
        if life.claim and life.request.spec.allocation_candidates:
            candidates.claimed(life.decision.claims)

    def _renew_alternates(self, life: _Life) -> None:
        life.decision = alternates.renewed(self._deps, life.decision, life.request, life.cluster)

    def _again(self, life: _Life, without: set[str]) -> LifeStage:
        """Take the hosts back, and decide again without some hosts, as they are by now."""
        self._take_back(life)
        life.rounds += 1
        if life.rounds >= self._deps.limits.max_attempts_to_commit:
            raise NoValidHost(NOT_ENOUGH_HOSTS, life.decision.diagnosis)
        if without:
            life.request = life.request.without(without)
        self._begin_again(life)
        return LifeStage.ASK

    def _begin_again(self, life: _Life) -> None:
        life.refused_claim, life.claim, life.has_renewed = life.claim, None, False
        life.questions, life.begun_s, life.wait_until_s = 0, None, None

    @contextmanager
    def _spent(self, phase: PhaseName, life: _Life) -> Iterator[None]:
        begun_s = self._deps.clock.monotonic_s()
        try:
            yield
        finally:
            life.spent(phase, begun_s, self._deps.clock.monotonic_s())

    # Answers

    def answered(self, decision: Decision) -> None:
        """Record that the caller has the decision: its reservations stay."""
        self._unanswered.pop(id(decision), None)

    def unanswered(self) -> list[str]:
        """The instances with reservations whose callers were not answered yet."""
        unanswered = list(self._unanswered.values())
        return [claim.instance_uuid for life in unanswered for claim in life.decision.claims]

    def take_back(self, decision: Decision) -> None:
        """Release what was reserved for a decision that cannot be answered any more, and claimed.

        A reservation that was answered to another request since, or announced, stays, and so does
        its claim. If the store cannot be reached, the reservations expire.
        """
        if life := self._unanswered.pop(id(decision), None):
            self._take_back(life)

    def take_back_unanswered(self) -> int:
        """Release all that is unanswered when the worker ends; returns how many instances."""
        instances = self.unanswered()
        for life in list(self._unanswered.values()):
            self.take_back(life.decision)
        return len(instances)

    def _take_back(self, life: _Life) -> None:
        deleted = take_back(self._deps, life)
        if self._claims is not None and life.claim is not None:
            claims = life.decision.claims
            instances = {claim.instance_uuid for claim in claims if claim.id in deleted}
            self._claims.take_back(life.claim, instances)
