"""What a virtualisation host reports of itself beside Nova's figures, and of the VMs on it.

All of it is optional: Nova's compute services report none of it, and a unit that needs a figure
says what it does where the figure is unknown. Memory is in MiB, page sizes are in KiB, CPU use is
in percent of one CPU (of the whole host in :attr:`VirtHost.cpu_percent`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from scheduler_worker.model.sizes import CpuNumber, Name, Percent, Size
from scheduler_worker.model.virtual_machines import VirtualMachine

SPM_LOAD_PERCENT = 10.0
"""The load of the storage pool manager's role: one vCPU at :data:`VCPU_LOAD_PERCENT`."""
VCPU_LOAD_PERCENT = 10.0
"""The load that counts for a vCPU of a VM without statistics."""
HIGH_UTILIZATION = 75
"""From which load a host counts as over-committed where the cluster's policy does not say."""
LOW_UTILIZATION = 0
"""Up to which load a host counts as under-used where the cluster's policy does not say."""
_NO_CPUS: frozenset[int] = frozenset()

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

    index: Annotated[int, Meta(ge=0, le=1023)]
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
        if not self.vms:
            return _NO_CPUS
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
