"""Resource providers: the inventories of a host beside vCPUs, memory and disk, as a tree.

The terms are Placement's. The root of a host's tree is the compute node. Below it are NUMA nodes,
devices, ports with bandwidth, whatever has inventories of its own. A host that reports no providers
is a tree of one, without inventories. How much flavors took of a root differs from host to host. So
that is not kept in the tree but in columns, see :mod:`~scheduler_worker.model.inventories`.

Hosts of one kind have equal trees but for the uuids; so these are kept apart
(:class:`ProviderTree`), and a match that was found for one tree holds for all hosts with the same
providers. Taking is exact: giving the same back leaves the very same tree.

A *generation* of a provider rises with every change of its inventories and with every allocation.
It does not rise when an allocation is deleted. So it says when to read inventories again, and not
when to read use. Of two readings of the use, the higher one knows more allocations. Consumers
(instances, migrations) have one too: a consumer's allocation is written as a whole, by whoever
names its present generation; None says that there is none. Every write raises it by one, and one
that holds nothing is gone.

If the providers of a host's own tree do not suffice, Placement is asked for *allocation
candidates*: what a host may take from which providers for one request. A *sharing provider* (trait
``MISC_SHARES_VIA_AGGREGATE``), such as a pool of disk, gives to all trees that are in one of its
aggregates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, structs

from scheduler_worker.model.sizes import MAX_SIZE, Name, Size

ROOT = 0
"""The index of the compute node in its tree."""

Amount = Annotated[int, Meta(ge=1, le=MAX_SIZE)]
ResourceClass = Annotated[str, Meta(pattern=r"^[A-Z0-9_]{1,255}\Z")]
FLAVOR_CLASSES = ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB")
"""What flavors take of the root: shared and dedicated CPUs, MiB of memory, GiB of disk."""
MAX_RATIO = 100_000.0
MAX_CONSUMERS = 10_000
"""Instances and migrations that take of one provider."""
Traits = frozenset[str]
Uuid = Name


class Inventory(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, cache_hash=True
):
    """How much of one resource class a provider has, in units of the class."""

    total: Size
    reserved: Size = 0
    allocation_ratio: Annotated[float, Meta(ge=0.0, le=MAX_RATIO)] = 1.0
    min_unit: Amount = 1
    max_unit: Amount = MAX_SIZE
    step_size: Amount = 1

    @property
    def capacity(self) -> int:
        """How much may be reserved in all."""
        return math.floor((self.total - self.reserved) * self.allocation_ratio)

    def allows(self, amount: int) -> bool:
        """Whether one request may take this much, were nothing used."""
        fits = self.min_unit <= amount <= min(self.max_unit, self.capacity)
        return fits and amount % self.step_size == 0


def is_capacity(inventories: Mapping[str, Inventory]) -> bool:
    """Whether the inventories of a root decide about vCPUs, memory and disk.

    Devices and the like are reported beside the host's own figures of these.
    """
    return "VCPU" in inventories or "MEMORY_MB" in inventories or "DISK_GB" in inventories


class ResourceProvider(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One provider as a host reports it; the one with the host's own uuid describes the root."""

    uuid: Uuid
    name: str | None = None
    parent_provider_uuid: Uuid | None = None
    """None: it is a child of the root."""
    inventories: dict[ResourceClass, Inventory] = {}
    usages: dict[ResourceClass, Size] = {}
    traits: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    """Uuids of the aggregates it is in; the root is in its host's aggregates, too."""
    consumers: Annotated[tuple[Uuid, ...], Meta(max_length=MAX_CONSUMERS)] | None = None
    """The instances and migrations whose amounts make up ``usages``; None: not known."""
    read_at_s: Annotated[float, Meta(ge=0.0)] = 0.0
    """When usages and consumers were read, or a moment before, by the store's clock; 0.0: they are
    as of the report."""
    generation: Annotated[int, Meta(ge=0)] | None = None
    """Placement's generation of the provider up to which all of this is known: what was changed or
    allocated; None: not known."""

    def includes(self, consumer: str, since_s: float) -> bool:
        """Whether the usages are known to have what a consumer took at ``since_s`` or later."""
        return self.read_at_s >= since_s and consumer in (self.consumers or ())

    def may_lack(self, consumer: str, since_s: float) -> bool:
        """Whether the usages were read by consumer, and may not have what one took."""
        return self.read_at_s > 0 and not self.includes(consumer, since_s)

    def excludes(self, consumer: str, since_s: float) -> bool:
        """Whether a consumer is known to have taken nothing later than ``since_s``."""
        known = self.consumers is not None and self.read_at_s > since_s
        return known and consumer not in (self.consumers or ())


