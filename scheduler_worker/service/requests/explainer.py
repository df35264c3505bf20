"""The questions that only read: why hosts would be chosen, and what would be decided now."""

from collections.abc import Container, Sequence
from typing import NamedTuple

import msgspec

from scheduler_worker.errors import BackendError, NoValidHost
from scheduler_worker.model.decisions import Diagnosis, Explanation
from scheduler_worker.model.host_records import known_as
from scheduler_worker.scheduling.explain import explain
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Request
from scheduler_worker.service.feed.refreshes import RefreshBarrier
from scheduler_worker.service.requests.allocation_candidates import AllocationCandidatesClient
from scheduler_worker.service.requests.deciding import ClusterChoice, refusal
from scheduler_worker.service.requests.dependencies import PlacementDependencies
from scheduler_worker.service.requests.lease import ClusterView, narrowed
from scheduler_worker.service.state.attempt import SeededRandom
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.waiters import complete

_EXPLAINED_IN_S = 10.0
"""How long an explanation waits for Placement, in a slot."""


class Explainer(NamedTuple):
    """Answers by what decisions would be made by: hosts, Placement (None: it is not asked), feed
    (None: hosts report themselves).
    """

    deps: PlacementDependencies
    choice: ClusterChoice
    candidates: AllocationCandidatesClient | None
    barrier: RefreshBarrier | None

    def explain(self, request: Request, hosts: Sequence[str] = (), limit: int = 100) -> Explanation:
        """Why the hosts of each cluster would be chosen or not; reserves nothing.

        ``hosts`` restricts the verdicts to these hosts; ``limit`` is the most verdicts per cluster.

        Raises:
            RequestError: the request names a cluster that does not exist.
            StateUnavailable: the store cannot be reached.
        """
        request, why = self._asked(request)
        explanation = self._explained(request, hosts, limit)
        return msgspec.structs.replace(explanation, reason=why) if why else explanation

    def rehearse(self, request: Request, *, limit: int) -> tuple[tuple[str, ...], Explanation]:
        """Decide as for a request that a single cluster takes whole; takes no lock of the store.

        Returns the host of each instance, none if it would be refused, and why. ``limit`` is the
        most verdicts for each cluster. Raises NoValidHost where it cannot be decided now, and as
        :meth:`explain`.
        """
        request, why = self._asked(request)
        if why:
            raise NoValidHost(why)
        explanation = self._explained(request, (), limit)
        eligible = {replica.scope: replica for replica in self.choice.eligible(request)}
        clusters = [eligible[name] for name in explanation.clusters if name in eligible]
        return self._hosts(clusters, request), explanation

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
        """The request with Placement's answer where it is asked; why it must not be decided now."""
        why = self.barrier.readiness.unready() if self.barrier else None
        if not why and self.candidates is not None:
            self.choice.refresh_globals()
            until_s = self.deps.clock.monotonic_s() + _EXPLAINED_IN_S
            try:
                request = complete(self.candidates.ask(request, until_s, explains=True))
            except BackendError as error:
                why = str(error)
        return request, why

    def _explained(self, request: Request, hosts: Sequence[str], limit: int) -> Explanation:
        self.deps.fleet.refresh_globals()
        eligible = self.choice.eligible(request)
        preferred = self.choice.candidates(eligible, request).clusters
        diagnoses = {
            replica.scope: self._diagnosis(replica, request, hosts, limit)
            for replica in dict.fromkeys((*preferred, *eligible))
        }
        is_refused = all(diagnose.chosen is None for diagnose in diagnoses.values())
        refused = refusal(NoValidHost(NOT_ENOUGH_HOSTS), eligible, request.spec)
        return Explanation(
            clusters=diagnoses,
            reason=refused.reason if is_refused else None,
            not_found=_not_found(self.deps.fleet, hosts, diagnoses.keys()),
        )

    def _diagnosis(
        self, replica: ClusterReplica, request: Request, hosts: Sequence[str], limit: int
    ) -> Diagnosis:
        with replica.reading(self.deps.fleet.store):
            view = ClusterView.current(self.deps, replica)
            return explain(
                view.pipeline,
                view.table,
                narrowed(replica, request),
                SeededRandom(request),
                only=hosts,
                limit=limit,
            )


def _not_found(fleet: Fleet, hosts: Sequence[str], explained: Container[str]) -> dict[str, str]:
    """What a host was called -> why the explanation has no verdict on it."""
    clusters: dict[str, str] = {}
    similar: dict[str, str] = {}
    for replica in fleet.clusters() if hosts else ():
        with replica.lock:
            if replica.scope not in explained:
                replica.refresh(fleet.store)
            for record in replica.table.records:
                clusters |= dict.fromkeys(known_as(record), replica.scope)
                similar |= {name.lower(): record.host for name in known_as(record)}
    found: dict[str, str] = {}
    for host in hosts:
        cluster, other = clusters.get(host), similar.get(host.lower())
        if cluster is None:
            found[host] = "no host of this name has reported, or it was removed"
            found[host] += f"; did you mean {other}?" if other else ""
        elif cluster not in explained:
            found[host] = f"is in cluster {cluster}, and the request names another"
    return found
