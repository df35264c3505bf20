"""What comes out of judgement: selections, and why the others were not chosen."""

from __future__ import annotations

import msgspec

from scheduler_worker.model.claims import Claim
from scheduler_worker.model.requests import SchedulerLimits


class Selection(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A host that was chosen for an instance, or is offered as an :data:`Alternate`."""

    service_host: str
    nodename: str
    compute_node_uuid: str
    cell_uuid: str | None = None
    limits: SchedulerLimits = SchedulerLimits()
    availability_zone: str | None = None
    allocation_request: str | None = None
    """JSON text, present only where the caller needs a provider for each resource group."""
    allocation_request_version: str | None = None


Alternate = Selection
"""A further host that would do; it is offered, not promised."""


class FilterStep(msgspec.Struct, frozen=True, gc=False):
    """How many hosts went into a filter and how many came out."""

    name: str
    hosts_in: int
    hosts_out: int


class WeightPart(msgspec.Struct, frozen=True, gc=False):
    """One weigher's say about one host: ``product`` = ``multiplier`` * ``normalized``."""

    name: str
    raw: float
    normalized: float
    multiplier: float
    product: float


class HostVerdict(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What became of one host: rejected by a filter with a reason, or weighed."""

    host: str
    nodename: str
    rejected_by: str | None = None
    reason: str | None = None
    weight: float | None = None
    weights: tuple[WeightPart, ...] = ()


class Diagnosis(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why a request got the answer it got."""

    hosts: int = 0
    """Hosts looked at before any filter."""
    filters: tuple[FilterStep, ...] = ()
    verdicts: tuple[HostVerdict, ...] = ()
    chosen: str | None = None


class Decision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The answer to one request: per instance the chosen host, then its alternates."""

    selections: tuple[tuple[Selection, ...], ...]
    claims: tuple[Claim, ...] = ()
    diagnosis: Diagnosis
