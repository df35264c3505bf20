"""Resource providers: what a host has beside vCPUs, memory and disk, and below which of its parts.

The words are Placement's. A host is a tree: its root is the compute node itself, under it are NUMA
nodes, devices, ports with bandwidth, whatever has inventories of its own. A host that reports no
providers is a tree of one, without inventories.

Hosts of a kind have equal trees but for the uuids; so these are kept apart (:class:`ProviderTree`),
and what was found for one tree holds for all that have the same providers. Taking is exact: giving
the same back leaves the very same tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from scheduler_worker.model.requests import MAX_SIZE, Size

ROOT = 0
"""The index of the compute node in its tree."""

Amount = Annotated[int, Meta(ge=1, le=MAX_SIZE)]
ResourceClass = Annotated[str, Meta(pattern=r"^[A-Z0-9_]{1,255}\Z")]
Traits = frozenset[str]
Uuid = Annotated[str, Meta(min_length=1, max_length=255)]


class Inventory(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, cache_hash=True
):
    """How much of one resource class a provider has, in units of the class."""

    total: Size
    reserved: Size = 0
    allocation_ratio: Annotated[float, Meta(ge=0.0, le=100_000.0)] = 1.0
    min_unit: Amount = 1
    max_unit: Amount = MAX_SIZE
    step_size: Amount = 1

    @property
    def capacity(self) -> int:
        """How much may be promised altogether."""
        return math.floor((self.total - self.reserved) * self.allocation_ratio)

    def allows(self, amount: int) -> bool:
        """Whether one request may take this much, were nothing used."""
        fits = self.min_unit <= amount <= min(self.max_unit, self.capacity)
        return fits and amount % self.step_size == 0


class ResourceProvider(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One provider as a host reports it; the one with the host's own uuid speaks of the root."""

    uuid: Uuid
    name: str | None = None
    parent_provider_uuid: Uuid | None = None
    """None: it is right below the root."""
    inventories: dict[ResourceClass, Inventory] = {}
    usages: dict[ResourceClass, Size] = {}
    traits: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    """Uuids of aggregates that it is in, beside those of its host."""


class Provider(msgspec.Struct, frozen=True, gc=False, kw_only=True, cache_hash=True):
    """A provider without its name: its place in the tree, and what it has."""

    parent: int = ROOT
    """The index of its parent; the root is its own."""
    inventories: tuple[tuple[str, Inventory], ...] = ()
    used: tuple[int, ...] = ()
    """What is used of each inventory."""
    traits: Traits = frozenset()
    aggregates: frozenset[str] = frozenset()

    def has(self, resource_class: str, amount: int) -> bool:
        """Whether this much of a class can be taken from it now."""
        for (name, inventory), used in zip(self.inventories, self.used, strict=True):
            if name == resource_class:
                return inventory.allows(amount) and used + amount <= inventory.capacity
        return False

    def taken(self, resources: Mapping[str, int], times: int = 1) -> Provider:
        """The provider after so much was taken; ``times`` -1: given back.

        A class that is not there is passed over.
        """
        used = tuple(
            amount + times * resources.get(name, 0)
            for (name, _), amount in zip(self.inventories, self.used, strict=True)
        )
        return msgspec.structs.replace(self, used=used)


Providers = tuple[Provider, ...]
"""A tree without uuids, the root first."""


class ProviderUse(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What an instance takes from one provider, for one of its request groups."""

    provider: str
    """The provider's uuid."""
    resources: dict[str, int] = {}
    group: str = ""
    """Who asked: the suffix of an extra spec, or a ``requester_id``; empty: the flavor."""


class ProviderTree(msgspec.Struct, frozen=True, gc=False):
    """The providers of one host; ``uuids`` name them in the same order."""

    uuids: tuple[str, ...]
    providers: Providers

    def taken(self, uses: Iterable[ProviderUse], times: int = 1) -> ProviderTree:
        """The tree after the uses; with ``times`` -1 as if they had never been.

        A use of a provider that is not there is passed over.
        """
        providers = list(self.providers)
        for use in uses:
            if use.provider in self.uuids:
                at = self.uuids.index(use.provider)
                providers[at] = providers[at].taken(use.resources, times)
        return ProviderTree(self.uuids, _shared(tuple(providers)))


def read_providers(
    host_uuid: str, traits: Iterable[str], reported: Iterable[ResourceProvider] = ()
) -> ProviderTree:
    """The tree of a host with these traits; a parent that was not reported stands for the root."""
    said = {each.uuid: each for each in reported}
    root = said.pop(host_uuid, ResourceProvider(uuid=host_uuid))
    uuids = (host_uuid, *said)
    places = {uuid: place for place, uuid in enumerate(uuids)}
    providers = [_provider(root, ROOT, frozenset(traits))]
    for each in said.values():
        parent = places.get(each.parent_provider_uuid or host_uuid, ROOT)
        providers.append(_provider(each, parent, frozenset()))
    return ProviderTree(uuids, _shared(tuple(providers)))


def _provider(said: ResourceProvider, parent: int, traits: Traits) -> Provider:
    inventories = tuple(sorted(said.inventories.items(), key=lambda item: item[0]))
    return Provider(
        parent=parent,
        inventories=inventories,
        used=tuple(said.usages.get(name, 0) for name, _ in inventories),
        traits=traits.union(said.traits),
        aggregates=frozenset(said.aggregates),
    )


@lru_cache(maxsize=16_384)
def _shared(providers: Providers) -> Providers:
    """Hosts of a kind share one tree, which saves memory and is quick to recognise."""
    return providers
