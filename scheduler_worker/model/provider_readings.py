"""What a service of resource providers tells of them: which there are, what they have, who uses it.

A *generation* rises with every change of what a provider has, and with every allocation, but not
when an allocation is deleted: so it says when to read inventories again, not when to read use; and
which of two readings of the use knows more allocations.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from scheduler_worker.model.providers import Inventory


class Listed(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A provider in the list of all."""

    uuid: str
    name: str
    generation: int
    root_provider_uuid: str
    parent_provider_uuid: str | None = None


class ProviderFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a provider has, as of a generation; None: read in bulk, and not exact."""

    generation: int | None
    inventories: dict[str, Inventory]
    traits: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()


class ProviderTraits(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The traits and aggregates of a provider, each sorted."""

    traits: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()


class ProviderSum(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Capacity and use of a provider, as they come for all providers at once."""

    root: str
    """The uuid of the root of its tree."""
    capacity: dict[str, int]
    used: dict[str, int]
    traits: tuple[str, ...] = ()


class Use(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Who takes what of a provider, with all that was allocated up to a generation."""

    generation: int
    taken: Mapping[str, Mapping[str, int]]
    """Consumer -> amounts, by resource class."""
