"""Filters for server groups with the policy affinity or anti-affinity."""

from __future__ import annotations

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.wording import listed


class ServerGroupAntiAffinityFilter(Filter):
    """Passes hosts with fewer members of the group than its rule allows (one, by default).

    Reads: the host's instances; the group's policy, members and rule ``max_server_per_host``.
    Example: ``openstack server group create --policy anti-affinity --rule max_server_per_host=2
    NAME``, then ``--hint group=UUID``.
    """

    of_one_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return spec.instance_group is not None and spec.instance_group.policy == "anti-affinity"

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        group = spec.instance_group
        if group is None or group.policy != "anti-affinity":
            return np.ones(len(hosts), bool)
        few: Mask = hosts.count_instances(group.members) < group.max_server_per_host
        if spec.instance_uuid is not None:
            # An instance may stay on its own host, for a resize there.
            few |= hosts.count_instances([spec.instance_uuid]) > 0
        return few

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        group = spec.instance_group
        if group is None:
            return super().reason(host_state, spec)
        members = len(set(group.members) & host_state.instances.keys())
        return f"has {members} members of the group, {group.max_server_per_host} are allowed"


class ServerGroupAffinityFilter(Filter):
    """Passes hosts with members of the group; every host while the group is on none.

    Reads: the host's name; the group's policy and hosts.
    Example: ``openstack server group create --policy affinity NAME``, then ``--hint group=UUID``.
    """

    of_one_request = True

    def applies(self, spec: RequestSpec) -> bool:
        group = spec.instance_group
        return group is not None and group.policy == "affinity" and bool(group.hosts)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        group = spec.instance_group
        if group is None or group.policy != "affinity" or not group.hosts:
            return np.ones(len(hosts), bool)
        return hosts.rows_of(group.hosts)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        group = spec.instance_group
        return f"is none of the group's hosts: {listed(group.hosts)}" if group else ""
