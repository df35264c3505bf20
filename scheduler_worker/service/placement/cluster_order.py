"""The order in which several clusters are tried for a request, before a host is chosen in one.

Clusters under the same version of the same policy are ranked together, as if they were one: by the
best total weight of their hosts, scored over the hosts of all. Totals of different policies are not
comparable. There each policy ranks its own clusters, and the policies are ordered by the share of
their hosts that passes all filters, the largest first, so that a request goes where its choice is
widest; equal shares are ordered by the policy's name.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_worker.model.policies import PolicyReference
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.service.placement.lease import ClusterView


def in_order(views: Sequence[ClusterView], spec: RequestSpec) -> list[int]:
    """The positions of the clusters that have a host for a request, the best first.

    The caller holds the replicas' locks.
    """
    by_policy: dict[PolicyReference, list[int]] = {}
    for at, view in enumerate(views):
        by_policy.setdefault(view.pipeline.policy, []).append(at)
    ranked = (_ranked(views, members, spec) for members in by_policy.values())
    groups = [group for group in ranked if group]
    if len(groups) > 1:
        groups.sort(key=lambda group: _group_key(views, group, spec))
    return [at for group in groups for at in group]


def _ranked(views: Sequence[ClusterView], members: Sequence[int], spec: RequestSpec) -> list[int]:
    """The clusters of one policy that have a host, by their best hosts."""
    tables = [views[at].table for at in members]
    totals = views[members[0]].pipeline.best_totals(tables, spec)
    fitting = [(-total, at) for at, total in zip(members, totals, strict=True) if total is not None]
    return [at for _, at in sorted(fitting)]


def _group_key(
    views: Sequence[ClusterView], group: Sequence[int], spec: RequestSpec
) -> tuple[float, str]:
    hosts = sum(len(views[at].table) for at in group)
    passing = sum(views[at].pipeline.passing(views[at].table, spec) for at in group)
    return -passing / hosts, views[group[0]].pipeline.policy.name
