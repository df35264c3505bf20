"""The questions that only read: why hosts would be chosen, and what would be decided now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from scheduler_worker.errors import BackendError, NoValidHost
from scheduler_worker.model.decisions import Explanation
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.placement.allocation_candidates import AllocationCandidatesClient
from scheduler_worker.service.placement.candidates import ClusterChoice
from scheduler_worker.service.placement.dependencies import PlacementDependencies
from scheduler_worker.service.placement.explanations import explain_request
from scheduler_worker.service.placement.lease import ClusterView
from scheduler_worker.service.placement.refresh import RefreshBarrier
from scheduler_worker.service.state.replica import ClusterReplica
from scheduler_worker.waiters import complete

_EXPLAINED_IN_S = 10.0
"""How long an explanation waits for Placement, in a slot."""


class Rehearsal(NamedTuple):
    """A decision that was not made."""

    hosts: tuple[str, ...]
    """The host of each instance, in the order of the request; empty: it would be refused."""
    explanation: Explanation


class Explaining(NamedTuple):
    """Answers by what decisions would be made by: hosts, Placement (None: it is not asked), feed
    (None: hosts report themselves).
    """

    deps: PlacementDependencies
    choice: ClusterChoice
    asking: AllocationCandidatesClient | None
    freshness: RefreshBarrier | None

    def explain(self, request: Request, *, hosts: Sequence[str], limit: int) -> Explanation:
        """Why hosts would be chosen or not, as :func:`explain_request` describes."""
        request, why = self._asked(request)
        found = explain_request(self.deps, self.choice, request, hosts=hosts, limit=limit)
        return msgspec.structs.replace(found, reason=why) if why else found

    def rehearse(self, request: Request, *, limit: int) -> Rehearsal:
        """Decide as for a request that a single cluster takes whole; takes no lock of the store.

        ``limit`` is the most verdicts that the explanation has for each cluster. Raises NoValidHost
        where it cannot be decided now, and as :func:`explain_request`.
        """
        request, why = self._asked(request)
        if why:
            raise NoValidHost(why)
        explanation = explain_request(self.deps, self.choice, request, limit=limit)
        eligible = {each.scope: each for each in self.choice.eligible(request)}
        clusters = [eligible[name] for name in explanation.clusters if name in eligible]
        return Rehearsal(self._hosts(clusters, request), explanation)

    def _hosts(self, clusters: Sequence[ClusterReplica], request: Request) -> tuple[str, ...]:
        for replica in clusters:
            with replica.lock:
                view = ClusterView.current(self.deps, replica)
                try:
                    decision = view.decide(request)
                except NoValidHost:
                    continue
                view.give_back(decision.claims)
                return tuple(first.service_host for first, *_ in decision.selections)
        return ()

    def _asked(self, request: Request) -> tuple[Request, str | None]:
        """The request with Placement's answer where it has to be asked; and why it must not be
        decided now, None: it may.
        """
        why = self.freshness.feed.unready() if self.freshness else None
        if not why and self.asking is not None:
            self.choice.refresh_globals()
            until_s = self.deps.clock.monotonic_s() + _EXPLAINED_IN_S
            try:
                request = complete(self.asking.ask(request, until_s, explains=True))
            except BackendError as error:
                why = str(error)
        return request, why
