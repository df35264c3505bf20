"""Host aggregates: named sets of hosts with metadata (Nova's word).

An availability zone is no type of its own: it is the metadata key ``availability_zone``.
"""

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

DEFAULT_AVAILABILITY_ZONE, DEFAULT_CLUSTER = "nova", "default"
"""The zone, and the cluster, of hosts that name none; options may say otherwise."""

Number = TypeVar("Number", int, float)

AVAILABILITY_ZONE = "availability_zone"


class Aggregate(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One aggregate; ``hosts`` are host *names*, so all nodes of a host are in it."""

    id: int
    uuid: str = ""
    name: str = ""
    hosts: tuple[str, ...] = ()
    metadata: dict[str, str] = {}


def raw_values(aggregates: Iterable[Aggregate], key: str) -> set[str]:
    """The values of ``key`` in all aggregates, not split."""
    return {aggregate.metadata[key] for aggregate in aggregates if key in aggregate.metadata}


def split_values(text: str) -> set[str]:
    """The items of a comma-separated list, blanks stripped."""
    return {item.strip() for item in text.split(",")}


def listed_values(aggregates: Iterable[Aggregate], key: str) -> set[str]:
    """The items of the comma-separated values of ``key`` in all aggregates."""
    return {item for text in raw_values(aggregates, key) for item in split_values(text)}


def lowest(values: Iterable[str], default: Number, cast: Callable[[str], Number]) -> Number:
    """The smallest of the values; ``default`` for none, or when one is no finite number."""
    try:
        numbers = [cast(value) for value in values]
        return min(numbers, default=default) if all(map(math.isfinite, numbers)) else default
    except (ValueError, OverflowError):
        return default


def zones(aggregates: Iterable[Aggregate]) -> set[str]:
    """The availability zones of the aggregates."""
    return listed_values(aggregates, AVAILABILITY_ZONE)


def by_host(aggregates: Iterable[Aggregate]) -> dict[str, tuple[Aggregate, ...]]:
    """The aggregates of each host name, in order of their ids."""
    of_host: dict[str, list[Aggregate]] = {}
    for aggregate in sorted(aggregates, key=lambda aggregate: aggregate.id):
        for host in aggregate.hosts:
            of_host.setdefault(host, []).append(aggregate)
    return {host: tuple(members) for host, members in of_host.items()}