def shape_of(
    tree: Iterable[ResourceProvider],
) -> dict[str, tuple[str | None, tuple[str, ...], tuple[str, ...]]]:
    """The parent, traits and aggregates of each provider: what no claim checks."""
    return {node.uuid: (node.parent_provider_uuid, node.traits, node.aggregates) for node in tree}


class Provider(msgspec.Struct, frozen=True, gc=False, kw_only=True, cache_hash=True):
    """A provider without its uuid: its place in the tree, and its inventories."""

    parent: int = ROOT
    """The index of its parent; the root is its own."""
    inventories: tuple[tuple[str, Inventory], ...] = ()
    used: tuple[int, ...] = ()
    """The amount used of each inventory."""
    traits: Traits = frozenset()
    aggregates: frozenset[str] = frozenset()

    def has(self, resource_class: str, amount: int) -> bool:
        """Whether this amount of a class can be taken now."""
        for (name, inventory), used in zip(self.inventories, self.used, strict=True):
            if name == resource_class:
                return inventory.allows(amount) and used + amount <= inventory.capacity
        return False

    def taken(self, resources: Mapping[str, int], times: int = 1) -> Provider:
        """The provider less these amounts of its classes; ``times`` -1 gives them back."""
        used = tuple(
            amount + times * resources.get(name, 0)
            for (name, _), amount in zip(self.inventories, self.used, strict=True)
        )
        return structs.replace(self, used=used)

    def taken_by_one(self, resources: Mapping[str, int]) -> Provider:
        """The provider for the consumer itself, less these amounts: it may take as much less."""
        inventories = tuple(
            (name, structs.replace(known, max_unit=known.max_unit - resources.get(name, 0)))
            for name, known in self.inventories
        )
        return structs.replace(self.taken(resources), inventories=inventories)


Providers = tuple[Provider, ...]
"""A tree without uuids, the root first."""


