"""The filter that is asked first: requested destination, ignored and forced hosts."""

from collections.abc import Sequence

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Rows
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter

LABEL = "requested destination"
"""The filter's name in explanations."""


class RequestedDestination(Filter):
    """Passes the hosts that the request names, if it names any, less the hosts that it ignores, and
    less one that is about to be put into maintenance.

    Reads: names and cell of the host; destination, ignored, only and forced hosts of the request.
    """

    run_filter_once_per_request = True
    RUN_ON_REBUILD = True
    of_one_request = True
    runs_on_forced_hosts = True
    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        return bool(spec.closing_hosts) or names_destination(spec)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        mask = np.ones(len(hosts), bool)
        destination = spec.requested_destination
        if destination is not None:
            if destination.host is not None:
                mask &= hosts.rows_of([destination.host])
                if destination.node is not None:
                    mask &= _nodes(hosts, mask, [destination.node])
            if destination.cell_uuid and not destination.allow_cross_cell_move:
                mask &= hosts.derived(
                    ("cell", destination.cell_uuid),
                    lambda host: host.cell_uuid == destination.cell_uuid,
                    "?",
                )
        if spec.closing_hosts:
            mask &= ~hosts.rows_of(spec.closing_hosts)
        return mask & _named(hosts, spec)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        if host_state.host in spec.closing_hosts:
            return "is about to be put into maintenance or switched off by the policy's balance"
        return "is not where the request asks to be"


def may_use(destination: RequestedDestination, host: HostState, spec: RequestSpec) -> bool:
    """Whether the hosts that the request names or ignores allow this host."""
    return not destination.applies(spec) or destination.host_passes(host, spec)


def names_destination(spec: RequestSpec) -> bool:
    """Whether the request names or ignores hosts."""
    return bool(
        spec.requested_destination
        or spec.ignore_hosts
        or spec.only_hosts is not None
        or spec.force_hosts
        or spec.force_nodes
    )


def _nodes(hosts: Hosts, mask: Mask, nodenames: Sequence[str]) -> Mask:
    rows: Rows = np.flatnonzero(mask)
    nodes = np.zeros_like(mask)
    nodes[[row for row in rows.tolist() if hosts.state(row).nodename in nodenames]] = True
    return nodes


def _named(hosts: Hosts, spec: RequestSpec) -> Mask:
    """The hosts that lists of names leave."""
    mask = np.ones(len(hosts), bool)
    if spec.ignore_hosts:
        mask &= ~hosts.rows_of(spec.ignore_hosts, ignore_case=True)
    if spec.only_hosts is not None:
        mask &= hosts.rows_of(spec.only_hosts)
    if spec.force_hosts:
        mask &= hosts.rows_of(spec.force_hosts, ignore_case=True)
    if spec.force_nodes:
        mask &= _nodes(hosts, mask, spec.force_nodes)
    return mask
