"""Alternates of a decision that was made already, from what is known of hosts since."""

from collections.abc import Collection

from msgspec import structs

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.decisions import Decision
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.requests.dependencies import PlacementDependencies
from scheduler_worker.service.requests.lease import ClusterView


def are_short(decision: Decision, request: Request) -> bool:
    """Whether an instance has fewer alternates than asked for, as hosts were down or full.

    A look at hosts that were refused for anything else would mostly be in vain: who has two hosts
    in each zone lacks alternates in every answer.
    """
    return decision.diagnosis.momentary and any(
        len(selection) <= request.num_alternates for selection in decision.selections
    )


def without(decision: Decision, hosts: Collection[str]) -> Decision:
    """The decision without the alternates among these compute nodes, given by uuid."""
    selections = tuple(
        (first, *(other for other in others if other.compute_node_uuid not in hosts))
        for first, *others in decision.selections
    )
    return structs.replace(decision, selections=selections)


def renewed(
    deps: PlacementDependencies, decision: Decision, request: Request, cluster: str | None
) -> Decision:
    """The decision with the alternates that there are now; nothing is reserved for them.

    The chosen hosts are answered as they were decided. Nobody checks them here, so their records
    stay as well: verification compares what they were chosen by. ``cluster`` is where the decision
    was committed; None: in several. Raises StateUnavailable.
    """
    if cluster is None:
        return decision
    replica = deps.fleet.cluster(cluster)
    with replica.reading(deps.fleet.store):
        view = ClusterView.current(deps, replica)
        try:
            again = view.decide(request)  # the instances keep their hosts
        except NoValidHost:
            return decision
        view.give_back(again.claims)
    if _hosts(again) != _hosts(decision):
        return decision
    pairs = zip(decision.selections, again.selections, strict=True)
    selections = tuple((chosen, *others) for (chosen, *_), (_, *others) in pairs)
    seen = {uuid: decision.records[uuid] for uuid in _hosts(decision)}
    return structs.replace(decision, selections=selections, records={**again.records, **seen})


def _hosts(decision: Decision) -> list[str]:
    return [selection[0].compute_node_uuid for selection in decision.selections]
