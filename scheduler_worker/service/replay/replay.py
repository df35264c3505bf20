"""Kept decisions are decided again, in their order, on a copy of the hosts: a rehearsal.

Instances that are still where they came to in the span are taken away first, and decided anew. An
instance that is gone by now, or came elsewhere by a later decision, counts only at the moment of
its decision: nobody knows for how long it stayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from scheduler_worker.errors import NoValidHost, RequestError, SchedulerWorkerError
from scheduler_worker.model.kept_decisions import DecisionId, Details, KeptDecision
from scheduler_worker.model.rehearsals import Change
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.observer import Outcome
from scheduler_worker.scheduling.pci.requests import pci_requests
from scheduler_worker.scheduling.pipeline import Pipeline, Request
from scheduler_worker.scheduling.prefilters.needs import needs_of
from scheduler_worker.scheduling.selections import resources_of
from scheduler_worker.service.decisions.reasons import why_refused
from scheduler_worker.service.placement.scheduler import Scheduler
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.replay.rewinding import InstanceUse, rewound
from scheduler_worker.service.replay.snapshot import Snapshot, instances_in, reservations_in
from scheduler_worker.service.state.replica import Fleet


class ReplayPlan(NamedTuple):
    """What is to be decided again, and on which hosts."""

    snapshot: Snapshot
    """The hosts without the instances that are decided anew."""
    decisions: tuple[KeptDecision, ...]
    """The oldest first."""
    staying: frozenset[DecisionId]
    """The decisions whose instances take room afterwards."""
    left_out: Mapping[str, int]
    """Why decisions are not rehearsed -> how many."""


class Rehearsed(NamedTuple):
    """A kept decision, and what it would be."""

    decision: KeptDecision
    hosts: tuple[str, ...]
    """One for each instance; empty: it would be refused."""
    reason: str | None = None
    """Why it would be refused."""

    @property
    def change(self) -> Change:
        """Compared with what it was."""
        before = self.decision.outline.hosts
        if self.hosts == before:
            return "same"
        if not self.hosts:
            return "refused"
        return "moved" if before else "placed"


def planned(
    snapshot: Snapshot, decisions: Iterable[KeptDecision], pipelines: Pipelines
) -> ReplayPlan:
    """What to decide again of these decisions, in whatever order they are given."""
    left_out: Counter[str] = Counter()
    wanted: list[KeptDecision] = []
    last: dict[str, KeptDecision] = {}
    for each in sorted(decisions, key=lambda each: each.id):
        if why := _why_not(each):
            left_out[why] += 1
            continue
        wanted.append(each)
        if each.outline.result == "placed":
            last |= dict.fromkeys(each.outline.instances, each)
    fixed = {uuid for uuid, each in last.items() if _is_inside(each, pipelines)}
    taken = {
        uuid: _taken(_details(each).spec, pipelines)
        for uuid, each in last.items()
        if uuid not in fixed
    }
    before = rewound(snapshot, taken)
    present = fixed & _present(snapshot)
    rehearsed = []
    for each in wanted:
        if any(uuid in present and last[uuid] is each for uuid in each.outline.instances):
            left_out["takes of NUMA cells, devices or providers of its host"] += 1
        else:
            rehearsed.append(each)
    staying = {each.id for uuid, each in last.items() if uuid in before.instances}
    staying |= {each.id for each in rehearsed if each.outline.result == "refused"}
    return ReplayPlan(before.snapshot, tuple(rehearsed), frozenset(staying), left_out)


class Replay:
    """Decides a plan on a scheduler of its own, whose state has the plan's snapshot."""

    def __init__(self, plan: ReplayPlan, fleet: Fleet, pipelines: Pipelines) -> None:
        self._plan = plan
        self._fleet = fleet
        self._pipelines = pipelines
        self._outcome: Outcome | None = None

    def keep(self, request: Request, outcome: Outcome, decision: object) -> None:
        """For the scheduler's parameter ``keep``."""
        self._outcome = outcome

    def run(self, scheduler: Scheduler) -> Iterator[Rehearsed]:
        """Decide one after the other, and yield each."""
        for each in self._plan.decisions:
            details = _details(each)
            request = Request(
                spec=details.spec,
                instance_uuids=each.outline.instances,
                priority=details.priority,
            )
            try:
                decision = scheduler.select(request)
            except NoValidHost as error:
                yield Rehearsed(each, (), self._why(details, error))
                continue
            except SchedulerWorkerError as error:
                yield Rehearsed(each, (), str(error))
                continue
            if each.id in self._plan.staying:
                scheduler.answered(decision)
            else:
                scheduler.take_back(decision)
            yield Rehearsed(each, tuple(some[0].service_host for some in decision.selections))

    def _why(self, details: Details, error: NoValidHost) -> str:
        outcome = self._outcome
        if outcome is None:
            return error.reason
        of_now = Details(
            spec=details.spec, candidates=outcome.candidates, rejections=outcome.rejections
        )
        return why_refused(outcome, of_now, self._pipeline_of)

    def _pipeline_of(self, cluster: str | None) -> Pipeline:
        return self._pipelines.of_cluster(self._fleet, cluster)


def _why_not(kept: KeptDecision) -> str | None:
    """Why a decision cannot be decided again."""
    if kept.details is None:
        return "its details are not kept any more"
    if kept.outline.result == "failed":
        return "it failed"
    if kept.details.spec.is_rebuild_check:
        return "it checked a new image for a rebuild"
    return None


def _details(kept: KeptDecision) -> Details:
    assert kept.details is not None  # noqa: S101 - others are left out
    return kept.details


def _is_inside(kept: KeptDecision, pipelines: Pipelines) -> bool:
    """Whether its instances take more of a host than amounts, which cannot be taken away again."""
    spec = _details(kept).spec
    if spec.numa_topology is not None or pci_requests(spec) or spec.vm:
        return True
    try:
        return needs_of(spec, pipelines.nova.candidates.parameters).supply is not None
    except (NoValidHost, RequestError):
        return False


def _present(snapshot: Snapshot) -> set[str]:
    """The instances that are on hosts, or have reservations."""
    found: set[str] = set()
    for cluster in snapshot.clusters.values():
        found.update(*(instances for _, instances in instances_in(cluster)))
        found.update(each.instance_uuid for _, each in reservations_in(cluster))
    return found


def _taken(spec: RequestSpec, pipelines: Pipelines) -> InstanceUse:
    try:
        amounts = dict(needs_of(spec, pipelines.nova.candidates.parameters).amounts)
    except (NoValidHost, RequestError):
        amounts = {}
    return InstanceUse(resources_of(spec.flavor), amounts)
