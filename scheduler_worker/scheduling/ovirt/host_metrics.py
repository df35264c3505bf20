"""Figures of hosts for oVirt's units: what hosts report, less what is reserved.

Of hosts a figure is a column, of one host a number.

A host that reports no ``virt`` has Nova's figures that mean the same. NaN is an unknown
figure. Pending VMs are our reservations: what they take is the difference between what a host
reports and its column less all reservations, and their overhead follows from the sums.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from scheduler_worker.model import host_records
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.virt import VCPU_LOAD_PERCENT, VirtHost
from scheduler_worker.scheduling.ovirt import formulas

_TABLES = 1.0 + 1.0 / formulas.PAGE_TABLES_SHARE
"""By what the memory of VMs grows with page tables. Of a sum no parts of a MiB are dropped."""


def virt_of(record: HostRecord) -> VirtHost:
    """What the host reports of itself, or what Nova's figures say of it."""
    if record.virt is not None:
        return record.virt
    cpus, percent = record.vcpus, _nova_cpu_percent(record)
    return VirtHost(sockets=1, cores=cpus, threads=cpus, cpu_percent=percent)


def _nova_cpu_percent(record: HostRecord) -> float | None:
    """Nova's metric: a share between 0 and 1."""
    for metric in record.metrics:
        value = metric.get("value")
        if metric.get("name") == "cpu.percent" and isinstance(value, (int, float)):
            return max(0.0, 100.0 * value)
    return None


def _reported(name: str, of: Callable[[HostRecord], Any]) -> Callable[[Hosts | HostState], Any]:
    """A figure that follows from a host's record; an unknown one is None, which becomes NaN."""

    def figure(hosts: Hosts | HostState) -> Any:
        return hosts.derived(("virt", name), lambda host: of(host.record), "f8")

    return figure


def cores_of(record: HostRecord) -> int | None:
    """What counts as cores of one host."""
    virt = virt_of(record)
    return virt.effective_cores if virt.sockets and virt.cores and virt.threads else None


def free_mb_of(record: HostRecord) -> int | None:
    """Physically free memory of one host; None: unknown."""
    return host_records.free_ram_mb(record) if record.virt is None else record.virt.free_mb


def reported_schedulable_mb(record: HostRecord) -> float:
    """The memory that may still be given to VMs, of one host, before pending ones."""
    virt = virt_of(record)
    committed = virt.committed_mb
    if committed is None:
        committed = record.memory_mb - host_records.free_ram_mb(record)
    percent = virt.overcommit_percent or 100.0 * record.ram_allocation_ratio
    own = record.reserved_host_memory_mb
    return formulas.schedulable_mb(record.memory_mb, percent, committed, own)


def _largest(record: HostRecord) -> int:
    return max((vm.vcpus for vm in virt_of(record).vms if not vm.exclusive_cpus), default=0)


def _running_vcpus(record: HostRecord) -> int:
    running = virt_of(record).vms
    if not running:
        return record.vcpus_used
    return sum(vm.vcpus for vm in running if not vm.exclusive_cpus)


def _reported_mb(record: HostRecord) -> float:
    """What :func:`_left_mb` is of what a host reports."""
    return host_records.free_ram_mb(record) * _TABLES - formulas.VCPU_MB * record.vcpus_used


def _load_less_vms(record: HostRecord) -> float | None:
    load = virt_of(record).shared_load_percent
    return None if load is None else load - VCPU_LOAD_PERCENT * record.vcpus_used


