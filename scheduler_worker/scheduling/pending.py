"""When a promise has become use that its host reports.

A promise may only go when the host's reported *use* includes its instance: an announcement alone
frees nothing, or the instance would be counted nowhere for a while and its room be given twice.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.host_records import USE_FIELDS


def is_absorbed(
    promise: Reservation,
    said: dict[str, Any],
    listed: Container[str] | None,
    updated_at_s: float | None,
) -> bool:
    """Whether a report of the promise's host accounts for the promised instance.

    ``said`` are the fields of the report, ``listed`` the instances it names (None: it names none),
    ``updated_at_s`` when the host made it, if it says so.
    """
    if not USE_FIELDS & said.keys():
        return False
    if listed is not None:
        return promise.instance_uuid in listed
    announced = promise.announced_at_s
    return announced is not None and (updated_at_s is None or updated_at_s >= announced)


def absorbed(
    promises: Iterable[Reservation],
    said: dict[str, Any],
    listed: Container[str] | None,
    updated_at_s: float | None,
) -> list[Reservation]:
    """The promises that a report of their host accounts for."""
    return [each for each in promises if is_absorbed(each, said, listed, updated_at_s)]
