"""Answers: selections in Nova's forms and in ours, and what operators ask to see.

All that comes out of here is plain JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.decisions import Diagnosis, Selection
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.requests import SchedulerLimits
from scheduler_worker.rpc.codec import kinds
from scheduler_worker.rpc.codec.primitives import plain, wrapped
from scheduler_worker.rpc.codec.typed import typed

Plain = dict[str, Any]
Selections = Sequence[Sequence[Selection]]
"""For each instance the chosen host, then its alternates."""


def encode_selection(selection: Selection) -> Plain:
    """A ``Selection`` primitive, with its limits; not to be changed."""
    if selection.limits.numa_topology is None:
        return _encoded_once(selection)
    return _encoded(selection)


def _encoded(selection: Selection) -> Plain:
    found: Plain = wrapped(msgspec.to_builtins(selection), kinds.SELECTION)
    return found


_encoded_once = lru_cache(maxsize=4096)(_encoded)
"""The same hosts are told again and again. Limits of NUMA cells are no key of a cache."""


def encode_selections(selections: Selections) -> list[list[Plain]]:
    """What callers get that asked for objects."""
    return [[encode_selection(each) for each in some] for some in selections]


def encode_destinations(selections: Selections) -> list[Plain]:
    """What older callers get: for each instance a dict of the chosen host, without alternates."""
    return [
        {
            "host": some[0].service_host,
            "nodename": some[0].nodename,
            "limits": _set_limits(some[0].limits),
        }
        for some in selections
    ]


def _set_limits(limits: SchedulerLimits) -> Plain:
    found = msgspec.to_builtins(limits)
    found["numa_topology"] = wrapped(found["numa_topology"], kinds.NUMA_LIMITS)
    return {name: limit for name, limit in found.items() if limit is not None}


def decode_selection(value: Any, path: str = "selection") -> Selection:
    """A ``Selection`` primitive of any 1.x version. Raises RequestError."""
    return typed(plain(value, path, kinds.SELECTION), Selection, path)


def encode_diagnosis(diagnosis: Diagnosis) -> Plain:
    """The diagnosis field by field; weights that are no finite numbers become null."""
    found: Plain = _as_json(diagnosis)
    return found


def encode_reservation(reservation: Reservation) -> Plain:
    """All fields of a promise, and its ``id``."""
    return {"id": reservation.id, **_all_fields(reservation)}


def encode_host(record: HostRecord, **figures: Any) -> Plain:
    """All fields of a host's record, and the figures that the caller adds (free amounts, state)."""
    return {**_all_fields(record), **figures}


def _all_fields(word: msgspec.Struct) -> Plain:
    """Defaults included, which storage leaves out."""
    found: Plain = _as_json(msgspec.structs.asdict(word))
    return found


def _as_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
