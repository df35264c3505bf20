"""Rehearsals: what would be decided now, with nothing reserved."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.decisions import Explanation
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.placement.candidates import ClusterChoice
from scheduler_worker.service.placement.dependencies import PlacementDependencies
from scheduler_worker.service.placement.explanations import explain_request
from scheduler_worker.service.placement.lease import ClusterView
from scheduler_worker.service.state.replica import ClusterReplica


class Rehearsal(msgspec.Struct, frozen=True):
    """A decision that was not made."""

    hosts: tuple[str, ...]
    """The host of each instance, in the order of the request; empty: it would be refused."""
    explanation: Explanation


def rehearse(
    deps: PlacementDependencies, choice: ClusterChoice, request: Request, *, limit: int
) -> Rehearsal:
    """Decide as for a request that a single cluster takes whole; takes no lock of the store.

    ``limit`` is the most verdicts that the explanation has for each cluster. Raises as
    :func:`explain_request`.
    """
    explanation = explain_request(deps, choice, request, limit=limit)
    eligible = {each.scope: each for each in choice.eligible(request)}
    clusters = [eligible[name] for name in explanation.clusters if name in eligible]
    return Rehearsal(_hosts(deps, clusters, request), explanation)


def _hosts(
    deps: PlacementDependencies, clusters: Sequence[ClusterReplica], request: Request
) -> tuple[str, ...]:
    for replica in clusters:
        with replica.lock:
            view = ClusterView.current(deps, replica)
            try:
                decision = view.decide(request)
            except NoValidHost:
                continue
            view.give_back(decision.claims)
            return tuple(first.service_host for first, *_ in decision.selections)
    return ()
