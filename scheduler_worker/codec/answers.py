"""Encodes selections, diagnoses, hosts and reservations as plain JSON."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from scheduler_worker.codec import kinds
from scheduler_worker.codec.primitives import plain, wrapped
from scheduler_worker.codec.typed import typed
from scheduler_worker.errors import RequestError
from scheduler_worker.model.decisions import Diagnosis, Selection
from scheduler_worker.model.requests import SchedulerLimits

Plain = dict[str, Any]
Selections = Sequence[Sequence[Selection]]
"""For each instance the chosen host, then its alternates."""
_ALLOCATION_VERSION = "1.36"
"""The microversion of Placement that defines the form of an ``allocation_request``."""


def encode_selection(selection: Selection) -> Plain:
    """A ``Selection`` primitive with its limits; shared, so callers must not change it."""
    if selection.limits.numa_topology is None and selection.allocation is None:
        return _encoded_once(selection)
    return _encoded(selection)


def _encoded(selection: Selection) -> Plain:
    plain_selection = msgspec.to_builtins(selection)
    allocation = plain_selection.pop("allocation")
    plain_selection["allocation_request"] = json.dumps(allocation)
    plain_selection["allocation_request_version"] = allocation and _ALLOCATION_VERSION
    primitive: Plain = wrapped(plain_selection, kinds.SELECTION)
    return primitive


_encoded_once = lru_cache(maxsize=4096)(_encoded)
"""The same hosts are returned again and again. Limits of NUMA cells are not hashable."""


def encode_selections(selections: Selections) -> list[list[Plain]]:
    """The answer to callers that asked for objects."""
    return [[encode_selection(host) for host in hosts] for hosts in selections]


def encode_destinations(selections: Selections) -> list[Plain]:
    """The answer to older callers: for each instance a dict of its host, without alternates."""
    return [
        {
            "host": chosen.service_host,
            "nodename": chosen.nodename,
            "limits": _set_limits(chosen.limits),
        }
        for chosen, *_ in selections
    ]


def _set_limits(limits: SchedulerLimits) -> Plain:
    fields = msgspec.to_builtins(limits)
    fields["numa_topology"] = wrapped(fields["numa_topology"], kinds.NUMA_LIMITS)
    return {name: limit for name, limit in fields.items() if limit is not None}


def decode_selection(value: Any, path: str = "selection") -> Selection:
    """Decode a ``Selection`` primitive of any 1.x version. Raises RequestError."""
    fields = dict(plain(value, path, kinds.SELECTION))
    fields.pop("allocation_request_version", None)
    text = fields.pop("allocation_request", None)
    if text is not None:
        try:
            fields["allocation"] = msgspec.json.decode(text)
        except (msgspec.DecodeError, TypeError) as error:
            raise RequestError(f"{path}.allocation_request", f"is no JSON: {error}") from None
    return typed(fields, Selection, path)


def encode_diagnosis(diagnosis: Diagnosis) -> Plain:
    """All fields of a diagnosis; weights that are not finite become null."""
    return msgspec.json.decode(msgspec.json.encode(diagnosis), type=Plain)
