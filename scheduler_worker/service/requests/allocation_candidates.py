"""Asks Placement for the allocation candidates of requests that no host's own tree can decide.

Such is a request for a resource class that sharing providers give, or that hosts give below their
compute nodes. Placement is asked without the cluster's lock and without the request's slot; its
answer goes with the request as a value. What our reservations hold of sharing providers and the
answer does not have goes with it too, so that nothing is reserved twice.
"""

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated

import msgspec

from scheduler_worker import events
from scheduler_worker.errors import PlacementRefused, PlacementUnavailable
from scheduler_worker.model.claims import Claim
from scheduler_worker.model.hosts import ClaimOrReservation
from scheduler_worker.model.providers import (
    FLAVOR_CLASSES,
    AllocationCandidate,
    AllocationCandidates,
    CandidatesAnswer,
    ProviderRoom,
    ReservedUse,
    SharingProvider,
)
from scheduler_worker.options import Opt
from scheduler_worker.placement import Allocations, CandidateSource, Sharing
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.scheduling.prefilters import hosts as facts
from scheduler_worker.scheduling.prefilters.candidates_query import (
    Query,
    asked_classes,
    by_root,
    queries,
    rooms,
)
from scheduler_worker.scheduling.prefilters.needs import Needs, needs_of
from scheduler_worker.service.requests.dependencies import PlacementDependencies
from scheduler_worker.service.requests.jobs import Question, Singleflight, deadline_of
from scheduler_worker.service.state.waits import SlotYielding
from scheduler_worker.waiters import YieldSlot, keep_slot

_FOR_THE_DECISION = 0.2
"""The share of a caller's time that is left for what comes after the answer."""
_MOST_YIELDING = 64
"""How many requests may wait without their slots, each of which takes another request."""
_BELOW_AGE_S = 10.0
"""For how long it counts as known which classes are given below compute nodes."""
_MOST_READ = 8
"""Consumers that are looked up for one question, at most."""


class AskingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How Placement is asked."""

    workers: int = 4
    """How many questions are under way at a time."""
    timeout_s: float = 60.0
    """How long a request waits for Placement if its caller does not say."""
    max_placement_results: Annotated[int, Opt(min=1)] = 1000
    """Allocation candidates that Placement is asked for at most, for requests that take from
    sharing providers and are not bound to certain hosts."""


class CandidatesPorts(msgspec.Struct, frozen=True):
    """What asking needs of the outside."""

    source: CandidateSource
    sharing: Sharing
    allocations: Allocations | None = None
    """None: nothing is claimed, so no reservation is in Placement's figures."""
    settings: AskingSettings = AskingSettings()


