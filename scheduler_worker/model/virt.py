"""oVirt's view of VMs and hosts: what a VM asks for and takes, what a host reports of itself.

All of it is optional, beside Nova's flavor, image and figures. A request without its field ``vm``
is one to start a VM that has nothing but what the flavor, the image and the server group say. A
unit that needs a figure of a host says what it does where the figure is unknown.

Memory is in MiB, page sizes are in KiB, CPU use is in percent of one CPU (of the whole host in
:attr:`VirtHost.cpu_percent`). Every struct of a request is hashable, so that units can declare
parts of it as what they read.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeVar

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
    """Flags of its CPU model, or the flags that a passthrough VM was started with; empty: any CPU
    of the cluster will do."""
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


SPM_LOAD_PERCENT = 10.0
"""The load of the storage pool manager's role: one vCPU at :data:`VCPU_LOAD_PERCENT`."""
VCPU_LOAD_PERCENT = 10.0
"""The load that counts for a vCPU of a VM without statistics."""
HIGH_UTILIZATION = 75
"""From which load a host counts as over-committed where the cluster's policy does not say."""
LOW_UTILIZATION = 0
"""Up to which load a host counts as under-used where the cluster's policy does not say."""

Pages = tuple[tuple[Size, Size], ...]
"""Pairs of page size in KiB and number of pages."""


class RunningVm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A VM that runs on the host."""

    id: Name
    vcpus: Size = 1
    memory_mb: Size = 0
    cpu_percent: Percent | None = None
    """Mean use of its vCPUs; None: it has no statistics."""
    migratable: bool = True
    highly_available: bool = False
    hosted_engine: bool = False
    """Whether it is the management VM itself."""
    exclusive_cpus: tuple[CpuNumber, ...] = ()
    """Physical CPUs that it shares with no other VM."""
    is_changing: bool = False
    """Whether it is being migrated, saved or restored."""
    needs: VirtualMachine | None = None
    """What a request for it says in its field ``vm``: affinity, pinning, networks; None: unknown.
    """


class HostedEngineHost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The host's part in keeping the management VM available."""

    configured: bool = False
    active: bool = False
    score: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """How well it could run the management VM; 3400 is the best."""
    local_maintenance: bool = False


class HostNetwork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A network that is attached to the host."""

    name: Name
    has_address: bool = False
    """Whether it has an IPv4 or IPv6 boot protocol, so that displays can use it."""
    free_virtual_functions: Size = 0
    """SR-IOV functions that a passthrough NIC can take."""


class HostNumaNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A NUMA node of the host."""

    index: Index
    memory_mb: Size = 0
    free_mb: Size | None = None
    """Free memory; None: unknown, all of it counts as free."""
    cpus: tuple[CpuNumber, ...] = ()
    free_hugepages: Pages = ()