cores = _reported("cores", cores_of)
"""What counts as cores; NaN where sockets, cores or threads are unknown."""
exclusive_cpus = _reported("exclusive", lambda record: len(virt_of(record).exclusive_cpus))
"""CPUs that a running VM shares with no other."""
largest_shared = _reported("largest", _largest)
"""The vCPUs of the largest running VM that shares its CPUs."""
shared_cpus = _reported("shared", lambda record: virt_of(record).shared_cpus)
"""CPUs that all VMs share."""
shared_load = _reported("load", lambda record: virt_of(record).shared_load_percent)
"""The use of all shared CPUs together; NaN: unknown."""
load_percent = _reported("load percent", lambda record: virt_of(record).load_percent)
"""The mean use of a shared CPU, rounded up; NaN: unknown."""
cpu_percent = _reported("cpu", lambda record: virt_of(record).cpu_percent)
"""The use of the whole host; NaN: unknown."""
running_shared_vcpus = _reported("vcpus", _running_vcpus)
"""The vCPUs of all running VMs that share their CPUs."""
is_manager = _reported("spm", lambda record: virt_of(record).spm)
"""1 for hosts with the role of storage pool manager."""
free_mb = _reported("free", free_mb_of)
"""Physically free memory, pending VMs still in it; NaN: unknown."""
swap_total_mb = _reported("swap", lambda record: virt_of(record).swap_total_mb)
"""Swap; NaN: unknown."""
swap_free_mb = _reported("free swap", lambda record: virt_of(record).swap_free_mb)
"""Free swap; NaN: unknown."""
_running_vms = _reported("active", lambda record: len(virt_of(record).vms))
_idle_mb = _reported(
    "schedulable", lambda record: reported_schedulable_mb(record) - _reported_mb(record)
)
_nova_free_mb = _reported("nova free", host_records.free_ram_mb)
_nova_vcpus = _reported("nova vcpus", lambda record: record.vcpus_used)
_nova_load = _reported("load less VMs", _load_less_vms)


def schedulable_mb(hosts: Hosts) -> Values:
    """The memory that may still be given to VMs, less that of pending ones."""
    # One derived column for all that is reported: the less columns, the quicker the decision.
    room: Values = np.maximum(0.0, _idle_mb(hosts) + _left_mb(hosts))
    return room


def schedulable_mb_of(host: HostState) -> float:
    """:func:`schedulable_mb` of one host."""
    return max(0.0, float(_idle_mb(host) + _left_mb(host)))


def reported_vms(of: Hosts | HostState) -> Any:
    """How many VMs run on each host; where it does not list those, its instances not reserved."""
    running = _running_vms(of)
    return running + (running == 0) * (of.num_instances - of.reserved_instances)


# Pending VMs


def pending_mb(of: Hosts | HostState) -> Any:
    """The memory of pending VMs, without overhead."""
    return _nova_free_mb(of) - of.free_ram_mb


def pending_vcpus(of: Hosts | HostState) -> Any:
    """The vCPUs of pending VMs."""
    return of.vcpus_used - _nova_vcpus(of)


def pending_real_mb(of: Hosts | HostState) -> Any:
    """What pending VMs take in any case."""
    return pending_mb(of) * _TABLES + formulas.EMULATOR_MB * of.reserved_instances


def _left_mb(of: Hosts | HostState) -> Any:
    """Free memory with its page tables, less the overhead of all vCPUs and of pending VMs.

    The same of what a host reports (:func:`_reported_mb`), less this, is what pending VMs may take.
    """
    overhead = of.reserved_instances * formulas.EMULATOR_MB + of.vcpus_used * formulas.VCPU_MB
    return of.free_ram_mb * _TABLES - overhead


def load_with_pending(of: Hosts | HostState) -> Any:
    """The use of all shared CPUs together, and the load that pending VMs will bring."""
    return _nova_load(of) + VCPU_LOAD_PERCENT * of.vcpus_used


def active_vms(of: Hosts | HostState) -> Any:
    """How many VMs run on each host or are pending."""
    return reported_vms(of) + of.reserved_instances


def facts_of(host: HostState) -> VirtHost:
    """What one host reports of itself."""
    return virt_of(host.record)


def of_facts(hosts: Hosts, key: object, of: Callable[[VirtHost], Any], dtype: str = "?") -> Values:
    """A column of what hosts report under ``virt``; ``key`` identifies the computation."""
    return hosts.derived(("virt facts", key), lambda host: of(facts_of(host)), dtype)
