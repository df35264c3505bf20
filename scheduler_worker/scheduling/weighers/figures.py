"""Weighers by one figure of the host."""

from __future__ import annotations

from typing import ClassVar

from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.options import MULTIPLIERS
from scheduler_worker.scheduling.plugin import Weigher


class _Figure(Weigher):
    """A weigher whose raw score is a column of the hosts, whatever is requested."""

    reads_request = False
    column: ClassVar[str] = ""

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        return hosts.column(self.column)

    def weigh_host(self, host_state: HostState, weight_properties: RequestSpec) -> float:
        return float(getattr(host_state, self.column))


class RAMWeigher(_Figure):
    """Free memory, MiB: spreads with a positive multiplier, stacks with a negative one.

    Reads: ``free_ram_mb``.
    Example: ``ram_weight_multiplier = -1.0`` fills hosts one after the other.
    """

    minval = 0
    column = "free_ram_mb"
    option = "ram_weight_multiplier"


class CPUWeigher(_Figure):
    """Free vCPUs, overcommitted ones included.

    Reads: ``vcpus_total``, ``cpu_allocation_ratio``, ``vcpus_used``.
    Example: ``cpu_weight_multiplier = -1.0`` fills hosts one after the other.
    """

    minval = 0
    option = "cpu_weight_multiplier"

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        free: Values = hosts.vcpus_total * hosts.cpu_allocation_ratio - hosts.vcpus_used
        return free

    def weigh_host(self, host_state: HostState, weight_properties: RequestSpec) -> float:
        return float(
            host_state.vcpus_total * host_state.cpu_allocation_ratio - host_state.vcpus_used
        )


class DiskWeigher(_Figure):
    """Free local disk, MiB.

    Reads: ``free_disk_mb``.
    Example: ``disk_weight_multiplier = 2.0``
    """

    minval = 0
    column = "free_disk_mb"
    option = "disk_weight_multiplier"


class IoOpsWeigher(_Figure):
    """Instances that are being built, resized, rescued and so on.

    Reads: ``num_io_ops``.
    Example: the default ``io_ops_weight_multiplier = -1.0`` prefers hosts with fewer of them.
    """

    minval = 0
    column = "num_io_ops"
    option = "io_ops_weight_multiplier"
    default_factor = MULTIPLIERS.io_ops_weight_multiplier


class NumInstancesWeigher(_Figure):
    """Instances on the host.

    Reads: ``num_instances``.
    Example: ``num_instances_weight_multiplier = -1.0`` spreads instances evenly.
    """

    column = "num_instances"
    option = "num_instances_weight_multiplier"
    default_factor = MULTIPLIERS.num_instances_weight_multiplier


class HypervisorVersionWeigher(_Figure):
    """The hypervisor's version.

    Reads: ``hypervisor_version``.
    Example: ``hypervisor_version_weight_multiplier = -1.0`` keeps upgraded hosts free.
    """

    reads_use = False
    column = "hypervisor_version"
    option = "hypervisor_version_weight_multiplier"


class BuildFailureWeigher(_Figure):
    """Failed builds on the host; the multiplier is negated.

    Reads: ``failed_builds``.
    Example: failed builds outweigh everything else by default; ``build_failure_weight_multiplier =
    0`` ignores them.
    """

    reads_use = False
    column = "failed_builds"
    option = "build_failure_weight_multiplier"
    default_factor = MULTIPLIERS.build_failure_weight_multiplier

    def multiplier(self, hosts: Hosts) -> Values | float:
        return -1 * super().multiplier(hosts)

    def weight_multiplier(self, host_state: HostState) -> float:
        return -1 * super().weight_multiplier(host_state)
