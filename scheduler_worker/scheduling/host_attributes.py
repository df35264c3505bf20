"""The attributes of a host that extra specs and queries may name, and paths into them.

They are Nova's ``HostState`` attributes, of the same types: extra specs are compared with the text
of a value, queries with the value. :data:`CONSUMED` are attributes that reservations change, which
no derived column may depend on.
"""

import datetime
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from scheduler_worker.model.hosts import HostState

CONSUMED = frozenset(
    {"free_ram_mb", "free_disk_mb", "vcpus_used", "num_instances", "num_io_ops", "instances"}
)
ATTRIBUTES = CONSUMED | {
    *("aggregates", "cell_uuid", "host", "host_ip", "limits", "nodename", "service", "uuid"),
    *("cpu_info", "metrics", "numa_topology", "stats", "supported_instances", "updated"),
    *("hypervisor_hostname", "hypervisor_type", "hypervisor_version"),
    *("total_usable_disk_gb", "total_usable_ram_mb", "vcpus_total"),
    *("cpu_allocation_ratio", "disk_allocation_ratio", "ram_allocation_ratio"),
    *("disk_mb_used", "failed_builds"),
}
_OPAQUE = frozenset({"aggregates", "metrics", "service", "numa_topology", "supported_instances"})
"""Attributes that have a value but no keys that a path could name."""


def _address(host: HostState) -> Any:
    try:
        return ipaddress.ip_address(host.host_ip or "")
    except ValueError:
        return host.host_ip


def _updated(host: HostState) -> datetime.datetime | None:
    if host.updated is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(host.updated, datetime.UTC)
    except (ValueError, OverflowError, OSError):  # a report may contain the year 30,000
        return None


_OF_ANOTHER_TYPE: Mapping[str, Callable[[HostState], Any]] = {
    "aggregates": lambda host: list(host.aggregates),
    "host_ip": _address,
    "metrics": lambda host: list(host.metrics),
    "supported_instances": lambda host: [list(triple) for triple in host.supported_instances],
    "updated": _updated,
}
"""Attributes that have another type here than in Nova."""


def attribute(host: HostState, name: str) -> Any:
    """The value of an attribute; None: there is no attribute of this name."""
    if name in _OF_ANOTHER_TYPE:
        return _OF_ANOTHER_TYPE[name](host)
    return getattr(host, name) if name in ATTRIBUTES else None


def follow(host: HostState, path: Sequence[str]) -> Any:
    """The value at the end of a path of names; None: a step is missing.

    Texts on the way are decoded as JSON. An opaque attribute has no steps below it.
    """
    first, *rest = path
    value = attribute(host, first)
    if value is None:
        value = host.stats.get(first)
    if rest and first in _OPAQUE:
        return None
    for name in rest:
        value = _step(value, name)
    return value


def _step(value: Any, name: str) -> Any:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
    return value.get(name) if isinstance(value, dict) else None
