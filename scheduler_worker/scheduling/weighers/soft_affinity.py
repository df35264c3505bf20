"""Weighers for server groups with the policy soft-affinity or soft-anti-affinity."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scheduler_worker.model.hosts import Hosts, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Weigher


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
