"""Clusters, and the policies under which their next decisions are made."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from scheduler_worker.errors import ClusterPolicyError, Invalid, NotFound, RequestError
from scheduler_worker.model import policies
from scheduler_worker.model.host_records import HostState, state_of
from scheduler_worker.model.policy_references import PolicyReference
from scheduler_worker.operations.callers import Right
from scheduler_worker.operations.hosts import Amount, amounts_of
from scheduler_worker.operations.operation import Call, Page, PageQuery, operation, page_of

if TYPE_CHECKING:
    from scheduler_worker.model.policies import ClusterPolicy
    from scheduler_worker.service.state.replica import ClusterReplica


class ListedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster; `version` grows with each change of its hosts, reservations or policy."""

    name: str
    policy: PolicyReference
    hosts: int
    reservations: int
    version: int


class ClusterDetails(ListedCluster, frozen=True, kw_only=True):
    """A cluster with its hosts by state, what these have, and the document of its policy."""

    states: dict[HostState, int]
    vcpus: Amount
    memory_mb: Amount
    disk_mb: Amount
    balance: str | None
    balance_mode: str
    document: dict[str, Any]


class ClusterName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster."""

    name: Annotated[str, Meta(description="The name of a cluster.")]


class InCluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster."""

    cluster: Annotated[str, Meta(description="The name of a cluster.")]


class DocumentInForce(InCluster, frozen=True, forbid_unknown_fields=True):
    """The document of a policy, and the cluster that is to decide under it."""

    policy: Annotated[
        dict[str, Any], Meta(description="The document, with a version above the one in force.")
    ]


@operation(
    "GET",
    "/clusters",
    command="cluster list",
    columns={
        "Cluster": "name",
        "Hosts": "hosts",
        "Reservations": "reservations",
        "Version": "version",
    },
    long={"Policy": "policy.name", "Policy Version": "policy.version"},
)
def list_clusters(call: Call, query: PageQuery) -> Page[ListedCluster]:
    """List the clusters by name, with their hosts and live reservations."""
    names = ((cluster, cluster) for cluster in call.services.clusters())
    return page_of(names, query, lambda name: _cluster(call, name)[0])


@operation(
    "GET",
    "/clusters/{name}",
    command="cluster show",
    columns={
        "Cluster": "name",
        "Version": "version",
        "Hosts": "hosts",
        "Hosts Up": "states.up",
        "Hosts Down": "states.down",
        "Hosts Disabled": "states.disabled",
        "VCPUs": "vcpus.total",
        "VCPUs Used": "vcpus.used",
        "VCPUs Reserved": "vcpus.reserved",
        "Memory MB": "memory_mb.total",
        "Memory MB Used": "memory_mb.used",
        "Memory MB Reserved": "memory_mb.reserved",
        "Reservations": "reservations",
        "Policy": "policy.name",
        "Policy Version": "policy.version",
        "Filters": "document.filters.unit",
        "Weights": "document.weights.unit",
        "Balance": "balance",
        "Balance Mode": "balance_mode",
    },
)
def get_cluster(call: Call, target: ClusterName) -> ClusterDetails:
    """Show a cluster: its hosts by state, what they have, and its policy.

    Resources are sums over its hosts: the total, the reported use, and reservations beside that.
    """
    name, services = target.name, call.services
    if name not in services.clusters():
        raise NotFound("cluster", name)
    cluster, policy, replica = _cluster(call, name)
    with replica.lock:
        table = replica.table
        states = Counter(
            state_of(record, table.now_s, services.down_after_s) for record in table.records
        )
        reserved = table.reservations_of_host
        amounts = amounts_of((record, reserved(record.uuid)) for record in table.records)
        mode = services.balancing.mode_in(replica)
    return ClusterDetails(
        **msgspec.structs.asdict(cluster),
        vcpus=amounts["vcpus"],
        memory_mb=amounts["memory_mb"],
        disk_mb=amounts["disk_mb"],
        states=dict(states),
        balance=policy.balance.label if policy.balance else None,
        balance_mode=mode.mode,
        document=policies.to_plain(policy),
    )


def _cluster(call: Call, name: str) -> "tuple[ListedCluster, ClusterPolicy, ClusterReplica]":
    fleet = call.services.fleet
    replica = fleet.cluster(name)
    with replica.reading(fleet.store):
        policy = replica.policy or call.services.policies.nova
        cluster = ListedCluster(
            name=name,
            policy=policy.reference,
            hosts=len(replica.table),
            reservations=len(replica.reservations),
            version=replica.seen.version,
        )
    return cluster, policy, replica


# Policies in force


@operation("GET", None)
def get_cluster_policy(call: Call, target: InCluster) -> dict[str, Any]:
    """Show the document of the policy in force of a cluster."""
    return policies.to_plain(call.services.policies.in_force(target.cluster))


@operation("PUT", None, right=Right.ATTACH)
def attach_cluster_policy(call: Call, asked: DocumentInForce) -> None:
    """Store a policy and attach a cluster: each decision after this call is made under it.

    One of an id that is stored must have a later version, and changes all clusters that have it.
    """
    call.allow(asked.cluster)
    try:
        policy = policies.from_plain(asked.policy)
    except ClusterPolicyError as error:
        raise RequestError("policy", str(error)) from None
    call.services.fleet.known_cluster(asked.cluster)
    try:
        call.services.administration.attach_document(asked.cluster, policy, call.actor)
    except Invalid as error:
        raise RequestError(error.field, error.problem) from None


@operation("DELETE", None, right=Right.ATTACH, command="policy detach", done="{}: nova")
def detach_cluster_policy(call: Call, target: InCluster) -> None:
    """Return a cluster to the policy `nova`, which the workers' options describe."""
    call.allow(target.cluster)
    call.services.administration.attach(
        target.cluster, call.actor, policy=policies.NOVA, parameters={}
    )
