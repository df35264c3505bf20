"""RPC methods for cluster policies, in namespace ``scheduler_worker``; see ``docs/rpc.md``."""

from __future__ import annotations

from typing import Any

from scheduler_worker.errors import ClusterPolicyError, RequestError
from scheduler_worker.model import policies
from scheduler_worker.rpc import codec
from scheduler_worker.rpc.contract import Context, Endpoint
from scheduler_worker.rpc.worker import NAMESPACE, VERSION
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies


class PolicyEndpoint:
    """Attaches, reads and detaches cluster policies."""

    def __init__(self, cluster_policies: ClusterPolicies) -> None:
        self._policies = cluster_policies

    def endpoint(self) -> Endpoint:
        """The methods, in namespace ``scheduler_worker``."""
        return Endpoint(
            NAMESPACE,
            VERSION,
            {
                "attach_cluster_policy": self.attach_cluster_policy,
                "detach_cluster_policy": self.detach_cluster_policy,
                "get_cluster_policy": self.get_cluster_policy,
            },
        )

    def attach_cluster_policy(
        self, context: Context, cluster: Any = None, policy: Any = None
    ) -> bool:
        """Put a policy in force for a cluster."""
        try:
            decoded = policies.from_plain(codec.plain(policy, "policy"))
        except ClusterPolicyError as error:
            raise RequestError("policy", str(error)) from None
        self._policies.attach(codec.decode_name(cluster, "cluster"), decoded)
        return True

    def detach_cluster_policy(self, context: Context, cluster: Any = None) -> bool:
        """Return a cluster to the policy of the workers' options."""
        self._policies.detach(codec.decode_name(cluster, "cluster"))
        return True

    def get_cluster_policy(self, context: Context, cluster: Any = None) -> dict[str, Any]:
        """Return the policy in force."""
        return policies.to_plain(self._policies.in_force(codec.decode_name(cluster, "cluster")))
