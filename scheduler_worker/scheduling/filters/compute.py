"""The filter for hosts whose compute service is up and enabled."""

from __future__ import annotations

import msgspec
import numpy as np

from scheduler_worker.model.host_records import COMPUTE, out_of_service
from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter


class ComputeParameters(msgspec.Struct, frozen=True):
    """How old a heartbeat may be, in seconds."""

    service_down_time_s: float = 60.0


class ComputeFilter(Filter):
    """Passes hosts whose service is enabled and whose last heartbeat is within
    ``service_down_time``.

    Reads: the host's service and its last heartbeat.
    Options: ``[DEFAULT] service_down_time``.
    Example: ``openstack compute service set --disable HOST nova-compute``
    """

    momentary = True
    run_filter_once_per_request = True
    reads_request = False
    reads_use = False
    parameters_type = ComputeParameters

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        return hosts.taking_vms(self.parameters.service_down_time_s)

    def demand(self, spec: RequestSpec) -> str:
        return "are up and enabled"

    def lasts_until_s(self, hosts: Hosts, spec: RequestSpec) -> float:
        """When the next heartbeat expires, or is no longer too far ahead of the clock."""
        heartbeat_s, allowed_s = hosts.heartbeat_s, self.parameters.service_down_time_s
        changes_s = np.concatenate((heartbeat_s + allowed_s, heartbeat_s - allowed_s))
        return float(changes_s.min(initial=np.inf, where=changes_s >= hosts.now_s))

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        if why := out_of_service(host_state.record):
            return why
        age_s = host_state.now_s - host_state.heartbeat_s
        allowed_s = self.parameters.service_down_time_s
        if age_s < 0:
            return (
                f"its heartbeat is {-age_s:.0f} s ahead of the clock, {allowed_s:g} s are allowed"
            )
        silence = f"has not reported for {age_s:.0f} s, {allowed_s:g} s are allowed"
        if not host_state.heartbeat_s:
            silence = "its compute service has never reported"
        return silence + _other_source(host_state)


def _other_source(host_state: HostState) -> str:
    """The source that reported last: an operator sees reports come, and the host is down."""
    others = {
        source.reported_at_s: name
        for name, source in host_state.record.sources.items()
        if name != COMPUTE
    }
    if not others:
        return ""
    latest_s = max(others)
    ago_s = host_state.now_s - latest_s
    return f"; source {others[latest_s]} reported {ago_s:.0f} s ago, which is no heartbeat"