class ProviderUse(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What an instance takes from one provider, for one of its request groups."""

    provider: str
    """The provider's uuid."""
    resources: dict[str, int] = {}
    group: str = ""
    """The group's suffix in extra specs, or its ``requester_id``; empty: the flavor."""


class ProviderTree(msgspec.Struct, frozen=True, gc=False):
    """The providers of one host, and their uuids in the same order."""

    uuids: tuple[str, ...]
    providers: Providers

    def taken(self, uses: Iterable[ProviderUse], times: int = 1) -> ProviderTree:
        """The tree less these uses of its providers; ``times`` -1 gives them back."""
        providers = list(self.providers)
        for use in uses:
            if use.provider in self.uuids:
                at = self.uuids.index(use.provider)
                providers[at] = providers[at].taken(use.resources, times)
        return ProviderTree(self.uuids, _shared(tuple(providers)))


def read_providers(
    host_uuid: str, traits: Iterable[str], reported: Iterable[ResourceProvider] = ()
) -> ProviderTree:
    """The tree of a host with these traits; the root stands for a parent that was not reported.

    If the root has inventories of what flavors take, nothing counts as used of these.
    """
    below = {provider.uuid: provider for provider in reported}
    if not below:
        return ProviderTree((host_uuid,), _root_alone(tuple(traits)))
    root = below.pop(host_uuid, ResourceProvider(uuid=host_uuid))
    if is_capacity(root.inventories):
        usages = {name: n for name, n in root.usages.items() if name not in FLAVOR_CLASSES}
        root = structs.replace(root, usages=usages)
    uuids = (host_uuid, *below)
    places = {uuid: place for place, uuid in enumerate(uuids)}
    providers = [_provider(root, ROOT, frozenset(traits))]
    for provider in below.values():
        parent = places.get(provider.parent_provider_uuid or host_uuid, ROOT)
        providers.append(_provider(provider, parent, frozenset()))
    return ProviderTree(uuids, _shared(tuple(providers)))


@lru_cache(maxsize=1024)
def _root_alone(traits: tuple[str, ...]) -> Providers:
    return _shared((_provider(ResourceProvider(uuid=""), ROOT, frozenset(traits)),))


def _provider(reported: ResourceProvider, parent: int, traits: Traits) -> Provider:
    inventories = tuple(sorted(reported.inventories.items(), key=lambda item: item[0]))
    return Provider(
        parent=parent,
        inventories=inventories,
        used=tuple(reported.usages.get(name, 0) for name, _ in inventories),
        traits=traits.union(reported.traits),
        aggregates=frozenset(reported.aggregates),
    )


@lru_cache(maxsize=16_384)
def _shared(providers: Providers) -> Providers:
    """Makes equal trees one object, which saves memory and makes comparisons cheap."""
    return providers


class ProviderEntry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A provider in the list of all."""

    uuid: str
    name: str
    generation: int
    root_provider_uuid: str
    parent_provider_uuid: str | None = None


class ProviderTraits(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The traits and aggregates of a provider, each sorted."""

    traits: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()


class ProviderFacts(ProviderTraits, frozen=True, gc=False, kw_only=True):
    """What a provider has, as of a generation; None: read in bulk, and not exact."""

    generation: int | None
    inventories: dict[str, Inventory]


class ConsumerAllocation(msgspec.Struct, frozen=True, gc=False):
    """What a consumer holds of a provider."""

    resources: dict[str, int]


class Use(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Who takes what of a provider, with all that was allocated up to a generation."""

    generation: int = msgspec.field(name="resource_provider_generation")
    taken: dict[str, ConsumerAllocation] = msgspec.field(name="allocations")
    """By consumer."""


Amounts = Mapping[str, int]
"""Resource class -> amount."""


class Owner(NamedTuple):
    """Whose quota an allocation counts for."""

    project_id: str
    user_id: str


class Consumer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a consumer holds, or is to hold."""

    uuid: str
    owner: Owner
    held: Mapping[str, Amounts] = {}
    """Provider uuid -> what is held of it."""
    mappings: Mapping[str, list[str]] = {}
    generation: int | None = None
    """Of the record that is there, or is to be replaced."""

    def holds(self, allocation: Mapping[str, Amounts]) -> bool:
        """Whether it holds exactly this of these providers, and perhaps something of others."""
        return all(self.held.get(provider) == amounts for provider, amounts in allocation.items())

    def with_more(self, more: Mapping[str, Amounts]) -> Consumer:
        """The same with this in addition; Placement takes no mappings for it."""
        held = dict(self.held)
        for provider, amounts in more.items():
            held[provider] = dict(Counter(held.get(provider, {})) + Counter(amounts))
        return structs.replace(self, held=held, mappings={})

    def without(self, less: Mapping[str, Amounts]) -> Consumer:
        """The same without this, as :meth:`with_more` had added it."""
        held: dict[str, dict[str, int]] = {}
        for provider, amounts in self.held.items():
            if rest := dict(Counter(amounts) - Counter(less.get(provider, {}))):
                held[provider] = rest
        return structs.replace(self, held=held, mappings={})

    def written(self) -> Consumer:
        """The record once it was written."""
        return structs.replace(self, generation=(self.generation or 0) + 1)


SHARES = "MISC_SHARES_VIA_AGGREGATE"
"""The trait of sharing providers."""


class SharingProvider(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A provider that gives to other trees, as it was last read."""

    uuid: str
    name: str
    inventories: Mapping[str, Inventory] = {}
    usages: Mapping[str, int] = {}
    aggregates: frozenset[str] = frozenset()


class ProviderRoom(msgspec.Struct, frozen=True, gc=False):
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


class ProviderSummary(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A provider in Placement's answer."""

    root: str = msgspec.field(name="root_provider_uuid")
    """The uuid of the root of its tree."""
    rooms: dict[str, ProviderRoom] = msgspec.field(name="resources")
    """By resource class."""
    traits: tuple[str, ...] = ()

    @property
    def shares(self) -> bool:
        """Whether hosts of its aggregates take from it."""
        return SHARES in self.traits


class CandidatesAnswer(msgspec.Struct, frozen=True, gc=False):
    """Placement's answer to one query."""

    requests: tuple[AllocationRequest, ...] = ()
    summaries: Mapping[str, ProviderSummary] = {}
    """By provider uuid."""
