"""The filter for hosts on which the request failed before."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter


class RetryFilter(Filter):
    """Passes hosts on which the same request has not failed before.

    Reads: the host's names; the hosts that the request lists as tried.
    Example: a caller that retries on another host after a failure sends ``retry``.
    """

    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        return bool(_tried(spec))

    def reads(self, spec: RequestSpec) -> Hashable:
        return _tried(spec)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        tried = _tried(spec)
        untried = ~hosts.rows_of(name for name, _ in tried if name is not None)
        rows = np.flatnonzero(~untried).tolist()
        for row, host in zip(rows, hosts.states(rows), strict=True):
            untried[row] = (host.host, host.nodename) not in tried
        return untried

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return (host_state.host, host_state.nodename) not in _tried(spec_obj)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return f"was tried before, as one of {len(_tried(spec))}"


def _tried(spec: RequestSpec) -> frozenset[tuple[str | None, str | None]]:
    hosts = spec.retry.hosts if spec.retry else ()
    return frozenset((each.host, each.hypervisor_hostname) for each in hosts)
