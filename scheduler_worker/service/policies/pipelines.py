"""The compiled policies of this process: one pipeline per policy document, and ``nova``."""

from collections.abc import Mapping
from typing import Any

from scheduler_worker.errors import ClusterPolicyError
from scheduler_worker.model.policies import ClusterPolicy, write_policy
from scheduler_worker.scheduling.catalogue import Catalogue
from scheduler_worker.scheduling.compiler import compile_policy
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.service.state.replica import ClusterReplica, Fleet

_MAX_CACHED = 256


class Pipelines:
    """Compiles policies on first use; clusters with equal policies share a pipeline."""

    def __init__(
        self,
        catalogue: Catalogue,
        nova: ClusterPolicy,
        options: Options,
        collaborators: Mapping[type, Any] | None = None,
    ) -> None:
        """Raises ClusterPolicyError when the policy ``nova`` cannot be compiled."""
        self.catalogue = catalogue
        self._options = options
        self._collaborators = collaborators or {}
        self._compiled: dict[bytes, Pipeline | ClusterPolicyError] = {}
        """Encoded policy -> pipeline, or the error, so that it is not compiled for each request."""
        self.nova_policy = nova
        self.nova = self.compile(nova)
        """The pipeline of clusters that have no policy of their own."""

    def of(self, replica: ClusterReplica) -> Pipeline:
        """The pipeline of a cluster, whose lock the caller holds. Raises ClusterPolicyError."""
        if replica.policy is None:
            return self.nova
        if replica.compiled is None or replica.compiled[0] is not self:
            replica.compiled = self, self.compile(replica.policy)
        pipeline: Pipeline = replica.compiled[1]
        return pipeline

    def of_cluster(self, fleet: Fleet, name: str | None) -> Pipeline:
        """That of the cluster of this name; ``nova`` for none, and where it cannot be compiled."""
        if name is None or name not in fleet.globals.names:
            return self.nova
        replica = fleet.cluster(name)
        with replica.lock:
            try:
                return self.of(replica)
            except ClusterPolicyError:
                return self.nova

    def can_decide(self, replica: ClusterReplica) -> bool:
        """Whether the cluster's policy can be compiled here.

        Takes no lock: a request asks before it queues, and a decision holds the lock for seconds.
        """
        policy, compiled = replica.policy, replica.compiled
        if policy is None or (compiled is not None and compiled[0] is self):
            return True
        try:
            self.compile(policy)
        except ClusterPolicyError:
            return False
        return True

    def compile(self, policy: ClusterPolicy) -> Pipeline:
        """The pipeline of a policy. Raises ClusterPolicyError."""
        key = write_policy(policy)
        compiled = self._compiled.get(key)
        if compiled is None:
            try:
                compiled = compile_policy(
                    policy, self.catalogue, self._options, self._collaborators
                )
            except ClusterPolicyError as error:
                compiled = error
            if len(self._compiled) >= _MAX_CACHED:
                self._compiled.clear()
            self._compiled[key] = compiled
        if isinstance(compiled, ClusterPolicyError):
            raise compiled
        return compiled
