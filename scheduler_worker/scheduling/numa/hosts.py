"""The NUMA topologies of hosts, and what an instance takes from one."""

from __future__ import annotations

import msgspec

from scheduler_worker.model.hosts import HostState
from scheduler_worker.model.requests import RequestSpec, SchedulerLimits
from scheduler_worker.scheduling.numa.cells import Ratios
from scheduler_worker.scheduling.numa.fit import Fitted, fit
from scheduler_worker.scheduling.numa.requests import wanted
from scheduler_worker.scheduling.pci.pools import devices_for
from scheduler_worker.scheduling.pci.requests import pci_requests


def ratios_of(host: HostState) -> Ratios:
    """The host's allocation ratios."""
    return Ratios(host.cpu_allocation_ratio, host.ram_allocation_ratio)


def taken_by(
    spec: RequestSpec, host: HostState, limits: SchedulerLimits, *, packs: bool = False
) -> Fitted:
    """What an instance takes from the cells and devices of the host that was chosen for it.

    ``limits`` are those of its selection. Without limits of NUMATopologyFilter, because it is not
    enabled or an administrator forced the host, cells may be overcommitted and networks be on other
    cells. If the topology does not even fit then, no cell is taken, and devices on any node are; if
    the host has too few for all requests, those of the first ones.
    """
    if not (spec.numa_topology or spec.pci_requests):
        return Fitted()
    asked, topology, pools = wanted(spec), host.numa_topology, host.pci_pools
    if asked is not None and topology is not None:
        ratios = _ratios_within(limits)
        if ratios is None:
            asked = msgspec.structs.replace(asked, network=None)
        fitted = fit(topology, pools, asked, ratios, packs=packs)
        if packs and isinstance(fitted, str):  # the filter does not pack, and may have found more
            fitted = fit(topology, pools, asked, ratios)
        if isinstance(fitted, Fitted):
            return fitted
    requests = pci_requests(spec)
    served = (devices_for(requests[:count], pools) for count in range(len(requests), 0, -1))
    return Fitted((), next(filter(None, served), ()))


def _ratios_within(limits: SchedulerLimits) -> Ratios | None:
    ratios = limits.numa_topology
    if ratios is None:
        return None
    return Ratios(ratios["cpu_allocation_ratio"], ratios["ram_allocation_ratio"])
