"""Filters and weights for affinity groups: of VMs with VMs, and of VMs with hosts.

A server group of Nova is one more group of VMs: enforcing under ``affinity`` and
``anti-affinity``, else not.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.virt import AffinityGroup, Rule
from scheduler_worker.scheduling.plugin import Filter, Weigher
from scheduler_worker.wording import listed

_RULES: Mapping[str | None, tuple[Rule, bool]] = {
    "affinity": ("positive", True),
    "anti-affinity": ("negative", True),
    "soft-affinity": ("positive", False),
    "soft-anti-affinity": ("negative", False),
}


def vm_groups(spec: RequestSpec) -> tuple[AffinityGroup, ...]:
    """The groups that tie the VM to other VMs, or keep it apart from them."""
    groups = [group for group in spec.machine.affinity_groups if group.vms_rule != "disabled"]
    server = spec.instance_group
    if server is not None and server.policy in _RULES:
        rule, enforcing = _RULES[server.policy]
        group = AffinityGroup(
            name=server.name or server.uuid or "server group",
            vms_rule=rule,
            vms_enforcing=enforcing,
            vms=server.members,
            hosts=server.hosts,
        )
        groups.append(group)
    return tuple(groups)


def _members(hosts: Hosts, spec: RequestSpec, group: AffinityGroup) -> Values:
    """How many other members are on each host or have a reservation there."""
    members = [vm for vm in group.vms if vm != spec.instance_uuid]
    counts = hosts.count_instances(members)
    if group.hosts and group.hosts_rule == "disabled":
        # Of a server group the caller names hosts too, perhaps before they report its members.
        counts = np.maximum(counts, hosts.rows_of(group.hosts))
    return counts


def _breaks(hosts: Hosts, spec: RequestSpec, group: AffinityGroup) -> Mask:
    counts, server_group = _members(hosts, spec, group), spec.instance_group
    if group.vms_rule == "negative":
        most = 1
        if server_group is not None and group.vms == server_group.members:
            most = server_group.max_server_per_host
        apart: Mask = counts >= most
        return apart
    missing: Mask = (counts == 0) & bool(counts.any())
    return missing


def _breaks_hosts(hosts: Hosts, group: AffinityGroup) -> Mask:
    named = hosts.rows_of(group.hosts)
    return ~named if group.hosts_rule == "positive" else named


class VmAffinityFilter(Filter):
    """Passes hosts on which the VM breaks no enforcing group of VMs.

    Of a positive group a member must be there, if any runs; of a negative one none may be.

    Reads: the VMs on hosts, pending ones too; ``vm.affinity_groups``, the server group.
    Example: two VMs of a negative group never share a host.
    """

    unit_id = "84e6ddee-ab0d-42dd-82f0-c297779db566"
    of_one_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return any(group.vms_enforcing for group in vm_groups(spec))

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        groups = [group for group in vm_groups(spec) if group.vms_enforcing]
        broken: Mask = np.any([_breaks(hosts, spec, group) for group in groups], axis=0)
        return ~broken

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        there = host_state.instances.keys()
        for group in vm_groups(spec):
            members = sorted(there & (set(group.vms) - {spec.instance_uuid or ""}))
            if group.vms_enforcing and (group.vms_rule == "negative") == bool(members):
                which = listed(members) or "no VM"
                return f"has {which} of the {group.vms_rule} group {group.name or '(unnamed)'}"
        return super().reason(host_state, spec)


class VmToHostsFilter(Filter):
    """Passes hosts that are in all enforcing positive sets of hosts, and in no negative one.

    Reads: the host's name; ``vm.affinity_groups``.
    Example: VMs with a licence run on the licensed hosts only.
    """

    unit_id = "e69808a9-8a41-40f1-94ba-dd5d385d82d8"
    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        return any(_host_groups(spec, enforcing=True))

    def reads(self, spec: RequestSpec) -> Any:
        return tuple(_host_groups(spec, enforcing=True))

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        groups = _host_groups(spec, enforcing=True)
        broken: Mask = np.any([_breaks_hosts(hosts, group) for group in groups], axis=0)
        return ~broken

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        for group in _host_groups(spec, enforcing=True):
            if (host_state.host in group.hosts) != (group.hosts_rule == "positive"):
                name = group.name or "(unnamed)"
                return f"breaks the {group.hosts_rule} rule for hosts of the group {name}"
        return super().reason(host_state, spec)


def _host_groups(spec: RequestSpec, *, enforcing: bool) -> Iterator[AffinityGroup]:
    for group in spec.machine.affinity_groups:
        if group.hosts_rule != "disabled" and group.hosts_enforcing is enforcing:
            yield group


def _broken_keys(groups: Iterable[tuple[AffinityGroup, Mask]], count: int) -> list[Any]:
    """For each host the priorities of the groups that it breaks, the largest first.

    Compared like words in a dictionary: the host that breaks the more important group is worse.
    """
    broken: list[list[float]] = [[] for _ in range(count)]
    for group, mask in sorted(groups, key=lambda pair: -pair[0].priority):
        for row in np.flatnonzero(mask):
            broken[row].append(group.priority)
    return [tuple(priorities) for priorities in broken]


def _better_ranks(keys: list[Any]) -> Values:
    """For each key 1 and how many keys are smaller."""
    # The last entry of a key counts, so that equal keys share the first place.
    first = {key: place for place, key in reversed(list(enumerate(sorted(keys), 1)))}
    return np.fromiter((first[key] for key in keys), "f8", len(keys))


class VmAffinityWeight(Weigher):
    """Prefers hosts that break no group of VMs, or less important ones; enforcing or not.

    Of equal hosts the one with more members of positive groups that cannot migrate is better, then
    the one with more members.

    Reads: the VMs on hosts, pending ones too; ``vm.affinity_groups``, the server group.
    Example: VMs of a positive group that is not enforcing gather while there is room.
    """

    unit_id = "84e6ddee-ab0d-42dd-82f0-c297779db567"
    lower_is_better = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(vm_groups(spec))

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        groups = vm_groups(spec)
        breaks = ((group, _breaks(hosts, spec, group)) for group in groups)
        broken = _broken_keys(breaks, len(hosts))
        bound, members = np.zeros(len(hosts)), np.zeros(len(hosts))
        for group in groups:
            if group.vms_rule == "positive":
                members += _members(hosts, spec, group)
                bound += hosts.count_instances(group.non_migratable_vms)
        return _better_ranks(list(zip(broken, -bound, -members, strict=True)))


class VmToHostsWeight(Weigher):
    """Prefers hosts that break no group's rule for hosts, or rules of less important groups.

    Enforcing groups are for the filter.

    Reads: the host's name; ``vm.affinity_groups``.
    Example: VMs prefer hosts with fast disks where that rule is not enforcing.
    """

    unit_id = "427aed70-dae3-48ba-8fe9-a902a9d563c8"
    lower_is_better = True

    def applies(self, spec: RequestSpec) -> bool:
        return any(_host_groups(spec, enforcing=False))

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        groups = _host_groups(spec, enforcing=False)
        broken = ((group, _breaks_hosts(hosts, group)) for group in groups)
        return _better_ranks(_broken_keys(broken, len(hosts)))
