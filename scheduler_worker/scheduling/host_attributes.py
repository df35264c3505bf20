"""The attributes of a host that extra specs and queries may name, and paths into them.

They are Nova's ``HostState`` attributes, of the same types: extra specs are compared with the text
of a value, queries with the value. :data:`CONSUMED` are attributes that reservations change, which
no derived column may depend on.
"""

import datetime
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from scheduler_worker.model.host_records import FIELD_OF
from scheduler_worker.model.hosts import HostState

CONSUMED = frozenset(
    {"free_ram_mb", "free_disk_mb", "vcpus_used", "num_instances", "num_io_ops", "instances"}
)
ATTRIBUTES = CONSUMED | FIELD_OF.keys() | {"aggregates", "limits", "disk_mb_used", "failed_builds"}
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


def top(host: HostState, name: str) -> Any:
    """The value of an attribute, else of a statistic of this name; None: there is neither."""
    value = attribute(host, name)
    return host.stats.get(name) if value is None else value


def below(value: Any, path: Sequence[str]) -> Any:
    """The value at the end of a path whose first name has ``value``; None: a step is missing.

    Texts on the way are decoded as JSON. An opaque attribute has no steps below it.
    """
    first, *rest = path
    if rest and first in _OPAQUE:
        return None
    for name in rest:
        value = _decoded(value) if isinstance(value, str) else value
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def follow(host: HostState, path: Sequence[str]) -> Any:
    """The value at the end of a path of names."""
    return below(top(host, path[0]), path)


@lru_cache(maxsize=1024)
def _decoded(text: str) -> Any:
    """The value of a JSON text, which many hosts share; None: it is no JSON. Not to be changed."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
