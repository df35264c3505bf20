"""Filters for memory, swap and huge pages, and for the number, load, kind and pinning of CPUs."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.virt import VirtHost
from scheduler_worker.scheduling.filters.facts import FactFilter
from scheduler_worker.scheduling.ovirt import demand, formulas, host_metrics
from scheduler_worker.scheduling.ovirt.parameters import Overload, Swap
from scheduler_worker.scheduling.plugin import Filter, only
from scheduler_worker.wording import listed


class MemoryFilter(Filter):
    """Passes hosts whose free memory and swap hold the VM, and whose overcommit limit does.

    Paused VMs need nothing, nor does a VM on its own host. A host that does not know its free
    memory is rejected. A request that fits but for pending VMs waits for them, as under every
    policy.

    Reads: ``virt.free_mb``, ``virt.swap_free_mb``, ``virt.committed_mb``,
    ``virt.overcommit_percent``, reserved memory, pending VMs; the flavor's memory,
    ``vm.static_overhead_mb``, ``vm.possible_overhead_mb``.
    Example: 64 GiB at 200 % take VMs of 128 GiB in all, if half of that is swapped or not touched.
    """

    momentary = True
    unit_id = "c9ddbb34-0e1d-4061-a8d7-b0893fa80932"

    def applies(self, spec: RequestSpec) -> bool:
        return not spec.machine.paused

    def reads(self, spec: RequestSpec) -> Hashable:
        pages = demand.hugepage_kb(spec), demand.hugepages(spec)
        return demand.real_mb(spec), demand.total_mb(spec), pages, spec.machine.run_on

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        free, pages = host_metrics.free_mb(hosts), _new_pages_mb(hosts, spec)
        swap = np.nan_to_num(host_metrics.swap_free_mb(hosts), nan=0.0)
        fits = formulas.fits_physically(
            free, host_metrics.pending_real_mb(hosts), swap, pages, demand.real_mb(spec)
        )
        schedulable = host_metrics.schedulable_mb(hosts)
        fits &= formulas.fits_overcommitted(schedulable, pages, demand.total_mb(spec))
        return fits if spec.machine.run_on is None else fits | demand.is_there(hosts, spec)

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        if spec_obj.machine.run_on == host_state.host or spec_obj.machine.paused:
            return True
        if demand.hugepage_kb(spec_obj):
            return bool(self.passes(only(host_state), spec_obj)[0])
        free = host_metrics.free_mb_of(host_state.record)
        if free is None:
            return False
        available = free - host_metrics.pending_real_mb(host_state)
        swap = host_metrics.facts_of(host_state).swap_free_mb or 0
        fits = bool(available >= 0 and available + swap >= demand.real_mb(spec_obj))
        return fits and demand.total_mb(spec_obj) <= host_metrics.schedulable_mb_of(host_state)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        host = only(host_state)
        free, schedulable = host_metrics.free_mb(host)[0], host_metrics.schedulable_mb(host)[0]
        if np.isnan(free):
            return "does not report its free memory"
        total, needed = demand.total_mb(spec), demand.real_mb(spec)
        if schedulable < total:
            room = f"{schedulable:.0f} MiB may still be scheduled"
            return f"needs {total} MiB with overhead, {room}"
        taken = f"of which pending VMs take {host_metrics.pending_real_mb(host)[0]:.0f}"
        return f"needs {needed} MiB, {free:.0f} MiB are free {taken}"


def _new_pages_mb(hosts: Hosts, spec: RequestSpec) -> Values | float:
    """The memory of the huge pages that would have to be made on each host."""
    size_kb = demand.hugepage_kb(spec)
    if not size_kb:
        return 0.0
    missing: Values = np.maximum(0.0, demand.hugepages(spec) - free_pages(hosts, size_kb))
    return missing * (size_kb / 1024)


def free_pages(hosts: Hosts, size_kb: int) -> Values:
    """Free huge pages of a size, less the pages of pending VMs of that size; never negative."""
    reported = host_metrics.of_facts(
        hosts, ("pages", size_kb), lambda virt: dict(virt.free_hugepages).get(size_kb, 0), "i8"
    )
    taken = (dict(use.hugepages).get(size_kb, 0) for use in hosts.virt_use)
    pending = np.fromiter(taken, "i8", len(hosts))
    free: Values = np.maximum(0, reported - np.maximum(0, pending))
    return free


class HugePagesFilter(Filter):
    """Passes hosts with enough free huge pages of the VM's size, and the host that it runs on.

    Reads: ``virt.free_hugepages``, the pages of pending VMs; ``vm.hugepage_kb`` or the flavor's
    ``hw:mem_page_size``, ``vm.run_on``.
    Example: 1 GiB in pages of 2048 KiB needs 512 of them.
    """

    momentary = True
    unit_id = "23e07b34-66dd-4735-bc45-bcddded02c05"

    def applies(self, spec: RequestSpec) -> bool:
        return demand.hugepages(spec) > 0

    def reads(self, spec: RequestSpec) -> Hashable:
        return demand.hugepage_kb(spec), demand.hugepages(spec), spec.machine.run_on

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        enough: Mask = free_pages(hosts, demand.hugepage_kb(spec) or 0) >= demand.hugepages(spec)
        return enough | demand.is_there(hosts, spec)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        size_kb = demand.hugepage_kb(spec) or 0
        free = free_pages(only(host_state), size_kb)[0]
        return f"needs {demand.hugepages(spec)} pages of {size_kb} KiB, {free} are free"


class SwapFilter(Filter):
    """Passes hosts that have not swapped out more than allowed beyond their free memory.

    A host of which a figure is unknown passes.

    Reads: ``virt.swap_total_mb``, ``virt.swap_free_mb``, ``virt.free_mb``, its memory.
    Example: ``MaximumAllowedSwapUsage`` 0 keeps VMs off hosts that swap.
    """

    momentary = True
    unit_id = "43b9e654-337f-4b0d-a896-cbb22ce5a7fc"
    parameters_type = Swap
    reads_request = False
    reads_use = False

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        swapped_mb = host_metrics.swap_total_mb(hosts) - host_metrics.swap_free_mb(hosts)
        free_mb, physical_mb = host_metrics.free_mb(hosts), hosts.total_usable_ram_mb
        known = (free_mb > 0) & (physical_mb > 0) & ~np.isnan(swapped_mb)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.trunc((swapped_mb - free_mb) * 100.0 / physical_mb)
        low: Mask = ~known | (share <= int(self.parameters.MaximumAllowedSwapUsage))
        return low

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        virt = host_metrics.facts_of(host_state)
        swapped_mb = (virt.swap_total_mb or 0) - (virt.swap_free_mb or 0)
        allowed = f"{self.parameters.MaximumAllowedSwapUsage} % of memory are allowed"
        return f"{swapped_mb} MiB are swapped out, {virt.free_mb} MiB are free, {allowed}"


class CpuFilter(Filter):
    """Passes hosts with as many cores for shared VMs as the largest of them has vCPUs.

    Cores that a VM has for itself do not count. Hosts whose sockets, cores or threads are unknown
    are rejected.

    Reads: ``virt.cores``, ``virt.threads``, ``virt.sockets``, ``virt.count_threads_as_cores``,
    the VMs' vCPUs and exclusive CPUs; the flavor's vCPUs, ``vm.pinning``.
    Example: a host of 8 cores takes VMs of up to 8 vCPUs, any number of them.
    """

    momentary = True
    unit_id = "6d636bf6-a35c-4f9d-b68d-0731f720cddc"

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.vcpus, demand.is_exclusive(spec), spec.machine.run_on

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        there, vcpus = demand.is_there(hosts, spec), spec.flavor.vcpus
        exclusive = _exclusive(hosts)
        # Where a VM has CPUs for itself, an upper bound of the largest pending VM. Without such VMs
        # the largest pending one passed this filter by itself.
        largest_pending = np.where(exclusive > 0, host_metrics.pending_vcpus(hosts), 0)
        largest = np.maximum(host_metrics.largest_shared(hosts), largest_pending)
        free_cores = host_metrics.cores(hosts) - exclusive
        if demand.is_exclusive(spec):
            free_cores = free_cores - np.where(there, 0, vcpus)
        else:
            largest = np.maximum(largest, vcpus)
        enough: Mask = free_cores >= largest
        return enough

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        virt, cores = host_metrics.facts_of(host_state), host_metrics.cores_of(host_state.record)
        if virt.vms or host_state.exclusive_vcpus or demand.is_exclusive(spec_obj):
            return bool(self.passes(only(host_state), spec_obj)[0])
        return cores is not None and cores >= spec_obj.flavor.vcpus

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        host = only(host_state)
        cores = host_metrics.cores(host)[0]
        if np.isnan(cores):
            return "does not report its sockets, cores and threads"
        taken = f"of which VMs have {_exclusive(host)[0]:.0f} for themselves"
        return f"{spec.flavor.vcpus} vCPUs are requested; it has {cores:.0f} cores, {taken}"


def _exclusive(hosts: Hosts) -> Values:
    """CPUs that running and pending VMs have for themselves."""
    cpus: Values = host_metrics.exclusive_cpus(hosts) + hosts.exclusive_vcpus
    return cpus


class CpuOverloadFilter(Filter):
    """Rejects hosts whose load has been too high for too long, and hosts without statistics.

    Reads: ``virt.cpu_percent`` or ``virt.cpu_usage``, since when the load is out of its bounds.
    Example: ``HighUtilization`` 80 and ``CpuOverCommitDurationMinutes`` 2 reject a host that has
    been above 80 % for two minutes.
    """

    momentary = True
    unit_id = "98842bc5-4094-4b83-8224-7b50f86a94c9"
    parameters_type = Overload
    reads_request = False
    reads_use = False

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        load: Values = host_metrics.load_percent(hosts)
        busy = (load > int(self.parameters.HighUtilization)) & (self._ends_s(hosts) <= hosts.now_s)
        return ~busy & ~np.isnan(load)

    def lasts_until_s(self, hosts: Hosts, spec: RequestSpec) -> float:
        ends_s = self._ends_s(hosts)
        first_s = ends_s.min(initial=np.inf, where=ends_s > hosts.now_s)
        return float(np.nextafter(first_s, 0.0))  # at that time the answer is another one

    def _ends_s(self, hosts: Hosts) -> Values:
        """When each host will have been over-committed for long enough; infinity: it is not."""
        since_s = hosts.derived("over-commit", _since_s, "f8")
        return since_s + 60.0 * float(self.parameters.CpuOverCommitDurationMinutes)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        load = host_metrics.load_percent(only(host_state))[0]
        if np.isnan(load):
            return "does not report the use of its CPUs"
        age_s = host_state.now_s - _since_s(host_state)
        return (
            f"its load is {load:.0f} %, {self.parameters.HighUtilization} % are allowed, "
            f"for {age_s / 60:.0f} min"
        )


def _since_s(host: HostState) -> float:
    since_s = host.record.over_commit_since_s
    return np.inf if since_s is None else since_s


class CpuLevelFilter(FactFilter):
    """Passes hosts whose CPU has all flags that the VM needs.

    A VM that sees the host's own CPU starts anywhere, and migrates to hosts with all flags that it
    was started with.

    Reads: ``virt.cpu_flags``; ``vm.cpu_flags``, ``vm.cpu_passthrough``, ``vm.run_on``.
    Example: a VM of model Haswell needs the flag ``model_Haswell``.
    """

    unit_id = "438b052c-90ab-40e8-9be0-a22560202ea6"
    runs_on_forced_hosts = True

    def applies(self, spec: RequestSpec) -> bool:
        vm = spec.machine
        return bool(vm.cpu_flags) and not (vm.cpu_passthrough and vm.run_on is None)

    def asked(self, spec: RequestSpec) -> Any:
        return frozenset(spec.machine.cpu_flags)

    def rejection(self, host: HostState, asked: Any) -> str | None:
        missing = asked - frozenset(host_metrics.facts_of(host).cpu_flags)
        return f"its CPU lacks {listed(sorted(missing))}" if missing else None


class CpuTopologyFilter(FactFilter):
    """Passes hosts whose CPU topology suits a VM with CPUs of its own.

    ``resize_and_pin`` needs more than one core for each socket, and a NUMA node for each socket;
    ``dedicated`` and ``isolate_threads`` need as many threads for each core as the VM has. Hosts
    that do not report their topology are rejected.

    Reads: ``virt.sockets``, ``virt.cores``, ``virt.threads``, ``virt.numa_nodes``;
    ``vm.pinning``, ``vm.threads_per_core``.
    Example: a VM with two threads for each core does not start on a host without hyperthreading.
    """

    unit_id = "35c2f1a5-8928-48e9-81ac-4c49eb49d60e"
    runs_on_forced_hosts = True

    def applies(self, spec: RequestSpec) -> bool:
        return demand.is_exclusive(spec)

    def asked(self, spec: RequestSpec) -> Any:
        return spec.machine.pinning, spec.machine.threads_per_core or 1

    def rejection(self, host: HostState, asked: Any) -> str | None:
        virt, (pinning, threads) = host_metrics.facts_of(host), asked
        if _suits(virt, threads, pinning == "resize_and_pin"):
            return None
        topology = f"{virt.sockets} sockets, {virt.cores} cores and {virt.threads} threads"
        return f"its {topology} do not suit CPU pinning {pinning}"


def _suits(virt: VirtHost, threads: int, resizes: bool) -> bool:
    if not (virt.sockets and virt.cores and virt.threads):
        return False
    if resizes:
        return virt.cores > virt.sockets and virt.sockets == len(virt.numa_nodes)
    return threads <= virt.threads // virt.cores


class CpuPinningFilter(Filter):
    """Passes hosts on which the CPUs that the VM is pinned to are online, and no other VM's own.

    A VM with CPUs of its own needs as many that no VM is alone on; ``resize_and_pin`` needs that no
    VM has any for itself.

    Reads: ``virt.cpu_usage``, ``virt.threads``, the VMs' exclusive CPUs; ``vm.pinning``,
    ``vm.pinned_cpus``, the flavor's vCPUs.
    Example: a VM pinned to CPU 70 does not start on a host of 64.
    """

    momentary = True
    unit_id = "6d636bf6-a35c-4f9d-b68d-0731f731cddc"
    runs_on_forced_hosts = True

    def applies(self, spec: RequestSpec) -> bool:
        return demand.is_exclusive(spec) or bool(spec.machine.pinned_cpus)

    def reads(self, spec: RequestSpec) -> Hashable:
        vm = spec.machine
        return vm.pinning, vm.pinned_cpus, spec.flavor.vcpus, vm.run_on

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        vm, virt = spec_obj.machine, host_metrics.facts_of(host_state)
        if vm.run_on == host_state.host:
            return True
        taken, pending = virt.exclusive_cpus, host_state.virt_use
        online = {cpu for cpu, _ in virt.cpu_usage} or set(range(virt.threads or 0))
        if vm.pinning == "resize_and_pin":
            return not taken and not pending.exclusive_vcpus
        if vm.pinning == "manual":
            return set(vm.pinned_cpus) <= online - taken
        return bool(spec_obj.flavor.vcpus <= len(online - taken) - pending.exclusive_vcpus)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        taken = sorted(host_metrics.facts_of(host_state).exclusive_cpus)
        cpus = listed(list(map(str, spec.machine.pinned_cpus))) or str(spec.flavor.vcpus)
        return f"cannot give CPUs {cpus}; VMs have {listed(list(map(str, taken))) or 'none'} alone"
