"""The filter for PCI devices that are passed through to the instance."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.topology import PCIPools
from scheduler_worker.scheduling.pci.hosts import pools, pools_of
from scheduler_worker.scheduling.pci.pools import devices_for
from scheduler_worker.scheduling.pci.requests import pci_requests
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.wording import cut


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
        known: dict[PCIPools, bool] = {}
        passed = np.empty(len(hosts), bool)
        for row, devices in enumerate(pools(hosts).tolist()):
            if devices not in known:
                known[devices] = devices_for(requests, devices) is not None
            passed[row] = known[devices]
        return passed

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return devices_for(pci_requests(spec_obj), pools_of(host_state)) is not None

    def demand(self, spec: RequestSpec) -> str:
        return "have the PCI devices free"

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        requests, free = pci_requests(spec), pools_of(host_state)
        for served, wanted in enumerate(requests, 1):
            if devices_for(requests[:served], free) is None:
                kinds = (" ".join(f"{key}={value}" for key, value in some) for some in wanted.specs)
                return cut(f"has too few devices for {wanted.count} of {' or '.join(kinds)}", 200)
        return super().reason(host_state, spec)