class AllocationCandidatesClient:
    """Asks about requests; safe for threads."""

    def __init__(self, deps: PlacementDependencies, ports: CandidatesPorts) -> None:
        self._deps = deps
        self._ports = ports
        self._questions: Singleflight[AllocationCandidates | None] = Singleflight(
            deps.clock, name="candidates", workers=ports.settings.workers
        )
        self.stop_waiting, self.close = self._questions.stop_waiting, self._questions.close
        self._slots = SlotYielding(_MOST_YIELDING)
        self._guard = threading.Lock()
        self._allocated: set[str] = set()
        """Ids of reservations that Placement is known to have."""
        self._below: frozenset[str] = frozenset()
        self._below_read_s = float("-inf")

    async def ask(
        self,
        request: Request,
        caller_deadline_s: float = math.inf,
        yield_slot: YieldSlot = keep_slot,
        *,
        explains: bool = False,
    ) -> Request:
        """The request with Placement's present answer; as it is where it need not be asked.

        ``explains``: the answer has the present use of sharing providers.

        Raises:
            RequestError: a field is invalid.
            StateUnavailable: the store cannot be reached.
            PlacementUnavailable: there was no answer in the caller's time.
            PlacementRefused: Placement does not accept the query, or the account.
            WorkerStops: it waited for Placement, which is away.
        """
        if request.spec.is_rebuild_check:
            return request
        known, below = self._ports.sharing.known(), self._given_below()
        if known is not None and not (known or below):
            return request
        spec = request.spec
        needs = needs_of(spec, self._deps.pipelines().nova.candidates.parameters)
        if known is not None and not concerns(needs, known, below):
            return _with(request, None)
        aggregates = self._deps.fleet.globals.aggregates.values()
        asked = queries(spec, needs, list(aggregates), self._ports.settings.max_placement_results)
        now_s, timeout_s = self._deps.clock.monotonic_s(), self._ports.settings.timeout_s
        question = Question(
            (asked, explains),
            lambda timeout_s, _: self._answer(asked, needs, timeout_s, explains=explains),
            deadline_of(now_s, caller_deadline_s, timeout_s, kept=_FOR_THE_DECISION),
        )
        self._questions.submit(question)
        return _with(request, await self._slots.wait(question, yield_slot))

    def is_doubtful(self, request: Request) -> bool:
        """Whether something may have been counted twice: as reserved, and as used in the answer."""
        answer = request.spec.allocation_candidates
        if answer is None:
            return False
        return any(
            reservation.id not in answer.allocated
            for _, reservation in self._taking(answer.sharing)
        )

    def claimed(self, claims: Collection[Claim]) -> None:
        """These were claimed in Placement, which answers accordingly from now on."""
        with self._guard:
            self._allocated.update(claim.id for claim in claims)

    def _given_below(self) -> frozenset[str]:
        """The classes of a flavor that some host gives below its compute node alone."""
        now_s = self._deps.clock.monotonic_s()
        if now_s - self._below_read_s > _BELOW_AGE_S:
            nodes: set[str] = set()
            for replica in self._deps.fleet.clusters():
                with replica.reading(self._deps.fleet.store):
                    nodes.update(
                        name
                        for name in FLAVOR_CLASSES
                        if facts.gives_below_root(replica.table, name).any()
                    )
            self._below, self._below_read_s = frozenset(nodes), now_s
        return self._below

    # In a thread of the pool

    def _answer(
        self, asked: Sequence[Query], needs: Needs, timeout_s: float, *, explains: bool
    ) -> AllocationCandidates | None:
        sharing = None if explains else self._ports.sharing.known()
        if sharing is None:
            sharing = self._ports.sharing.read()
        if not concerns(needs, sharing, self._below):
            return None
        allocated, reserved = self._reserved(sharing, timeout_s)
        candidates: dict[str, tuple[AllocationCandidate, ...]] = {}
        known: dict[str, dict[str, ProviderRoom]] = {}
        for query in asked:
            answer = self._ask(query, timeout_s)
            for root, some in by_root(needs, answer, unpinned=query.unpinned).items():
                candidates[root] = candidates.get(root, ()) + some
            for provider, room in rooms(answer).items():
                known.setdefault(provider, {}).update(room)
        return AllocationCandidates(
            by_root=candidates,
            rooms=known,
            sharing=tuple(sharing),
            allocated=allocated,
            reserved=reserved,
        )

    def _ask(self, query: Query, timeout_s: float) -> CandidatesAnswer:
        clock, observer = self._deps.clock, self._deps.observer
        begun_s, result = clock.monotonic_s(), "failed"
        try:
            answer = self._ports.source.candidates(query.text, timeout_s=timeout_s)
            result = "some" if answer.requests else "none"
        except PlacementUnavailable:
            result = "unavailable"
            raise
        except PlacementRefused:
            result = "refused"
            raise
        finally:
            observer.count(events.CANDIDATES, result)
            observer.time(events.CANDIDATES_TIME, clock.monotonic_s() - begun_s)
        return answer

    def _reserved(
        self, sharing: Sequence[SharingProvider], timeout_s: float
    ) -> tuple[frozenset[str], tuple[ReservedUse, ...]]:
        """The reservations that take from them: those Placement is known to have, and the others.

        Placement is asked for candidates after this.
        """
        with self._guard:
            before = allocated = frozenset(self._allocated)
        taking = list(self._taking(sharing))
        unknown = [reserved for _, reserved in taking if reserved.id not in allocated]
        allocated |= self._found_allocated(unknown[:_MOST_READ], timeout_s)
        allocated &= {reserved.id for _, reserved in taking}
        with self._guard:  # what ended is forgotten, what was claimed since is not
            self._allocated = set(allocated) | (self._allocated - before)
        providers = {reserved.uuid for reserved in sharing}
        return allocated, tuple(
            ReservedUse(id=reserved.id, cluster=cluster, use=use)
            for cluster, reserved in taking
            if reserved.id not in allocated
            for use in reserved.resources.providers
            if use.provider in providers
        )

    def _taking(
        self, sharing: Sequence[SharingProvider]
    ) -> Iterator[tuple[str, ClaimOrReservation]]:
        """The cluster and the reservations that take from sharing providers, each once."""
        for replica in self._deps.fleet.clusters():
            taking: dict[str, ClaimOrReservation] = {}
            with replica.reading(self._deps.fleet.store):
                for provider in sharing:
                    some = replica.table.reservations_of_provider(provider.uuid)
                    taking |= {reservation.id: reservation for reservation in some}
            yield from ((replica.scope, reservation) for reservation in taking.values())

    def _found_allocated(
        self, unknown: Sequence[ClaimOrReservation], timeout_s: float
    ) -> frozenset[str]:
        """The reservations of other workers that Placement has."""
        if self._ports.allocations is None:
            return frozenset()
        allocated = set()
        for each in unknown:
            consumer = self._ports.allocations.read(each.instance_uuid, timeout_s=timeout_s)
            held: defaultdict[str, Counter[str]] = defaultdict(Counter)
            for use in each.resources.providers:
                held[use.provider].update(use.resources)
            if consumer is not None and consumer.holds({k: v for k, v in held.items() if v}):
                allocated.add(each.id)
        return frozenset(allocated)


def concerns(needs: Needs, sharing: Sequence[SharingProvider], below: Collection[str]) -> bool:
    """Whether the request takes what hosts' own trees do not tell."""
    classes = asked_classes(needs)
    shared = {name for provider in sharing for name in provider.inventories}
    return not (classes.isdisjoint(shared) and classes.isdisjoint(below))


def _with(request: Request, answer: AllocationCandidates | None) -> Request:
    if request.spec.allocation_candidates is answer:
        return request
    spec = msgspec.structs.replace(request.spec, allocation_candidates=answer)
    return msgspec.structs.replace(request, spec=spec)
