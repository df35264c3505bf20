"""The PCI devices of hosts, as judgement sees them."""

from __future__ import annotations

from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.topology import PCIPools, count_devices, read_pci_pools


def pools(hosts: Hosts) -> Values:
    """The pools of each host."""
    return hosts.derived("PCI pools", lambda host: read_pci_pools(host.pci_device_pools), "O")


def pools_of(host: HostState) -> PCIPools:
    """The pools of one host."""
    found: PCIPools = pools(host.table)[host.row]
    return found


def free_devices(hosts: Hosts) -> Values:
    """How many devices of each host are free, whatever they are."""
    return hosts.derived("free PCI devices", lambda host: count_devices(pools_of(host)), "i8")
