"""Why a request ended as it did, in one sentence."""

from __future__ import annotations

from collections.abc import Callable

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.decisions import Ranked
from scheduler_worker.model.kept_decisions import Details
from scheduler_worker.observer import Outcome
from scheduler_worker.scheduling import sentence
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Pipeline


def reason(
    outcome: Outcome, details: Details, pipeline_of: Callable[[str | None], Pipeline]
) -> str:
    """A sentence about the outcome.

    ``pipeline_of`` returns the pipeline of a cluster, whose filters say what they demand of hosts.
    """
    if outcome.result == "placed":
        return _why_placed(outcome, details.ranked)
    if outcome.reason is None:
        return "An unexpected error, whose details are in the worker's log."
    if outcome.result != NoValidHost.__name__:
        return outcome.reason
    if outcome.reason != NOT_ENOUGH_HOSTS or outcome.passed:
        return sentence.of_reason(outcome.reason)
    steps = list(details.filters)
    demands = pipeline_of(outcome.cluster).demands(details.spec, steps)
    said = sentence.refusal(outcome.candidates, steps, demands)
    if outcome.refusals > 1:
        said = sentence.of_clusters(outcome.cluster, outcome.refusals, said)
    return sentence.of_instances(outcome.instances, said)


def _why_placed(outcome: Outcome, ranked: Ranked) -> str:
    if outcome.repeated and outcome.repeated == outcome.instances:
        return "It had its hosts already, from an earlier delivery of the request."
    chosen, first = outcome.hosts[-1], ranked.names[0] if ranked.names else None
    best = first if first != chosen else None
    said = sentence.placement(
        chosen, outcome.candidates, outcome.passed, _shares(ranked), best=best
    )
    return said if outcome.instances == 1 else f"The last of {outcome.instances} instances: {said}"


def _shares(ranked: Ranked) -> list[tuple[str, float, float]]:
    """Of each weigher that distinguishes hosts what it gives the first host, and the second."""
    columns = zip(ranked.weighers, ranked.shares, strict=True)
    return [
        (name, own, following)
        for name, shares in columns
        if len(shares) > 1
        and (own := shares[0]) is not None
        and (following := shares[1]) is not None
    ]
