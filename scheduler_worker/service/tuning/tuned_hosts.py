"""What tuning has set on hosts and what runs there: from the shared state, in any process."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.service.inventory import listing
from scheduler_worker.service.inventory.listing import hosts_of, record_of
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.service.tuning.policies import TuningPolicies
from scheduler_worker.service.tuning.records import (
    StoredHostStates,
    TunedHostState,
    TuningLeadership,
)


class TunedHost(NamedTuple):
    """A host that was tuned, with its state."""

    record: HostRecord
    state: TunedHostState
    lead: TuningLeadership | None
    """The last cycle of its cluster; None: there was none within a day."""


class TunedHosts:
    """Lists the hosts that were tuned."""

    def __init__(self, fleet: Fleet, policies: TuningPolicies) -> None:
        self._fleet = fleet
        self._policies = policies
        self._states: dict[str, StoredHostStates] = {}

    def page(
        self,
        cluster: str | None,
        marker: str | None,
        limit: int,
        is_wanted: Callable[[HostRecord], bool],
    ) -> tuple[list[TunedHost], str | None]:
        """Return a page of hosts by uuid, and the marker of the next.

        Raises:
            RequestError: the cluster does not exist, or the limit is out of bounds.
            StateUnavailable: the store cannot be reached.
        """
        self._policies.refresh()
        known: dict[str, StoredHostStates] = {}
        for name in self._fleet.read_names():
            if cluster in {None, name}:
                known[name] = self._states.setdefault(name, StoredHostStates(name))
                known[name].refresh(self._fleet.store)

        def tuned(replica: ClusterReplica) -> Iterable[str]:
            states = known.get(replica.scope)
            return (uuid for uuid in hosts_of(replica) if states and uuid in states.stored)

        records, following = listing.page(
            self._fleet,
            tuned,
            record_of,
            limit=limit,
            cluster=cluster,
            marker=marker,
            where=lambda replica, uuid: is_wanted(record_of(replica, uuid)),
        )
        # Only here, where the locks of the clusters are no longer held.
        leaders = self._policies.records.leaders
        hosts = [
            TunedHost(record, state, leaders.get(record.cluster))
            for record in records
            if (state := known[record.cluster].get(record.uuid))
        ]
        return hosts, following

    def outputs_of_rules(self, cluster: str) -> dict[str, str]:
        """Return the output of each rule by its id, as this process has the policies."""
        program = self._policies.program(cluster)
        plans = program.plans.values() if program else ()
        outputs = [output for plan in plans for output in plan.outputs]
        return {rule.id: output.name for output in outputs for rule in output.rules}
