"""Weights that spread VMs or pack them, by CPU, memory or number.

Most of them rescale their scores between the best and the worst host.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.virt import VCPU_LOAD_PERCENT, VirtHost
from scheduler_worker.scheduling.ovirt import demand, formulas, host_metrics, parameters
from scheduler_worker.scheduling.ovirt.formulas import MAX_WEIGHT
from scheduler_worker.scheduling.plugin import Weigher

_NO_DATA = 999.0
_WORST = float(MAX_WEIGHT)


class _CpuWeight(Weigher):
    """By the load of each host with the VM for each CPU that VMs share; NaN without statistics."""

    lower_is_better = True

    def reads(self, spec: RequestSpec) -> Hashable:
        vcpus, run_on = spec.flavor.vcpus, spec.machine.run_on
        return vcpus, demand.load_percent(spec), demand.is_exclusive(spec), run_on

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        elsewhere = 1 if spec.machine.run_on is None else ~demand.is_there(hosts, spec)
        return formulas.cpu_score(*self._terms(hosts, spec, elsewhere))

    def weigh_host(self, host_state: HostState, weight_properties: RequestSpec) -> float:
        elsewhere = weight_properties.machine.run_on != host_state.host
        return formulas.cpu_score_of(*self._terms(host_state, weight_properties, elsewhere))

    def _terms(self, of: Hosts | HostState, spec: RequestSpec, elsewhere: Any) -> tuple[Any, ...]:
        """Load and CPUs of hosts, or of one, and whether there are too many vCPUs for the CPUs.

        ``elsewhere`` is false for the host that the VM runs on, which gets nothing more.
        """
        load = host_metrics.load_with_pending(of) + demand.load_percent(spec) * elsewhere
        cpus, added = host_metrics.shared_cpus(of), spec.flavor.vcpus * elsewhere
        if demand.is_exclusive(spec):
            cpus = cpus - added
        ratio = float(getattr(self.parameters, "VCpuToPhysicalCpuRatio", 0))
        if not ratio:
            return load, cpus, None
        running = host_metrics.running_shared_vcpus(of) + host_metrics.pending_vcpus(of)
        return load, cpus, running + added >= ratio * cpus

    def rescaled(self, raw: Values, low: float, high: float, spec: RequestSpec) -> Values:
        return formulas.rescaled(raw, low, high)


class EvenCpuWeight(_CpuWeight):
    """Prefers hosts with a low load for each CPU that VMs share.

    Pending VMs count with 10 % for each vCPU, the role of storage pool manager with 10 %. Hosts
    with more vCPUs for each CPU than ``VCpuToPhysicalCpuRatio`` are a thousand times worse. A
    host without statistics is worst.

    Reads: ``virt.cpu_percent`` or ``virt.cpu_usage``, ``virt.cores``, ``virt.spm``, pending VMs;
    the flavor's vCPUs, ``vm.cpu_percent``.
    Example: a host at 20 % is preferred to one at 60 %.
    """

    unit_id = "7db4ab05-81ab-42e8-868a-aee2df483edb"
    parameters_type = parameters.CpuRatio


class PackedCpuWeight(_CpuWeight):
    """Prefers hosts with a high load for each CPU that VMs share, up to ``HighUtilization``.

    Hosts above it, and hosts without statistics, are worst.

    Reads: as OptimalForCpuEvenDistribution.
    Example: with ``HighUtilization`` 80 a host at 60 % is preferred to one at 20 %.
    """

    unit_id = "736999d0-1023-46a4-9a75-1316ed50e15b"
    parameters_type = parameters.Utilization

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        scores = super().weigh(hosts, spec)
        high = self.parameters.HighUtilization
        if high is not None:
            scores = np.where(scores > int(high), np.nan, scores)
        return -scores

    def weigh_host(self, host_state: HostState, weight_properties: RequestSpec) -> float:
        score = super().weigh_host(host_state, weight_properties)
        high = self.parameters.HighUtilization
        return -score if high is None or score <= int(high) else np.nan


class _MemoryWeight(Weigher):
    """By the memory that may still be scheduled on each host.

    The host that the VM runs on needs nothing more, and has its raw score negated for that.
    """

    lower_is_better = True

    def reads(self, spec: RequestSpec) -> Hashable:
        return demand.total_mb(spec), spec.machine.run_on

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        free = host_metrics.schedulable_mb(hosts)
        if spec.machine.run_on is None:
            return free
        return np.where(demand.is_there(hosts, spec), -free, free)

    def weigh_host(self, host_state: HostState, weight_properties: RequestSpec) -> float:
        free = host_metrics.schedulable_mb_of(host_state)
        return -free if weight_properties.machine.run_on == host_state.host else free

    def rescaled(self, raw: Values, low: float, high: float, spec: RequestSpec) -> Values:
        need: Values | float = demand.total_mb(spec)
        if spec.machine.run_on is not None:
            need = np.where(np.signbit(raw), 0.0, need)
        return self.scores(np.abs(raw), need, max(high, -low))

    def scores(self, free: Values, need: Values | float, best: float) -> Values:
        """The scores of hosts; ``best`` is the most free memory of any host. MiB."""
        raise NotImplementedError


class EvenMemoryWeight(_MemoryWeight):
    """Prefers hosts with much memory that may still be scheduled.

    Reads: ``virt.committed_mb``, ``virt.overcommit_percent``, reserved memory, pending VMs; the
    VM's memory with overhead.
    Example: of two equal hosts the one with fewer VMs is preferred.
    """

    unit_id = "4134247a-9c58-4b9a-8593-530bb9e37c59"

    def scores(self, free: Values, need: Values | float, best: float) -> Values:
        rest = free - (need + 1.0)
        return MAX_WEIGHT - formulas.rounded(rest * (MAX_WEIGHT - 1) / max(best - 1.0, 1.0))


class PackedMemoryWeight(_MemoryWeight):
    """Prefers hosts with little memory that may still be scheduled.

    Below ``MaxFreeMemoryForOverUtilized`` a host counts as if it had far more than
    ``MinFreeMemoryForUnderUtilized``, so that it is not filled to the brim.

    Reads: as OptimalForMemoryEvenDistribution.
    Example: VMs gather on few hosts, so that the others can be switched off.
    """

    unit_id = "9dfe6086-646d-43b8-8eef-4d94de8472c8"
    parameters_type = parameters.FreeMemory

    def scores(self, free: Values, need: Values | float, best: float) -> Values:
        top, rest = max(1.1 * best, 1.0), free - need
        if self.parameters.MaxFreeMemoryForOverUtilized is not None:
            low_mb = float(self.parameters.MaxFreeMemoryForOverUtilized)
            high_mb = float(self.parameters.MinFreeMemoryForUnderUtilized or np.inf)
            rest = np.where(rest < low_mb, np.minimum(top, high_mb + (low_mb - rest)), rest)
        scores: Values = np.trunc(rest / top * (MAX_WEIGHT - 1)) + 1.0
        return scores


class EvenGuestsWeight(Weigher):
    """Prefers hosts with few VMs; the role of storage pool manager counts for ``SpmVmGrace``.

    Reads: the number of VMs, pending ones too, ``virt.spm``.
    Example: every host gets as many VMs as the next.
    """

    unit_id = "3ba8c988-f779-42c0-90ce-caa8243edee7"
    lower_is_better = True
    reads_request = False
    parameters_type = parameters.ManagerGrace

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        grace = int(self.parameters.SpmVmGrace)
        counts: Values = host_metrics.active_vms(hosts) + grace * host_metrics.is_manager(hosts)
        return counts

    def weigh_host(self, host_state: HostState, weight_properties: RequestSpec) -> float:
        grace = int(self.parameters.SpmVmGrace)
        return float(
            host_metrics.active_vms(host_state) + grace * host_metrics.is_manager(host_state)
        )


class HaReservationWeight(Weigher):
    """Prefers, for highly available VMs, hosts with few of them, so that a failure hits few.

    In clusters that keep room for such VMs. Scores are between 0 and 100, over ``ScaleDown``.

    Reads: ``virt.vms``; ``vm.highly_available``, ``vm.ha_reservation``.
    Example: ``ScaleDown`` 10 makes ten steps of hundred.
    """

    unit_id = "7f262d70-6cac-11e3-981f-0800200c9a66"
    lower_is_better = True
    reads_use = False
    parameters_type = parameters.ScaleDown

    def applies(self, spec: RequestSpec) -> bool:
        return spec.machine.highly_available and spec.machine.ha_reservation

    def reads(self, spec: RequestSpec) -> Hashable:
        return ()

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        return host_metrics.of_facts(
            hosts, "HA VMs", lambda virt: sum(vm.highly_available for vm in virt.vms), "f8"
        )

    def rescaled(self, raw: Values, low: float, high: float, spec: RequestSpec) -> Values:
        if not high:
            return np.zeros(len(raw))
        scores: Values = np.ceil(100.0 * raw / high / int(self.parameters.ScaleDown))
        return scores


class HighPerformanceWeight(Weigher):
    """Prefers, for VMs that depend on the CPU's topology, hosts that can give them theirs.

    For VMs with CPUs of their own, hosts on which these are on few sockets, then few cores.

    Reads: ``virt.sockets``, ``virt.cores``, ``virt.threads``; the VM's topology,
    ``vm.high_performance``, ``vm.cpu_passthrough``, ``vm.pinning``, ``vm.numa_nodes``.
    Example: a VM of 2 sockets prefers hosts with two or more.
    """

    unit_id = "71931e14-f0e6-4f91-a7c8-d494a26e3a09"
    lower_is_better = True
    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        vm = spec.machine
        has_pinned_nodes = any(node.host_nodes for node in vm.numa_nodes)
        special = vm.high_performance or vm.cpu_passthrough or has_pinned_nodes
        return special or bool(vm.pinned_cpus) or demand.is_exclusive(spec)

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.vcpus if demand.is_exclusive(spec) else demand.topology(spec)

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        if demand.is_exclusive(spec):
            vcpus = spec.flavor.vcpus
            return host_metrics.of_facts(
                hosts, ("spread", vcpus), lambda virt: _spread(virt, vcpus), "f8"
            )
        topology = demand.topology(spec)

        def holds(virt: VirtHost) -> bool:
            return all(has >= asked for has, asked in zip(_topology(virt), topology, strict=True))

        fits = host_metrics.of_facts(hosts, ("wide", topology), holds)
        return np.where(fits, 1.0, _WORST)

    def rescaled(self, raw: Values, low: float, high: float, spec: RequestSpec) -> Values:
        return formulas.rescaled(raw, low, high)


def _topology(virt: VirtHost) -> tuple[int, int, int]:
    """Sockets, cores for each socket and threads for each core; 0 where unknown."""
    sockets, cores, threads = virt.sockets or 0, virt.cores or 0, virt.threads or 0
    return sockets, cores // max(1, sockets), threads // max(1, cores)


def _spread(virt: VirtHost, vcpus: int) -> float:
    """A thousand for each socket on which so many CPUs are, and one for each core."""
    _, cores, threads = _topology(virt)
    if not cores or not threads:
        return _WORST * _WORST
    sockets_needed, cores_needed = -(-vcpus // (cores * threads)), -(-vcpus // threads)
    return _WORST * sockets_needed + cores_needed


class EvenDistributionWeight(Weigher):
    """Prefers hosts with few vCPUs in use for each core: the cost of oVirt's design.

    The use of the host in units of 10 %, and the vCPUs of pending VMs, of this one and of the
    storage pool manager for each core; at most 1000, 999 without statistics.

    Reads: ``virt.cpu_percent``, ``virt.cores``, ``virt.spm``, pending VMs; the flavor's vCPUs.
    Example: a host of 4 cores at 20 % with one pending vCPU costs 3.
    """

    lower_is_better = True

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.vcpus

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        percent, added = host_metrics.cpu_percent(hosts), host_metrics.pending_vcpus(hosts)
        added = added + spec.flavor.vcpus + host_metrics.is_manager(hosts)
        with np.errstate(invalid="ignore", divide="ignore"):
            costs = np.ceil(percent / VCPU_LOAD_PERCENT + added / host_metrics.cores(hosts))
        scores: Values = np.nan_to_num(np.minimum(costs, _WORST), nan=_NO_DATA)
        return scores


class PowerSavingWeight(EvenDistributionWeight):
    """Prefers busy hosts, and empty ones last: the cost of oVirt's design.

    Reads: as EvenDistribution, and the number of VMs.
    Example: an empty host costs 999, as one that could be switched off.
    """

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        busy = host_metrics.active_vms(hosts) > 0
        return np.where(busy, _NO_DATA - super().weigh(hosts, spec), _NO_DATA)
