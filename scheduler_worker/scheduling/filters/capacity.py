"""vCPUs, memory and local disk: ``(total - reserved) x allocation ratio``, less what is used.

Use includes promises. One instance never exceeds the physical total, whatever the ratio.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter


class CoreFilter(Filter):
    """Passes hosts with enough vCPUs; one that reports no total is not limited."""

    limits_of_facts = True

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        wanted, total, limit = spec.flavor.vcpus, hosts.vcpus_total, self._limit(hosts)
        fits: Mask = limit - hosts.vcpus_used >= wanted
        fits &= (wanted <= total) | (limit <= 0)
        fits |= total == 0
        return fits

    @staticmethod
    def _limit(hosts: Hosts) -> Values:
        limit: Values = (hosts.vcpus_total - hosts.reserved_host_cpus) * hosts.cpu_allocation_ratio
        return limit

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        wanted, total, record = spec_obj.flavor.vcpus, host_state.vcpus_total, host_state.record
        limit = (total - record.reserved_host_cpus) * record.cpu_allocation_ratio
        fits = limit - host_state.vcpus_used >= wanted and (wanted <= total or limit <= 0)
        return bool(fits or total == 0)

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.vcpus

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        record = host_state.record
        limit = (record.vcpus - record.reserved_host_cpus) * record.cpu_allocation_ratio
        return {"vcpu": limit} if limit > 0 else {}

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return _shortage(
            "vCPUs",
            wanted=spec.flavor.vcpus,
            total=host_state.vcpus_total,
            used=host_state.vcpus_used,
            reserved=host_state.reserved_host_cpus,
            ratio=host_state.cpu_allocation_ratio,
        )


class RamFilter(Filter):
    """Passes hosts with enough memory."""

    limits_of_facts = True

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        wanted, total = spec.flavor.memory_mb, hosts.total_usable_ram_mb
        limit = (total - hosts.reserved_host_memory_mb) * hosts.ram_allocation_ratio
        fits: Mask = limit - (total - hosts.free_ram_mb) >= wanted
        return fits & (total >= wanted)

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        wanted, record = spec_obj.flavor.memory_mb, host_state.record
        total = record.memory_mb
        limit = (total - record.reserved_host_memory_mb) * record.ram_allocation_ratio
        return bool(limit - (total - host_state.free_ram_mb) >= wanted and total >= wanted)

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.memory_mb

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        record = host_state.record
        free = record.memory_mb - record.reserved_host_memory_mb
        return {"memory_mb": free * record.ram_allocation_ratio}

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return _shortage(
            "MiB",
            wanted=spec.flavor.memory_mb,
            total=host_state.total_usable_ram_mb,
            used=host_state.total_usable_ram_mb - host_state.free_ram_mb,
            reserved=host_state.reserved_host_memory_mb,
            ratio=host_state.ram_allocation_ratio,
        )


class DiskFilter(Filter):
    """Passes hosts with enough local disk for root, ephemeral and swap."""

    limits_of_facts = True

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        wanted, total = spec.flavor.disk_mb, hosts.total_usable_disk_gb * 1024
        limit = (total - hosts.reserved_host_disk_mb) * hosts.disk_allocation_ratio
        fits: Mask = limit - (total - hosts.free_disk_mb) >= wanted
        return fits & (total >= wanted)

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        wanted, record = spec_obj.flavor.disk_mb, host_state.record
        total = record.local_gb * 1024
        limit = (total - record.reserved_host_disk_mb) * record.disk_allocation_ratio
        return bool(limit - (total - host_state.free_disk_mb) >= wanted and total >= wanted)

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.disk_mb

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        record = host_state.record
        free = record.local_gb * 1024 - record.reserved_host_disk_mb
        return {"disk_gb": free * record.disk_allocation_ratio / 1024}

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        total = host_state.total_usable_disk_gb * 1024
        return _shortage(
            "MiB of disk",
            wanted=spec.flavor.disk_mb,
            total=total,
            used=total - host_state.free_disk_mb,
            reserved=host_state.reserved_host_disk_mb,
            ratio=host_state.disk_allocation_ratio,
        )


def _shortage(unit: str, *, wanted: int, total: int, used: int, reserved: int, ratio: float) -> str:
    if wanted > total:
        return f"needs {wanted} {unit}, more than the {total} it has"
    return f"needs {wanted} {unit}; {used} are used of ({total} - {reserved} reserved) x {ratio:g}"
