"""A filter that evaluates one host at a time, with Nova's signature.

Operators plan maintenance on a host aggregate::

    openstack aggregate set --property maintenance_window=2026-03-01T22:00/2026-03-02T02:00 rack-7

An instance placed there shortly before would have to be moved again at once, so the hosts
take no new ones from an hour before the window until its end.
"""

from __future__ import annotations

from scheduler_worker.model.host_records import seconds
from scheduler_worker.model.hosts import HostState
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter

WINDOW = "maintenance_window"
"""Metadata: ``start/end``, both ISO 8601, in UTC where they name no zone."""
LEAD = "maintenance_lead_s"
"""Metadata: for how many seconds before the start the host takes no new instances."""
DEFAULT_LEAD_S = 3600.0


class MaintenanceWindowFilter(Filter):
    """Passes hosts that are in no maintenance window and not shortly before one.

    An unreadable window closes its hosts: a typing error must not place instances on a host
    that is about to be switched off. The reason then says so.
    """

    run_filter_once_per_request = True  # the time is the same for all instances of a request

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return _problem(host_state) is None

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return _problem(host_state) or super().reason(host_state, spec)


def _problem(host_state: HostState) -> str | None:
    """Why a host takes no new instances now, in one clause; None when it does."""
    for aggregate in host_state.aggregates:
        window = aggregate.metadata.get(WINDOW)
        if window is None:
            continue
        try:
            start_s, end_s = map(seconds, window.split("/"))
            lead_s = float(aggregate.metadata.get(LEAD, DEFAULT_LEAD_S))
        except ValueError:
            return f"aggregate {aggregate.name}: {WINDOW} {window!r} is not start/end in ISO 8601"
        if start_s - lead_s <= host_state.now_s < end_s:
            return f"aggregate {aggregate.name} is under maintenance {window}"
    return None
