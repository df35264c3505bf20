"""vCPUs, memory and local disk: ``(total - reserved) x allocation ratio``, less what is used.

Use includes promises. One instance never exceeds the physical total, whatever the ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter


class CoreFilter(Filter):
    """Passes hosts with enough vCPUs; one that reports no total is not limited."""

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

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        free = host_state.vcpus_total - host_state.reserved_host_cpus
        limit = free * host_state.cpu_allocation_ratio
        return {"vcpu": limit} if limit > 0 else {}

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return (
            f"needs {spec.flavor.vcpus} vCPUs; {host_state.vcpus_used} are used of "
            f"({host_state.vcpus_total} - {host_state.reserved_host_cpus} reserved) x "
            f"{host_state.cpu_allocation_ratio:g}"
        )


class RamFilter(Filter):
    """Passes hosts with enough memory."""

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        wanted, total = spec.flavor.memory_mb, hosts.total_usable_ram_mb
        limit = (total - hosts.reserved_host_memory_mb) * hosts.ram_allocation_ratio
        fits: Mask = limit - (total - hosts.free_ram_mb) >= wanted
        return fits & (total >= wanted)

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        free = host_state.total_usable_ram_mb - host_state.reserved_host_memory_mb
        return {"memory_mb": free * host_state.ram_allocation_ratio}

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        total = host_state.total_usable_ram_mb
        return (
            f"needs {spec.flavor.memory_mb} MiB; {total - host_state.free_ram_mb} are used of "
            f"({total} - {host_state.reserved_host_memory_mb} reserved) x "
            f"{host_state.ram_allocation_ratio:g}"
        )


class DiskFilter(Filter):
    """Passes hosts with enough local disk for root, ephemeral and swap."""

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        wanted, total = spec.flavor.disk_mb, hosts.total_usable_disk_gb * 1024
        limit = (total - hosts.reserved_host_disk_mb) * hosts.disk_allocation_ratio
        fits: Mask = limit - (total - hosts.free_disk_mb) >= wanted
        return fits & (total >= wanted)

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        free = host_state.total_usable_disk_gb * 1024 - host_state.reserved_host_disk_mb
        return {"disk_gb": free * host_state.disk_allocation_ratio / 1024}

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        total = host_state.total_usable_disk_gb * 1024
        return (
            f"needs {spec.flavor.disk_mb} MiB of disk; {total - host_state.free_disk_mb} are used "
            f"of ({total} - {host_state.reserved_host_disk_mb} reserved) x "
            f"{host_state.disk_allocation_ratio:g}"
        )
