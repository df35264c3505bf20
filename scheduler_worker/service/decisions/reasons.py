"""Why a request ended as it did, in one sentence."""

from collections.abc import Callable, Sequence
from math import inf

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.decision_history import DecisionDetails, Margin
from scheduler_worker.model.decisions import Ranked
from scheduler_worker.observer import Outcome
from scheduler_worker.scheduling import sentence
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Pipeline

REPEATED = "It had its hosts already, from an earlier delivery of the request."


def lead(outcome: Outcome, ranked: Ranked) -> Margin | None:
    """What :func:`why_placed` makes a sentence of; None: the instances had their hosts before."""
    if outcome.repeated and outcome.repeated == outcome.instances:
        return None
    best = ranked.names[0] if ranked.names else None
    if best is not None and best != outcome.hosts[-1]:
        return Margin(outcome.candidates, outcome.passed, best=best)
    shares = [
        (name, own, following)
        for name, share in zip(ranked.weighers, ranked.shares, strict=True)
        if len(share) > 1
        and (own := share[0]) is not None
        and (following := share[1]) is not None
        and own > following
    ]
    return Margin(outcome.candidates, outcome.passed, tuple(shares))


def why_placed(hosts: Sequence[str], lead: Margin | None) -> str:
    """Why the last of these hosts was chosen, in one sentence."""
    if lead is None:
        return REPEATED
    shares = [
        (name, inf if own is None else own, -inf if following is None else following)
        for name, own, following in lead.shares
    ]
    said = sentence.placement(hosts[-1], lead.candidates, lead.passed, shares, best=lead.best)
    return said if len(hosts) == 1 else f"The last of {len(hosts)} instances: {said}"


def why_refused(
    outcome: Outcome, details: DecisionDetails, pipeline_of: Callable[[str | None], Pipeline]
) -> str:
    """Why a request got no hosts, in one sentence.

    ``pipeline_of`` returns the pipeline of a cluster, whose filters say what they demand of hosts.
    """
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
        said = sentence.of_clusters(outcome.cluster, outcome.refusals, outcome.refusing_hosts, said)
    return sentence.of_instances(outcome.instances, said)
