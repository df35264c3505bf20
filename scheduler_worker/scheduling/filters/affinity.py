"""Filters for hosts near to, or away from, instances or an address."""

import ipaddress
from collections.abc import Hashable

import numpy as np

from scheduler_worker.errors import RequestError
from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.wording import listed

DIFFERENT_HOST = "different_host"
SAME_HOST = "same_host"
NEAR = "build_near_host_ip"
CIDR = "cidr"
DEFAULT_CIDR = "/24"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class DifferentHostFilter(Filter):
    """Passes hosts with none of the instances that the hint ``different_host`` names.

    Reads: the host's instances; the hint ``different_host``.
    Example: ``openstack server create --hint different_host=UUID ...``
    """

    run_filter_once_per_request = True
    of_one_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(_instances(spec, DIFFERENT_HOST))

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        without: Mask = hosts.count_instances(_instances(spec, DIFFERENT_HOST)) == 0
        return without

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        there = sorted(host_state.instances.keys() & set(_instances(spec, DIFFERENT_HOST)))
        return f"has {listed(there)}"


class SameHostFilter(Filter):
    """Passes hosts with at least one of the instances that the hint ``same_host`` names.

    Reads: the host's instances; the hint ``same_host``.
    Example: ``openstack server create --hint same_host=UUID ...``
    """

    run_filter_once_per_request = True
    of_one_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(_instances(spec, SAME_HOST))

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        named = _instances(spec, SAME_HOST)
        with_one: Mask = hosts.count_instances(named) >= min(1, len(named))
        return with_one

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return f"has none of {listed(_instances(spec, SAME_HOST))}"


def _instances(spec: RequestSpec, name: str) -> tuple[str, ...]:
    """The instances that a hint names; a single empty text names none."""
    named = spec.hint(name)
    if isinstance(named, str):
        return (named,) if named else ()
    return tuple(named or ())


class SimpleCIDRAffinityFilter(Filter):
    """Passes hosts whose address is in the network of the hint ``build_near_host_ip``, with the
    prefix length of the hint ``cidr`` (default ``/24``).

    Reads: ``host_ip``; the hints ``build_near_host_ip`` and ``cidr``.
    Example: ``openstack server create --hint build_near_host_ip=192.0.2.10 --hint cidr=/28 ...``
    """

    run_filter_once_per_request = True
    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        return _network(spec) is not None

    def reads(self, spec: RequestSpec) -> Hashable:
        return _network(spec)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        network = _network(spec)
        if network is None:
            return super().passes(hosts, spec)
        bits = network.max_prefixlen - network.prefixlen
        addresses = hosts.derived("host address", _address, "O")
        near: Mask = (addresses >> bits == _number(network.network_address) >> bits).astype(bool)
        return near

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        network = _network(spec_obj)
        if network is None:
            return True
        bits = network.max_prefixlen - network.prefixlen
        return _address(host_state) >> bits == _number(network.network_address) >> bits

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return f"its address {host_state.host_ip} is not in {_network(spec)}"


def _network(spec: RequestSpec) -> Network | None:
    near, size = spec.hint(NEAR), spec.hint(CIDR)
    if not near:
        return None
    text = f"{near}{DEFAULT_CIDR if size is None else size}"
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        problem = f"{text[:80]!r} is not a network"
        raise RequestError(f"spec_obj.scheduler_hints.{NEAR}", problem) from None


def _address(host: HostState) -> int:
    """The host's address as a number; -1, which is in no network, where it reports none."""
    try:
        return _number(ipaddress.ip_address(host.host_ip or ""))
    except ValueError:
        return -1


def _number(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    """Unique over both families: IPv6 addresses have one more bit."""
    return int(address) | (address.version == 6) << 128


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


class TypeAffinityFilter(Filter):
    """Passes hosts whose instances all have the requested flavor, and empty hosts.

    An instance whose flavor the host has not reported yet counts as one of another flavor.

    Reads: the flavors of the host's instances; the flavor's id.
    Example: hosts that run one flavor only, that of their first instance.
    """

    looks_at_rows = True
    # It does not declare what it reads: a reservation changes the answer for all nodes of its host
    # name, while the evaluation cache updates only the node that it is on.

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        flavor_id = spec_obj.flavor.id
        return all(
            flavor_id is not None and facts.get("instance_type_id") == flavor_id
            for facts in host_state.instances.values()
        )

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return "has instances of other flavors"
