"""The filter for hosts with instances of one flavor only."""

from __future__ import annotations

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter


class TypeAffinityFilter(Filter):
    """Passes hosts whose instances all have the requested flavor, and empty hosts.

    An instance whose flavor the host has not reported yet counts as one of another flavor.

    Reads: the flavors of the host's instances; the flavor's id.
    Example: hosts that run one flavor only, that of their first instance.
    """

    looks_at_rows = True
    # It does not declare what it reads: a reservation changes the answer for all nodes of its host
    # name, while the evaluation cache updates only the node that it is on.

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        answers = (self.host_passes(host, spec) for host in hosts.states())
        return np.fromiter(answers, bool, len(hosts))

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        wanted = spec_obj.flavor.id
        return all(
            wanted is not None and facts.get("instance_type_id") == wanted
            for facts in host_state.instances.values()
        )

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return "has instances of other flavors"
