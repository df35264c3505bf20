"""What a request says of its VM beside Nova's flavor and image: the field ``vm``.

All of it is optional. A request without it is one to start a VM that has nothing but what the
flavor, the image and the server group say. Memory is in MiB, page sizes are in KiB. Every struct
is hashable, so that units can declare parts of them as what they read.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from scheduler_worker.model.sizes import CpuNumber, Name, Percent, Size

Rule = Literal["positive", "negative", "disabled"]
"""Together, apart, or neither."""
Pinning = Literal["none", "manual", "resize_and_pin", "dedicated", "isolate_threads"]
"""How its vCPUs are bound to physical CPUs; ``none`` and ``manual`` share them with other VMs."""
NumaMode = Literal["strict", "interleave", "preferred"]
Index = Annotated[int, Meta(ge=0, le=1023)]


class AffinityGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """VMs that shall run together or apart, and hosts on which they shall run or not."""

    name: str = ""
    priority: float = 1.0
    """Of two groups that cannot both be kept, the one with the smaller priority is broken."""
    vms_rule: Rule = "disabled"
    vms_enforcing: bool = False
    vms: tuple[Name, ...] = ()
    """Ids of the members; the requested VM itself does not count."""
    non_migratable_vms: tuple[Name, ...] = ()
    hosts_rule: Rule = "disabled"
    hosts_enforcing: bool = False
    hosts: tuple[Name, ...] = ()


class Nic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A network interface of the VM."""

    network: Name | None = None
    plugged: bool = True
    required: bool = True
    """Whether the cluster requires the network of its hosts."""
    external: bool = False
    """Whether another service provides the network."""
    physical_network: Name | None = None
    """The network of hosts that an external one runs on."""
    passthrough: bool = False
    failover: Name | None = None
    """The network that takes over from a passthrough interface."""


class VirtualNumaNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A virtual NUMA node and the host nodes that it is pinned to."""

    memory_mb: Size = 0
    cpus: tuple[CpuNumber, ...] = ()
    """vCPUs."""
    host_nodes: tuple[Index, ...] = ()
    """The host nodes that may carry it; empty: it is not pinned."""
    mode: NumaMode = "strict"


class VirtualMachine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The requested VM, and what its cluster demands for it."""

    run_on: Name | None = None
    """The host on which it runs and from which it migrates; None: it is to be started."""
    paused: bool = False
    cpu_percent: Percent | None = None
    """Mean use of its vCPUs while it runs; None: unknown."""
    highly_available: bool = False
    ha_reservation: bool = False
    """Whether its cluster keeps room for highly available VMs."""
    hosted_engine: bool = False
    """Whether it is the management VM itself."""
    global_maintenance: bool = False
    """Whether nobody watches over the management VM at present."""
    static_overhead_mb: Size | None = None
    """What it takes beside its memory in any case; None: memory / 512 + 64."""
    possible_overhead_mb: Size | None = None
    """What it may take further; None: 8 for each vCPU and I/O thread, and the video memory."""
    video_ram_mb: Size = 0
    io_threads: Size = 0
    hugepage_kb: Size | None = None
    """The size of the pages that back all of its memory; None: the flavor's, else normal ones."""
    sockets: Size | None = None
    cores_per_socket: Size | None = None
    threads_per_core: Size | None = None
    pinning: Pinning = "none"
    pinned_cpus: tuple[CpuNumber, ...] = ()
    """Physical CPUs that its vCPUs are pinned to, where :attr:`pinning` is ``manual``."""
    numa_nodes: tuple[VirtualNumaNode, ...] = ()
    high_performance: bool = False
    cpu_passthrough: bool = False
    """Whether it sees the host's own CPU."""
    cpu_flags: tuple[Name, ...] = ()
    """Flags of its CPU model, or those that a passthrough VM was started with; empty: any CPU of
    the cluster will do."""
    machine_type: Name | None = None
    compatibility_version: Name | None = None
    """A version of its own; None: the cluster's."""
    use_tsc: bool = False
    sap_agent: bool = False
    nics: tuple[Nic, ...] = ()
    display_network: Name | None = None
    only_required_networks: bool = False
    pinned_to_host: bool = False
    dedicated_hosts: tuple[Name, ...] = ()
    """The hosts that it is pinned to or prefers."""
    host_devices: tuple[Name, ...] = ()
    pci_devices: bool = True
    """Whether a host device is a PCI device."""
    lease_domains: tuple[Name, ...] = ()
    """Storage domains that hold its leases."""
    mediated_devices: tuple[Name, ...] = ()
    """Types of mediated devices, one for each that it needs."""
    affinity_groups: tuple[AffinityGroup, ...] = ()


NO_MACHINE = VirtualMachine()
"""The VM of a request that says nothing of it."""
