"""Hosts for instances of one flavor each."""

from __future__ import annotations

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter


class TypeAffinityFilter(Filter):
    """Passes hosts whose instances are all of the requested flavor, and empty ones.

    An instance whose flavor the host has not reported yet counts as one of another flavor.

    Reads: the flavors of the host's instances; the flavor's id.
    Example: hosts that run one flavor only, whichever comes first.
    """

    looks_at_rows = True
    # It tells no reads: a promise changes what is said of all nodes of its host, and only the node
    # that it is on is looked at again.

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
