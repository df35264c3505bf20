"""Weighers by one figure of the host: what is free or used, its cell, members of a group."""

from collections.abc import Callable, Hashable
from typing import ClassVar

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.options import MULTIPLIERS
from scheduler_worker.scheduling.plugin import Weigher


class _ResourceWeigher(Weigher):
    """A weigher whose raw score is a column of the hosts, whatever is requested."""

    reads_request = False
    column: ClassVar[str] = ""

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        return hosts.column(self.column)

    def weigh_host(self, host_state: HostState, weight_properties: RequestSpec) -> float:
        return float(getattr(host_state, self.column))

    def row_score(self, hosts: Hosts, spec: RequestSpec) -> Callable[[int], float]:
        score: Callable[[int], float] = hosts.column(self.column).item
        return score


class RAMWeigher(_ResourceWeigher):
    """Free memory, MiB: spreads with a positive multiplier, stacks with a negative one.

    Reads: ``free_ram_mb``.
    Example: ``ram_weight_multiplier = -1.0`` fills hosts one after the other.
    """

    minval = 0
    column = "free_ram_mb"
    option = "ram_weight_multiplier"


class CPUWeigher(_ResourceWeigher):
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
        host = host_state
        return float(host.vcpus_total * host.cpu_allocation_ratio - host.vcpus_used)

    def row_score(self, hosts: Hosts, spec: RequestSpec) -> Callable[[int], float]:
        total, ratio = hosts.vcpus_total.item, hosts.cpu_allocation_ratio.item
        used = hosts.vcpus_used.item
        return lambda row: total(row) * ratio(row) - used(row)


class DiskWeigher(_ResourceWeigher):
    """Free local disk, MiB.

    Reads: ``free_disk_mb``.
    Example: ``disk_weight_multiplier = 2.0``
    """

    minval = 0
    column = "free_disk_mb"
    option = "disk_weight_multiplier"


class IoOpsWeigher(_ResourceWeigher):
    """Instances that are being built, resized, rescued and so on.

    Reads: ``num_io_ops``.
    Example: the default ``io_ops_weight_multiplier = -1.0`` prefers hosts with fewer of them.
    """

    minval = 0
    column = "num_io_ops"
    option = "io_ops_weight_multiplier"
    default_factor = MULTIPLIERS.io_ops_weight_multiplier


class NumInstancesWeigher(_ResourceWeigher):
    """Instances on the host.

    Reads: ``num_instances``.
    Example: ``num_instances_weight_multiplier = -1.0`` spreads instances evenly.
    """

    column = "num_instances"
    option = "num_instances_weight_multiplier"
    default_factor = MULTIPLIERS.num_instances_weight_multiplier


class HypervisorVersionWeigher(_ResourceWeigher):
    """The hypervisor's version.

    Reads: ``hypervisor_version``.
    Example: ``hypervisor_version_weight_multiplier = -1.0`` keeps upgraded hosts free.
    """

    reads_use = False
    column = "hypervisor_version"
    option = "hypervisor_version_weight_multiplier"


class BuildFailureWeigher(_ResourceWeigher):
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


_MOST = 99
"""More free devices than this make no difference."""


class PCIWeigher(_ResourceWeigher):
    """Prefers hosts with fewer free PCI devices, whatever is requested.

    A filter narrows requests for devices to hosts that have them; other requests should leave these
    hosts free.

    Reads: the host's PCI pools.
    Example: ``pci_weight_multiplier = 2.0``
    """

    option = "pci_weight_multiplier"

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        few: Values = 1.0 + _MOST - np.minimum(hosts.free_pci_devices, _MOST)
        return few

    def weigh_host(self, host_state: HostState, weight_properties: RequestSpec) -> float:
        return float(1.0 + _MOST - min(host_state.free_pci_devices, _MOST))

    def row_score(self, hosts: Hosts, spec: RequestSpec) -> Callable[[int], float]:
        free = hosts.free_pci_devices.item
        return lambda row: 1.0 + _MOST - min(free(row), _MOST)


class CrossCellWeigher(Weigher):
    """1 in the instance's cell, -1 elsewhere, when a move may cross cells.

    Reads: the host's cell; the requested destination.
    Example: with the default multiplier a resize leaves its cell only if no other host is left.
    """

    reads_use = False
    option = "cross_cell_move_weight_multiplier"
    default_factor = MULTIPLIERS.cross_cell_move_weight_multiplier

    def applies(self, spec: RequestSpec) -> bool:
        destination = spec.requested_destination
        return bool(destination and destination.cell_uuid and destination.allow_cross_cell_move)

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.requested_destination.cell_uuid if spec.requested_destination else None

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        if not self.applies(spec):
            return np.zeros(len(hosts))
        cell = self.reads(spec)
        key = (type(self).__name__, cell)
        return hosts.derived(key, lambda host: 1.0 if host.cell_uuid == cell else -1.0, "f8")


class _SoftGroupWeigher(Weigher):
    """The group's members on the host times ``sign``, for groups whose policy is ``policy``."""

    policy: ClassVar[str]
    sign: ClassVar[int]

    def applies(self, spec: RequestSpec) -> bool:
        return spec.instance_group is not None and spec.instance_group.policy == self.policy

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        group = spec.instance_group
        if group is None or group.policy != self.policy:
            return np.zeros(len(hosts))
        members: Values = self.sign * hosts.count_instances(group.members).astype("f8")
        return members


class ServerGroupSoftAffinityWeigher(_SoftGroupWeigher):
    """Prefers hosts with more members of a soft-affinity group.

    Reads: the host's instances; the group's policy and members.
    Example: ``openstack server group create --policy soft-affinity NAME``
    """

    option = "soft_affinity_weight_multiplier"
    policy = "soft-affinity"
    sign = 1


class ServerGroupSoftAntiAffinityWeigher(_SoftGroupWeigher):
    """Prefers hosts with fewer members of a soft-anti-affinity group.

    Reads: the host's instances; the group's policy and members.
    Example: ``openstack server group create --policy soft-anti-affinity NAME``
    """

    option = "soft_anti_affinity_weight_multiplier"
    policy = "soft-anti-affinity"
    sign = -1
