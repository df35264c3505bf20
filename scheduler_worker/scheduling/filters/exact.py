"""Filters for hosts of exactly the instance's size, such as bare metal."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter


class _ExactFilter(Filter):
    """Passes hosts of which exactly the requested amount is free."""

    momentary = True
    limits_of_facts = True

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        exact: Mask = self.free(hosts) == self.reads(spec)
        return exact

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return bool(self.free(host_state) == self.reads(spec_obj))

    def free(self, hosts: Hosts | HostState) -> Any:
        """The free amount of all hosts, or of one."""
        raise NotImplementedError

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return f"has {self.free(host_state)} free, not exactly {self.reads(spec)}"


class ExactCoreFilter(_ExactFilter):
    """Passes hosts whose free vCPUs are the flavor's; a host that reports no total does not pass.

    Reads: the host's vCPUs and their use; the flavor's vCPUs.
    Example: bare metal hosts, of which an instance takes the whole.
    """

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        return super().passes(hosts, spec) & (hosts.vcpus_total > 0)

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return host_state.vcpus_total > 0 and super().host_passes(host_state, spec_obj)

    def free(self, hosts: Hosts | HostState) -> Any:
        return hosts.vcpus_total - hosts.vcpus_used

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.vcpus

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        return {"vcpu": host_state.vcpus_total}


class ExactRamFilter(_ExactFilter):
    """Passes hosts whose free memory is the flavor's.

    Reads: the host's free memory; the flavor's memory.
    Example: bare metal hosts, of which an instance takes the whole.
    """

    def free(self, hosts: Hosts | HostState) -> Any:
        return hosts.free_ram_mb

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.memory_mb

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        return {"memory_mb": host_state.total_usable_ram_mb}


class ExactDiskFilter(_ExactFilter):
    """Passes hosts whose free local disk is the flavor's, swap included.

    Reads: the host's free local disk; the flavor's root, ephemeral and swap disk.
    Example: bare metal hosts, of which an instance takes the whole.
    """

    def free(self, hosts: Hosts | HostState) -> Any:
        return hosts.free_disk_mb

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.disk_mb

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        return {"disk_gb": host_state.total_usable_disk_gb}
