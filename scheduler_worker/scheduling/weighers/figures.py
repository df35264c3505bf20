"""Weighers that are one figure of the host."""

from __future__ import annotations

from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Weigher


class RAMWeigher(Weigher):
    """Free memory, MiB: spreads with a positive multiplier, stacks with a negative one."""

    minval = 0
    option = "ram_weight_multiplier"

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        return hosts.free_ram_mb


class CPUWeigher(Weigher):
    """Free vCPUs, overcommitted ones included."""

    minval = 0
    option = "cpu_weight_multiplier"

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        free: Values = hosts.vcpus_total * hosts.cpu_allocation_ratio - hosts.vcpus_used
        return free


class DiskWeigher(Weigher):
    """Free local disk, MiB."""

    minval = 0
    option = "disk_weight_multiplier"

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        return hosts.free_disk_mb


class IoOpsWeigher(Weigher):
    """Instances that are being built, resized, rescued and so on."""

    minval = 0
    option = "io_ops_weight_multiplier"

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        return hosts.num_io_ops


class NumInstancesWeigher(Weigher):
    """Instances on the host."""

    option = "num_instances_weight_multiplier"

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        return hosts.num_instances


class HypervisorVersionWeigher(Weigher):
    """The hypervisor's version."""

    option = "hypervisor_version_weight_multiplier"

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        return hosts.hypervisor_version


class BuildFailureWeigher(Weigher):
    """Builds that failed on the host; the multiplier counts against it."""

    option = "build_failure_weight_multiplier"

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        return hosts.failed_builds

    def multiplier(self, hosts: Hosts) -> Values | float:
        return -1 * super().multiplier(hosts)

    def weight_multiplier(self, host_state: HostState) -> float:
        return -1 * super().weight_multiplier(host_state)
