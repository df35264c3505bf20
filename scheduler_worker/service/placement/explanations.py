"""Explanations: why the hosts of each cluster would be chosen for a request, or not."""

from __future__ import annotations

from collections.abc import Container, Sequence

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.decisions import Diagnosis, Explanation
from scheduler_worker.scheduling.explain import explain
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Request
from scheduler_worker.service.placement.candidates import ClusterChoice, refusal
from scheduler_worker.service.placement.dependencies import PlacementDependencies
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.service.state.seeded_random import random_source
from scheduler_worker.service.state.white_list import narrowed


def explain_request(
    deps: PlacementDependencies,
    choice: ClusterChoice,
    request: Request,
    *,
    hosts: Sequence[str] = (),
    limit: int = 100,
) -> Explanation:
    """Why the hosts of each cluster would be chosen or not; reserves nothing.

    ``hosts`` restricts the verdicts to these hosts; ``limit`` is the most verdicts per cluster.

    Raises:
        RequestError: the request names a cluster that does not exist.
        StateUnavailable: the store cannot be reached.
    """
    deps.fleet.refresh_globals()
    eligible = choice.eligible(request)
    preferred = choice.candidates(eligible, request).clusters
    found = {
        replica.scope: _explain(deps, replica, request, hosts, limit)
        for replica in dict.fromkeys((*preferred, *eligible))
    }
    is_refused = all(each.chosen is None for each in found.values())
    refused = refusal(NoValidHost(NOT_ENOUGH_HOSTS), eligible, request.spec)
    return Explanation(
        clusters=found,
        reason=refused.reason if is_refused else None,
        not_found=_not_found(deps.fleet, hosts, found.keys()),
    )


def _explain(
    deps: PlacementDependencies,
    replica: ClusterReplica,
    request: Request,
    hosts: Sequence[str],
    limit: int,
) -> Diagnosis:
    with replica.lock:
        replica.refresh(deps.fleet.store)
        return explain(
            deps.pipelines().of(replica),
            deps.fleet.prepare(replica),
            narrowed(replica, request),
            random_source(request),
            only=hosts,
            limit=limit,
        )


def _not_found(fleet: Fleet, hosts: Sequence[str], explained: Container[str]) -> dict[str, str]:
    """Host name -> why the explanation has no verdict on it."""
    clusters: dict[str, str] = {}
    similar: dict[str, str] = {}
    for replica in fleet.clusters() if hosts else ():
        with replica.lock:
            if replica.scope not in explained:
                replica.refresh(fleet.store)
            for record in replica.table.records:
                clusters[record.host] = replica.scope
                names = record.host.lower(), record.nodename.lower()
                similar |= dict.fromkeys(names, record.host)
    found: dict[str, str] = {}
    for host in hosts:
        cluster, other = clusters.get(host), similar.get(host.lower())
        if cluster is None:
            found[host] = "no host of this name has reported, or it was removed"
            found[host] += f"; did you mean {other}?" if other else ""
        elif cluster not in explained:
            found[host] = f"is in cluster {cluster}, and the request names another"
    return found
