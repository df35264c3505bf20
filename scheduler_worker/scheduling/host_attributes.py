"""The attributes of a host that extra specs may name, and how a path of names is followed.

They are Nova's ``HostState`` attributes. :data:`CONSUMED` are those that promises change, which no
derived column may depend on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from scheduler_worker.model.hosts import HostState

CONSUMED = frozenset(
    {"free_ram_mb", "free_disk_mb", "vcpus_used", "num_instances", "num_io_ops", "instances"}
)
ATTRIBUTES = CONSUMED | {
    "aggregates",
    "cell_uuid",
    "cpu_allocation_ratio",
    "cpu_info",
    "disk_allocation_ratio",
    "disk_mb_used",
    "failed_builds",
    "host",
    "host_ip",
    "hypervisor_hostname",
    "hypervisor_type",
    "hypervisor_version",
    "limits",
    "metrics",
    "nodename",
    "numa_topology",
    "ram_allocation_ratio",
    "service",
    "stats",
    "supported_instances",
    "total_usable_disk_gb",
    "total_usable_ram_mb",
    "updated",
    "uuid",
    "vcpus_total",
}
_OPAQUE = frozenset({"aggregates", "metrics", "service", "numa_topology", "supported_instances"})
"""Attributes that have a value but nothing inside that a path could name."""


def attribute(host: HostState, name: str) -> Any:
    """An attribute, else the statistic of that name, else None."""
    value = getattr(host, name) if name in ATTRIBUTES else None
    return host.stats.get(name) if value is None else value


def follow(host: HostState, path: Sequence[str]) -> Any:
    """The value at the end of a path of names; None when a step is missing.

    Texts on the way are read as JSON. An opaque attribute has no steps below it.
    """
    first, *rest = path
    value = attribute(host, first)
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
