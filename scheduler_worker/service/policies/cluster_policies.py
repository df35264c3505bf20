"""The policies in force of clusters."""

from collections.abc import Callable, Collection
from typing import TypeVar

from tenacity import (
    RetryError,
    Retrying,
    retry_if_result,
    stop_after_attempt,
    wait_random_exponential,
)

from scheduler_worker.errors import ClusterPolicyError, Conflict, RequestError
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.ports import ABSENT, Guard, Put, Transaction
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import Fleet, Replica

T = TypeVar("T")
_MAX_ATTEMPTS = 8
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.2
"""Of random pauses between attempts. Without them, of two processes that edit at the same pace the
second one would come second in every attempt."""


class ClusterPolicies:
    """Reads policies, and puts them in force.

    The policy is a record of the cluster's own scope: every worker receives it with the next grant
    of the cluster's lock, and each commit is guarded by its version. So every decision that is
    stored after a change was made under the new policy.
    """

    def __init__(self, fleet: Fleet, pipelines: Callable[[], Pipelines]) -> None:
        self._fleet = fleet
        self.clusters = fleet.read_names
        """The names of the clusters that have hosts, or had some. Raises StateUnavailable."""
        self._pipelines = pipelines

    @property
    def nova(self) -> ClusterPolicy:
        """The policy of clusters without one of their own."""
        return self._pipelines().nova_policy

    def settle(
        self, cluster: str, stored: Callable[[ClusterPolicy | None], ClusterPolicy | None]
    ) -> bool:
        """Put the document of the book in force; whether it was not already.

        ``stored`` gets what is in force and reads that record (None: the policy ``nova``) each time
        *after* the version of what is in force was read, which the write then guards. So of two
        callers, the one whose document is outdated is refused and reads again: the last one in
        force is the last one recorded. The cluster need not be a known one, so that an empty state
        gets its policies back before its hosts.

        Raises:
            RequestError: the policy cannot be compiled; the old one stays in force.
            Conflict: other documents were put in force during each of several attempts.
            StateUnavailable: the store cannot be reached.
        """
        replica = self._fleet.cluster(cluster)

        def puts(now: ClusterPolicy | None) -> list[Put]:
            policy = stored(now)
            if policy == now:
                return []
            self._compile(policy)
            return [records.put_policy(policy) if policy else records.gone(records.POLICY_IN_FORCE)]

        return self._settled(replica, lambda: replica.policy, puts, f"The policy of {cluster}")

    def settle_units(self, stored: Callable[[], Collection[str]]) -> bool:
        """Put in force which units are enabled; whether that was not so already.

        ``stored`` reads their ids from the book, when and why as in :meth:`settle`.

        Raises:
            Conflict: others switched the same units during each of several attempts.
            StateUnavailable: the store cannot be reached.
        """
        known = self._fleet.globals

        def puts(now: frozenset[str]) -> list[Put]:
            enabled = frozenset(stored())
            return [
                *(records.put_key(records.UNIT + unit_id) for unit_id in sorted(enabled - now)),
                *(records.gone(records.UNIT + unit_id) for unit_id in sorted(now - enabled)),
            ]

        return self._settled(known, lambda: known.units, puts, "The list of enabled units")

    def in_force(self, cluster: str) -> ClusterPolicy:
        """The policy in force for a cluster.

        Raises RequestError where there is no such cluster, StateUnavailable.
        """
        replica = self._fleet.known_cluster(cluster)
        with replica.reading(self._fleet.store):
            return replica.policy or self.nova

    def _compile(self, policy: ClusterPolicy | None) -> None:
        try:
            if policy is not None:
                self._pipelines().compile(policy)
        except ClusterPolicyError as error:
            raise RequestError("policy", str(error)) from None

    def _settled(
        self, replica: Replica, now: Callable[[], T], puts: Callable[[T], list[Put]], what: str
    ) -> bool:
        """Write what ``puts`` makes of ``now``, guarded by its versions; whether there was any.

        Raises Conflict where others wrote the same in between each time.
        """

        def attempt() -> bool | None:
            with replica.reading(self._fleet.store):
                seen, versions = now(), dict(replica.versions)
            if not (writing := puts(seen)):
                return False
            guards = [Guard(put.key, versions.get(put.key, ABSENT)) for put in writing]
            write = [Transaction(writing, guards)]
            written = self._fleet.store.write(replica.scope, write)
            return written.applied[0] or None

        retrying: Retrying = Retrying(
            stop=stop_after_attempt(_MAX_ATTEMPTS),
            wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
            retry=retry_if_result(lambda written: written is None),
        )
        try:
            return bool(retrying(attempt))
        except RetryError:
            raise Conflict(
                f"{what} changed during each of {_MAX_ATTEMPTS} attempts; try again."
            ) from None
