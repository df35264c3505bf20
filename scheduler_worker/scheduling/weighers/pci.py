"""The weigher for hosts with few PCI devices, which keeps the others for requests with devices."""

from __future__ import annotations

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.pci.hosts import free_devices
from scheduler_worker.scheduling.plugin import Weigher

_MOST = 99
"""More free devices than this make no difference."""


class PCIWeigher(Weigher):
    """Prefers hosts with fewer free PCI devices, whatever is requested.

    A filter narrows requests for devices to hosts that have them; other requests should leave these
    hosts free.

    Reads: the host's PCI pools.
    Example: ``pci_weight_multiplier = 2.0``
    """

    reads_request = False
    option = "pci_weight_multiplier"

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        few: Values = 1.0 + _MOST - np.minimum(free_devices(hosts), _MOST)
        return few

    def weigh_host(self, host_state: HostState, weight_properties: RequestSpec) -> float:
        return float(1.0 + _MOST - min(host_state.free_pci_devices, _MOST))
