"""Filters for NUMA cells and PCI devices, down to CPUs and pages."""

from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any

import msgspec
import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.topology import NUMATopology, PCIPools
from scheduler_worker.scheduling.numa.cells import HostCells, Ratios
from scheduler_worker.scheduling.numa.constraints import ratios_of, wanted, wants_threads
from scheduler_worker.scheduling.numa.fit import NumaAssignment, NumaRequest, fit
from scheduler_worker.scheduling.pci.pools import devices_for, pci_requests
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.wording import cut


class NUMATopologyFilter(Filter):
    """Passes hosts with a NUMA cell of its own, with enough CPUs, memory and pages, for each cell
    of the instance.

    If the flavor or image requires pinned threads of one core, a host whose cores have one thread
    does not pass, even without a requested topology.

    Reads: ``numa_topology``, PCI pools, allocation ratios; the requested NUMA topology, CPU and
    thread policies, pages and PCI devices.
    Options: ``[compute] packing_host_numa_cells_allocation_strategy``.
    Example: extra specs ``hw:numa_nodes = 2`` and ``hw:cpu_policy = dedicated``.
    """

    momentary = True
    looks_at_rows = True
    limits_of_facts = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(spec.numa_topology) or wants_threads(spec)

    def reads(self, spec: RequestSpec) -> Hashable:
        return wanted(spec), wants_threads(spec)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        asked, topologies = wanted(spec), hosts.numa_topology
        passed: Mask = topologies != None  # noqa: E711 - of each element
        if wants_threads(spec):
            passed[passed] = list(map(_has_threads, topologies[passed].tolist()))
        if asked is None:
            passed |= topologies == None  # noqa: E711
            return passed
        passed[passed] = _fitting(hosts.take(np.flatnonzero(passed)), asked)
        return passed

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return self._rejection_of(host_state, spec_obj) is None

    def demand(self, spec: RequestSpec) -> str:
        return "have NUMA cells with room for it"

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return self._rejection_of(host_state, spec) or super().reason(host_state, spec)

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        if not spec.numa_topology:
            return {}
        limits = {
            "cpu_allocation_ratio": host_state.cpu_allocation_ratio,
            "ram_allocation_ratio": host_state.ram_allocation_ratio,
        }
        if spec.network_metadata is not None:
            limits["network_metadata"] = msgspec.to_builtins(spec.network_metadata)
        return {"numa_topology": limits}

    def _rejection_of(self, host: HostState, spec: RequestSpec) -> str | None:
        asked, topology = wanted(spec), host.numa_topology
        if topology is None:
            return "reports no NUMA topology" if asked else None
        if wants_threads(spec) and not _has_threads(topology):
            return "has one thread for each core"
        fitted = fit(topology, host.pci_pools, asked, ratios_of(host)) if asked else None
        return fitted if isinstance(fitted, str) else None


_FEW = 8
"""Hosts, each of which is sooner searched than arrays are made."""


def _has_threads(topology: NUMATopology) -> bool:
    return any(cell.threads_per_core > 1 for cell in topology.cells)


def _fitting(hosts: Hosts, asked: NumaRequest) -> Mask:
    """The hosts to which the instance fits; equal hosts are searched once."""
    topologies, pools = hosts.numa_topology.tolist(), hosts.pci_pools.tolist()
    ratios = hosts.cpu_allocation_ratio, hosts.ram_allocation_ratio
    if asked.alike is not None and len(hosts) > _FEW:
        count, cell, reserved = asked.alike
        enough: Mask = HostCells(topologies).with_room(cell, reserved, *ratios) >= count
        return enough

    @cache
    def fits(topology: NUMATopology, here: PCIPools, *ratio: float) -> bool:
        return isinstance(fit(topology, here, asked, Ratios(*ratio)), NumaAssignment)

    # Devices make hosts differ only if some are asked for.
    here = pools if asked.devices else [()] * len(hosts)
    answers = map(fits, topologies, here, *(ratio.tolist() for ratio in ratios))
    return np.fromiter(answers, bool, len(hosts))


class PciPassthroughFilter(Filter):
    """Passes hosts with a free device for every requested one, on any NUMA node.

    Reads: the host's PCI pools; the requested PCI devices.
    Example: extra spec ``pci_passthrough:alias = gpu:1``.
    """

    momentary = True
    looks_at_rows = True
    limits_of_facts = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(pci_requests(spec))

    def reads(self, spec: RequestSpec) -> Hashable:
        return pci_requests(spec)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        requests = pci_requests(spec)
        serves = cache(lambda pools: devices_for(requests, pools) is not None)
        return np.fromiter(map(serves, hosts.pci_pools.tolist()), bool, len(hosts))

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return devices_for(pci_requests(spec_obj), host_state.pci_pools) is not None

    def demand(self, spec: RequestSpec) -> str:
        return "have the PCI devices free"

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        requests, free = pci_requests(spec), host_state.pci_pools
        for served, request in enumerate(requests, 1):
            if devices_for(requests[:served], free) is None:
                kinds = (
                    " ".join(f"{key}={value}" for key, value in pairs) for pairs in request.specs
                )
                return cut(f"has too few devices for {request.count} of {' or '.join(kinds)}", 200)
        return super().reason(host_state, spec)
