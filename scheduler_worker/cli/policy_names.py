"""What POLICY means in a command: a policy, a version of one, or what a cluster decides under."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from scheduler_worker.errors import NotFound, RequestError
from scheduler_worker.model.policies import ClusterPolicy, from_plain
from scheduler_worker.operations.clusters import InCluster, get_cluster_policy
from scheduler_worker.operations.operation import PageQuery
from scheduler_worker.operations.policies import (
    HistoryQuery,
    PolicyView,
    list_policies,
    list_policy_history,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler_worker.client import OperationsClient

HELP = "id or name of a policy, NAME@VERSION of its history, or a cluster: what is in force there"
PAGE = 1000
"""Policies or versions that are asked for at a time."""


class NamedPolicy(NamedTuple):
    """What a POLICY means."""

    document: ClusterPolicy
    view: PolicyView | None = None
    """The policy as it is now; None: the document is of its history, or of a cluster."""
    cluster: str | None = None
    """The cluster that was named, in which the document is in force."""


def resolved(client: OperationsClient, name: str) -> NamedPolicy:
    """What a POLICY means: a policy, else a version of one, else a cluster.

    Raises NotFound, and RequestError for a version that the history does not have.
    """
    if (view := found(every_policy(client), name)) is not None:
        return NamedPolicy(document_of(view), view)
    policy, _, version = name.rpartition("@")
    if policy and version.isdecimal():
        return NamedPolicy(_past(client, policy, int(version)))
    try:
        return NamedPolicy(in_force(client, name), cluster=name)
    except RequestError:
        raise NotFound("policy or cluster", name) from None


def policy_called(client: OperationsClient, name: str) -> PolicyView:
    """The policy of this id or name. Raises NotFound; a cluster or a version is none."""
    view = found(every_policy(client), name)
    if view is None:
        raise NotFound("policy", name)
    return view


def every_policy(client: OperationsClient) -> list[PolicyView]:
    """All policies, the built-in ones too."""
    return list(client.every(list_policies, PageQuery(limit=PAGE)))


def found(views: Sequence[PolicyView], name: str) -> PolicyView | None:
    """The policy with this id, else with this name in any letter case."""
    of_id = (view for view in views if view.id == name)
    of_name = (view for view in views if view.name.casefold() == name.casefold())
    return next(of_id, None) or next(of_name, None)


def in_force(client: OperationsClient, cluster: str) -> ClusterPolicy:
    """What a cluster decides under. Raises RequestError: there is no such cluster."""
    return from_plain(client.call(get_cluster_policy, InCluster(cluster)))


def document_of(view: PolicyView) -> ClusterPolicy:
    """The policy alone."""
    return ClusterPolicy(**{name: getattr(view, name) for name in ClusterPolicy.__struct_fields__})


def _past(client: OperationsClient, name: str, version: int) -> ClusterPolicy:
    versions = {
        edit.version: ClusterPolicy(id=edit.id, version=edit.version, **structs.asdict(edit.policy))
        for edit in client.every(list_policy_history, HistoryQuery(id=name, limit=PAGE))
        if edit.policy is not None and edit.version is not None
    }
    if version not in versions:
        known = ", ".join(map(str, sorted(versions))) or "none"
        raise RequestError(
            "policy", f"the history of {name!r} has no version {version}; it has: {known}"
        )
    return versions[version]
