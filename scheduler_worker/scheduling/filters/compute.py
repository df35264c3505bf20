"""Whether the host's compute service takes instances at all."""

from __future__ import annotations

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter


class ComputeFilter(Filter):
    """Passes hosts whose service is enabled and was heard of within ``service_down_time``.

    Reads: the host's service and when it was heard of.
    Options: ``[DEFAULT] service_down_time``.
    Example: ``openstack compute service set --disable HOST nova-compute``
    """

    run_filter_once_per_request = True
    reads_request = False
    reads_use = False

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        silent_s = np.abs(hosts.now_s - hosts.heartbeat_s)
        alive: Mask = silent_s <= self.options.service_down_time_s
        return alive & ~hosts.service_forced_down & ~hosts.service_disabled

    def lasts_until_s(self, hosts: Hosts, spec: RequestSpec) -> float:
        """The next heart-beat to grow too old, or to be no longer too far ahead of the clock."""
        heard_s, allowed_s = hosts.heartbeat_s, self.options.service_down_time_s
        turns_s = np.concatenate((heard_s + allowed_s, heard_s - allowed_s))
        return float(turns_s.min(initial=np.inf, where=turns_s >= hosts.now_s))

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        if host_state.service_disabled:
            why = host_state.service.get("disabled_reason")
            return f"its service is disabled ({why})" if why else "its service is disabled"
        if host_state.service_forced_down:
            return "its service is down by order"
        silent_s = host_state.now_s - host_state.heartbeat_s
        allowed_s = self.options.service_down_time_s
        if silent_s < 0:
            return f"its heartbeat is {-silent_s:.0f} s ahead of the clock, {allowed_s:g} s may be"
        return f"has not reported for {silent_s:.0f} s, {allowed_s:g} s are allowed"