class VirtHost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The field ``virt`` of a host report; replaced as a whole."""

    sockets: Size | None = None
    cores: Size | None = None
    """Of all sockets."""
    threads: Size | None = None
    """Of all cores."""
    count_threads_as_cores: bool = False
    """Whether the cluster schedules on threads instead of cores."""
    cpu_percent: Percent | None = None
    """Use of the whole host, 0 to 100; None: it has no statistics."""
    cpu_usage: tuple[tuple[CpuNumber, Percent], ...] = ()
    """The online CPUs with their use; empty: unknown."""
    committed_mb: Size | None = None
    """What its running VMs may take at most, overhead included; None: what Nova counts as used."""
    free_mb: Size | None = None
    """Physically free memory; None: what Nova counts as free."""
    overcommit_percent: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    """Of its memory; None: ``ram_allocation_ratio``."""
    swap_total_mb: Size | None = None
    swap_free_mb: Size | None = None
    guest_overhead_mb: Size = 0
    spm: bool = False
    """Whether it has, or contends for, the role of storage pool manager."""
    hosted_engine: HostedEngineHost | None = None
    free_hugepages: Pages = ()
    numa_support: bool = False
    numa_nodes: tuple[HostNumaNode, ...] = ()
    emulated_machines: tuple[Name, ...] = ()
    os: str | None = None
    """Such as ``RHEL - 9.2 - 1.el9``: name, version, release."""
    tsc_frequency_hz: Size | None = None
    hooks: tuple[Name, ...] = ()
    networks: tuple[HostNetwork, ...] | None = None
    """The attached networks; None: unknown."""
    compatibility_versions: tuple[Name, ...] = ()
    cpu_flags: tuple[Name, ...] = ()
    storage_domains: tuple[Name, ...] = ()
    """Those whose leases it has acquired."""
    passthrough: bool = False
    """Whether it can give PCI devices to VMs."""
    free_devices: tuple[Name, ...] = ()
    free_mediated_devices: tuple[tuple[Name, Size], ...] = ()
    """Pairs of mediated device type and number of free instances."""
    vms: tuple[RunningVm, ...] = ()

    @property
    def effective_cores(self) -> int | None:
        """What counts as a core here: threads if the cluster says so and they are known."""
        if self.count_threads_as_cores and self.threads:
            return self.threads
        return self.cores

    @property
    def exclusive_cpus(self) -> frozenset[int]:
        """CPUs that a running VM shares with no other."""
        return frozenset(cpu for vm in self.vms for cpu in vm.exclusive_cpus)

    @property
    def shared_cpus(self) -> int:
        """How many CPUs all VMs share."""
        taken = self.exclusive_cpus
        if self.cpu_usage:
            return sum(1 for cpu, _ in self.cpu_usage if cpu not in taken)
        return max(0, (self.effective_cores or 0) - len(taken))

    @property
    def shared_load_percent(self) -> float | None:
        """The sum of the use of all shared CPUs, the manager's role included; None: unknown."""
        if self.cpu_usage:
            taken = self.exclusive_cpus
            used = sum(percent for cpu, percent in self.cpu_usage if cpu not in taken)
        elif self.cpu_percent is None:
            return None
        else:
            used = self.cpu_percent * (self.effective_cores or 0)
        return used + (SPM_LOAD_PERCENT if self.spm else 0.0)

    @property
    def load_percent(self) -> int | None:
        """Mean use of a shared CPU, rounded up; None: unknown."""
        used, cpus = self.shared_load_percent, self.shared_cpus
        return None if used is None or not cpus else math.ceil(used / cpus)


def bounds_of_load(parameters: Mapping[str, str]) -> dict[str, int]:
    """Between which loads a host is neither over- nor under-used, by its policy's parameters."""
    return {
        "high": _percent(parameters.get("HighUtilization"), HIGH_UTILIZATION),
        "low": _percent(parameters.get("LowUtilization"), LOW_UTILIZATION),
    }


def over_commit_since_s(
    load_percent: int | None, since_s: float | None, now_s: float, *, high: int, low: int
) -> float | None:
    """Since when the load has been out of its bounds, by the time of the report; None: it is not.

    One clock serves over- and under-load, as in oVirt.
    """
    if load_percent is None or low < load_percent < high:
        return None
    return now_s if since_s is None else since_s


def _percent(text: str | None, default: int) -> int:
    """A parameter; the default for a text that means something else to a unit of its own."""
    return int(text) if text is not None and text.isdecimal() else default


Counts = tuple[tuple[str, int], ...]
Count = TypeVar("Count", tuple[str, int], tuple[int, int])


class VirtUse(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What one VM takes, or all pending VMs of a host together."""

    hugepages: tuple[tuple[int, int], ...] = ()
    """Pairs of page size in KiB and number of pages."""
    exclusive_vcpus: int = 0
    """How many CPUs no other VM may share."""
    devices: Counts = ()
    """Host devices by name, each once."""
    mediated_devices: Counts = ()
    """Mediated devices by type."""
    virtual_functions: Counts = ()
    """SR-IOV functions by network."""

    def plus(self, use: "VirtUse", times: int) -> "VirtUse":
        """The sum; ``times`` is -1 to take the use away."""
        return VirtUse(
            hugepages=_sum(self.hugepages, use.hugepages, times),
            exclusive_vcpus=self.exclusive_vcpus + times * use.exclusive_vcpus,
            devices=_sum(self.devices, use.devices, times),
            mediated_devices=_sum(self.mediated_devices, use.mediated_devices, times),
            virtual_functions=_sum(self.virtual_functions, use.virtual_functions, times),
        )


def _sum(base: Iterable[Count], added: Iterable[Count], times: int) -> tuple[Count, ...]:
    counts = Counter(dict(base))
    for key, count in added:
        counts[key] += times * count
    return tuple(sorted((key, count) for key, count in counts.items() if count))


NO_USE = VirtUse()
