"""The NUMA topologies of hosts, as judgement sees them, and what an instance takes from one."""

from __future__ import annotations

from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.topology import NUMATopology
from scheduler_worker.scheduling.numa.cells import Ratios
from scheduler_worker.scheduling.numa.fit import Fitted, fit
from scheduler_worker.scheduling.numa.requests import wanted
from scheduler_worker.scheduling.pci.hosts import pools_of
from scheduler_worker.scheduling.pci.pools import devices_for
from scheduler_worker.scheduling.pci.requests import pci_requests


def topologies(hosts: Hosts) -> Values:
    """The topology of each host, less what is promised; None where it reports none."""
    return hosts.numa_topology


def topology_of(host: HostState) -> NUMATopology | None:
    """The topology of one host."""
    found: NUMATopology | None = host.numa_topology
    return found


def ratios_of(host: HostState) -> Ratios:
    """The host's allocation ratios."""
    return Ratios(host.cpu_allocation_ratio, host.ram_allocation_ratio)


def taken_by(spec: RequestSpec, host: HostState, *, packs: bool = False) -> Fitted:
    """What an instance takes from the cells and devices of the host that was chosen for it.

    Of what does not fit, because an administrator forced the host, nothing is taken.
    """
    if not (spec.numa_topology or spec.pci_requests):
        return Fitted()
    asked, topology, pools = wanted(spec), topology_of(host), pools_of(host)
    if asked is None or topology is None:
        return Fitted((), devices_for(pci_requests(spec), pools) or ())
    fitted = fit(topology, pools, asked, ratios_of(host), packs=packs)
    return fitted if isinstance(fitted, Fitted) else Fitted()
