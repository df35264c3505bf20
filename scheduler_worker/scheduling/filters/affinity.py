"""Filters for scheduler hints that ask for hosts near to, or away from, instances or an address."""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable

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
        raise RequestError(
            f"spec_obj.scheduler_hints.{NEAR}", f"{text[:80]!r} is not a network"
        ) from None


def _address(host: HostState) -> int:
    """The host's address as a number; -1, which is in no network, where it reports none."""
    try:
        return _number(ipaddress.ip_address(host.host_ip or ""))
    except ValueError:
        return -1


def _number(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    """Unique over both families: IPv6 addresses have one more bit."""
    return int(address) | (address.version == 6) << 128
