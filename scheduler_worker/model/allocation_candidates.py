"""Placement's allocation candidates: what a host may take from which providers for one request.

They are asked for where the providers of a host's own tree do not suffice: a *sharing provider*
(trait ``MISC_SHARES_VIA_AGGREGATE``), such as a pool of disk, gives to all trees that are in one of
its aggregates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from scheduler_worker.model.providers import Inventory, ProviderUse

SHARES = "MISC_SHARES_VIA_AGGREGATE"
"""The trait of sharing providers."""


class SharingProvider(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A provider that gives to other trees, as it was last read."""

    uuid: str
    name: str
    inventories: Mapping[str, Inventory] = {}
    usages: Mapping[str, int] = {}
    aggregates: frozenset[str] = frozenset()


class ProviderRoom(NamedTuple):
    """How much of a resource class a provider has and gives already."""

    capacity: int
    used: int


class AllocationCandidate(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One way in which Placement would allocate the request on a host."""

    uses: tuple[ProviderUse, ...]
    """By request group and provider; the group of the flavor has no name."""
    unpinned: bool = False
    """Whether it gives shared CPUs for pinned ones, for hosts without an inventory of these."""


class ReservedUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a reservation of some cluster takes of a provider."""

    id: str
    """The reservation's."""
    cluster: str
    use: ProviderUse


class AllocationCandidates(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Placement's answer about one request, and what it does not know yet."""

    by_root: Mapping[str, tuple[AllocationCandidate, ...]] = {}
    """The uuid of a host's compute node -> its candidates, in Placement's order."""
    rooms: Mapping[str, Mapping[str, ProviderRoom]] = {}
    """Provider uuid -> resource class -> its room as of the answer."""
    sharing: tuple[SharingProvider, ...] = ()
    """All sharing providers, for explanations."""
    allocated: frozenset[str] = frozenset()
    """Ids of the reservations whose allocations the rooms are known to include."""
    reserved: tuple[ReservedUse, ...] = ()
    """What was reserved of sharing providers when Placement was asked, and is not known to be
    allocated."""


ASKED = AllocationCandidates()
"""Says that Placement was asked, where the answer itself does not matter."""


class AllocationRequest(msgspec.Struct, frozen=True, gc=False):
    """A candidate as Placement sends it."""

    held: Mapping[str, Mapping[str, int]]
    """Provider uuid -> resource class -> amount, of all groups together."""
    mappings: Mapping[str, tuple[str, ...]]
    """Name of a request group -> the providers that serve it."""


class ProviderSummary(msgspec.Struct, frozen=True, gc=False):
    """A provider in Placement's answer."""

    root: str
    """The uuid of the root of its tree."""
    shares: bool
    rooms: Mapping[str, ProviderRoom]
    """By resource class."""


class CandidatesAnswer(msgspec.Struct, frozen=True, gc=False):
    """Placement's answer to one query."""

    requests: tuple[AllocationRequest, ...] = ()
    summaries: Mapping[str, ProviderSummary] = {}
    """By provider uuid."""
