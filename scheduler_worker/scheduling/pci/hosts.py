"""The PCI devices of hosts."""

from __future__ import annotations

from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.topology import PCIPools


def pools(hosts: Hosts) -> Values:
    """The pools of each host, less reservations."""
    return hosts.pci_pools


def pools_of(host: HostState) -> PCIPools:
    """The pools of one host."""
    found: PCIPools = host.pci_pools
    return found


def free_devices(hosts: Hosts) -> Values:
    """How many devices of each host are free, of any kind."""
    return hosts.free_pci_devices
