"""Claims what was decided: the first selection of every instance, before the caller is answered.

The reservations cover the claim until it is made, so no lock is held meanwhile, and no slot. A
claim that cannot be answered is taken back after its reservation: a copy of the request that finds
the one or the other before makes it its own, and then it stays.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial

import msgspec

from scheduler_worker import events
from scheduler_worker.errors import RequestError
from scheduler_worker.model.decisions import Decision
from scheduler_worker.model.providers import Consumer
from scheduler_worker.placement import Allocations, Why
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.requests.claim_batcher import (
    ClaimBatcher,
    ClaimJob,
    ClaimSettings,
    Rollback,
)
from scheduler_worker.service.requests.dependencies import PlacementDependencies
from scheduler_worker.service.requests.jobs import FOR_THE_ANSWER, deadline_of
from scheduler_worker.service.state.waits import SlotYielding
from scheduler_worker.waiters import YieldSlot, keep_slot


class PlacementPorts(msgspec.Struct, frozen=True):
    """What claiming needs of the outside."""

    allocations: Allocations
    read_again: Callable[[Collection[str]], object] = lambda _: None
    """Hears where Placement contradicts what is known of providers. Does not block."""
    settings: ClaimSettings = ClaimSettings()


class PlacementClaims:
    """Claims decisions, and takes claims back."""

    def __init__(self, deps: PlacementDependencies, ports: PlacementPorts) -> None:
        self._deps = deps
        self._read_again = ports.read_again
        self._settings = ports.settings
        self._slots = SlotYielding(ports.settings.batch * ports.settings.workers)
        self._batcher = ClaimBatcher(ports.allocations, deps.clock, deps.observer, ports.settings)
        self.stop_waiting = self._batcher.stop_waiting

    def check(self, request: Request) -> None:
        """Raises RequestError: hosts are to be claimed, and nobody would be their owner."""
        if request.owner is None and not request.spec.is_rebuild_check:
            lacks = "user_id" if request.spec.project_id else "project_id"
            problem = "is missing, and the context has none; a claim in Placement needs it"
            raise RequestError(f"spec_obj.{lacks}", problem)

    def job(
        self,
        request: Request,
        decision: Decision,
        caller_deadline_s: float,
        refused: ClaimJob | None = None,
    ) -> ClaimJob:
        """What is to be claimed for a decision; ``request`` is what the caller sent.

        ``refused`` is its last claim, which Placement did not take.
        """
        now_s, timeout_s = self._deps.clock.monotonic_s(), self._settings.timeout_s
        return ClaimJob(
            list(_consumers(request, decision)),
            deadline_s=deadline_of(now_s, caller_deadline_s, timeout_s, kept=FOR_THE_ANSWER),
            may_join=lambda found: self._is_evacuated(request, found),
            empty=refused.empty if refused else (),
        )

    async def claim(
        self, job: ClaimJob, decision: Decision, yield_slot: YieldSlot = keep_slot
    ) -> set[str]:
        """Wait until Placement has it; inside ``yield_slot``, unless too many do so already.

        Returns the hosts at which Placement does not take it, and has nothing of it then; another
        decision without these may succeed.

        Raises:
            AllocationUpdateFailed: an instance holds something that is in the way.
            PlacementConflict: other writers were always faster; nothing was written.
            PlacementUnavailable: it may have been written or not.
            PlacementRefused: the operator has to do something.
            WorkerStops: nothing was written.
        """
        count = partial(self._deps.observer.count, events.CLAIMS, by=len(job.wanted))
        self._batcher.submit(job)
        try:
            refusal = await self._slots.wait(job, yield_slot)
        except Exception as error:
            count(type(error).__name__)
            raise
        count(refusal.why.value if refusal else "claimed")
        if refusal is None:
            return set()
        # This worker's data of these providers is outdated, or it would not have chosen them.
        if refusal.why in {Why.FULL, Why.GONE}:
            taken = {provider for consumer in job.wanted for provider in consumer.held}
            self._read_again(refusal.providers or taken)
        return _hosts(decision, refusal.providers)

    def take_back(self, job: ClaimJob, instances: Collection[str]) -> None:
        """Take back the claims of these instances, whose reservations were taken back."""
        # A request that timed out may still be written: only a read shows whether it was.
        if job.may_be_written:
            for consumer, wanted in zip(job.consumers, job.wanted, strict=True):
                if consumer.uuid in instances:
                    self._batcher.roll_back(consumer, wanted)

    def close(self, timeout_s: float) -> int:
        """Stop; returns how many claims could not be taken back."""
        return sum(isinstance(job, Rollback) for job in self._batcher.close(timeout_s))

    def _is_evacuated(self, request: Request, consumer: Consumer) -> bool:
        """Whether what an instance holds is on hosts that its request leaves behind."""
        ignored = {ignore_host.lower() for ignore_host in request.spec.ignore_hosts or ()}
        # Of the providers that it holds, the compute nodes have the uuids of hosts.
        hosts = {record.host.lower() for record in self._deps.fleet.records_of(consumer.held)}
        return bool(hosts) and hosts <= ignored


def _consumers(request: Request, decision: Decision) -> Iterable[Consumer]:
    owner = request.owner
    for uuid, selections in zip(request.instance_uuids, decision.selections, strict=True):
        allocation = selections[0].allocation
        if owner is not None and allocation is not None and allocation.allocations:
            held = {provider: use["resources"] for provider, use in allocation.allocations.items()}
            yield Consumer(uuid=uuid, owner=owner, held=held, mappings=allocation.mappings)


def _hosts(decision: Decision, providers: Collection[str]) -> set[str]:
    """The chosen hosts that take of these providers; all of them if none does."""
    chosen = [some[0] for some in decision.selections]
    hit = {
        selection.service_host
        for selection in chosen
        if selection.allocation
        and not selection.allocation.allocations.keys().isdisjoint(providers)
    }
    return hit or {selection.service_host for selection in chosen}
