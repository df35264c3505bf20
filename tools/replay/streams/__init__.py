"""Streams to replay, whatever they were read from."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

Plain = dict[str, Any]


class Arrival(NamedTuple):
    """One request for one instance.

    ``spec`` is a RequestSpec in plain form; its group has neither members nor hosts yet.
    ``lifetime_s`` None: the instance stays. Times are seconds since the stream's beginning.
    """

    at_s: float
    lifetime_s: float | None
    instance_uuid: str
    spec: Plain


class Stream(NamedTuple):
    """Hosts as they report themselves first, their aggregates, and arrivals in order of time."""

    hosts: Sequence[Plain]
    aggregates: Sequence[Plain]
    arrivals: Iterable[Arrival]
    length: int


def flavor(name: str, vcpus: int, memory_mb: int, **more: Any) -> Plain:
    """A flavor of a trace that names none; at least one vCPU and one MiB."""
    return {
        "name": name,
        "flavorid": name,
        "vcpus": max(1, vcpus),
        "memory_mb": max(1, memory_mb),
        "root_gb": 0,
        "ephemeral_gb": 0,
        "swap": 0,
        "extra_specs": {},
        **more,
    }
