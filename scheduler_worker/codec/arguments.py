"""Decodes small arguments: names, ids, limits. Every function raises RequestError."""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from scheduler_worker.codec.primitives import plain
from scheduler_worker.codec.typed import quoted, typed, wrong
from scheduler_worker.errors import RequestError
from scheduler_worker.model.requests import MAX_INSTANCES
from scheduler_worker.scheduling.queue_priority import MAX_PRIORITY

T = TypeVar("T")

MAX_NAMES = 100_000
"""The longest list of names."""
MAX_PATIENCE_S = 86_400.0

_Name = Annotated[str, Meta(min_length=1, max_length=255)]
_Names = Annotated[tuple[_Name, ...], Meta(max_length=MAX_NAMES)]
_Priority = Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
_Patience = Annotated[float, Meta(gt=0.0, le=MAX_PATIENCE_S)]


class _HostName(msgspec.Struct, frozen=True):
    host: _Name
    nodename: _Name | None = None


def decode_as(kind: type[T], value: Any, path: str) -> T:
    """Decode a plain value as a struct of the caller's choice."""
    return typed(plain(value, path), kind, path)


def decode_name(value: Any, path: str) -> str:
    """A name or id: text of 1 to 255 characters."""
    name: str = typed(value, _Name, path)
    return name


def decode_names(value: Any, path: str) -> tuple[str, ...]:
    """A list of names; null is an empty one."""
    names: tuple[str, ...] = typed(() if value is None else value, _Names, path)
    return names


def decode_remaining(value: Any, path: str = "deadline_s") -> float | None:
    """Seconds that the caller waits, more than 0 and at most a day; None: without a deadline."""
    if value is None:
        return None
    seconds: float = typed(value, _Patience, path)
    return seconds


def decode_priority(value: Any, path: str = "priority") -> int:
    """The priority of a request, from -100 to 100; 0 by default."""
    priority: int = typed(0 if value is None else value, _Priority, path)
    return priority


def decode_instance_uuids(value: Any, path: str = "instance_uuids") -> tuple[str, ...] | None:
    """The instances of a request, without repetition; None where the caller named none."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)) and len(value) > MAX_INSTANCES:
        raise RequestError(path, f"at most {MAX_INSTANCES} instances, got {len(value)}")
    if not isinstance(value, (list, tuple)):
        raise wrong(path, "a list of uuids", value)
    uuids = decode_names(value, path)
    if len(set(uuids)) < len(uuids):
        twice = next(uuid for number, uuid in enumerate(uuids) if uuid in uuids[:number])
        raise RequestError(path, f"{quoted(twice)} is listed twice")
    return uuids


def decode_host_names(value: Any, path: str = "hosts") -> list[tuple[str, str | None]]:
    """``{host, nodename}`` dicts as pairs; without a node name for all nodes of the host."""
    return [(host.host, host.nodename) for host in decode_as(list[_HostName], value, path)]
