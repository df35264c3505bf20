"""Hosts' traits, aggregates, networks and providers as columns."""

from collections.abc import Iterable, Mapping
from functools import lru_cache, partial

import msgspec
import numpy as np

from scheduler_worker.model.aggregates import AVAILABILITY_ZONE, Aggregate
from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.inventories import UNLIMITED, UNUSED
from scheduler_worker.model.providers import ROOT, Inventory, Provider, Providers, ProviderTree
from scheduler_worker.scheduling.prefilters.needs import Resources
from scheduler_worker.scheduling.prefilters.traits import DISABLED

TENANT = "filter_tenant_id"
"""The prefix of the metadata keys that name the tenants of an aggregate."""

MetadataItems = frozenset[tuple[str, str]]
Uuids = frozenset[str]


def is_node(hosts: Hosts, nodename: str) -> Mask:
    """Which hosts are the node of this name."""
    return hosts.derived(("node", nodename), lambda host: host.nodename == nodename, "?")


# Providers and traits


def has_trait(hosts: Hosts, trait: str) -> Mask:
    """Which hosts' compute nodes have a trait."""
    return hosts.derived(("trait", trait), lambda host: trait in traits_of(host), "?")


def traits_of(host: HostState) -> frozenset[str]:
    """The traits of a host's compute node, with :data:`DISABLED` for a disabled service."""
    traits = host.provider_tree.providers[ROOT].traits
    return traits | {DISABLED} if host.service_disabled else traits


def could_give(hosts: Hosts, resource_class: str, amount: int) -> Mask:
    """Which hosts have a provider that could give this amount if nothing were used."""
    return hosts.derived(
        ("could give", resource_class, amount),
        lambda host: any(
            name == resource_class and inventory.allows(amount)
            for provider in host.provider_tree.providers
            for name, inventory in provider.inventories
        ),
        "?",
    )


def allow(hosts: Hosts, amounts: Resources) -> Mask:
    """Which hosts' own inventories would serve these amounts if nothing were used.

    Hosts without such inventories do.
    """
    allowed = np.ones(len(hosts), bool)
    for name, amount in amounts:
        bounds = hosts.derived(("bounds", name), partial(_bounds, name=name), "i8,i8,i8")
        allowed &= (bounds["f0"] <= amount) & (amount <= bounds["f1"])
        allowed &= amount % bounds["f2"] == 0
    return allowed


def one_allows(host: HostState, amounts: Resources) -> bool:
    """Whether one host's own inventories would serve these amounts if nothing were used."""
    return not host.has_inventories or _root_allows(host.provider_tree.providers[ROOT], amounts)


def _bounds(host: HostState, name: str) -> tuple[int, int, int]:
    """The least and the most that one instance may take, and of what it is a multiple."""
    return (
        _bounds_of(host.provider_tree.providers[ROOT], name) if host.has_inventories else _UNBOUNDED
    )


_UNBOUNDED = (0, UNLIMITED, 1)


@lru_cache(maxsize=16_384)
def _bounds_of(root: Provider, name: str) -> tuple[int, int, int]:
    inventory = dict(root.inventories).get(name)
    if inventory is None:
        return (1, 0, 1)
    return inventory.min_unit, min(inventory.max_unit, inventory.capacity), inventory.step_size


@lru_cache(maxsize=16_384)
def _root_allows(root: Provider, amounts: Resources) -> bool:
    inventories = dict(root.inventories)
    return all(name in inventories and inventories[name].allows(n) for name, n in amounts)


def inventories_of(host: HostState) -> Mapping[str, Inventory]:
    """The inventories of a host's compute node."""
    return dict(host.provider_tree.providers[ROOT].inventories)


def lacks_pinned_cpus(hosts: Hosts) -> Mask:
    """Which hosts' own inventories have vCPUs, but no CPUs for pinning."""
    return hosts.derived(("unpinned",), lacks_pinned_cpus_on, "?")


def lacks_pinned_cpus_on(host: HostState) -> bool:
    """Whether the host's own inventories have vCPUs, but no CPUs for pinning."""
    inventories = inventories_of(host) if host.has_inventories else {}
    return "VCPU" in inventories and "PCPU" not in inventories


def gives_pinned_cpus(hosts: Hosts) -> Mask:
    """Which hosts' own inventories have CPUs for pinning."""
    return hosts.derived(
        ("pinned",), lambda host: host.has_inventories and "PCPU" in inventories_of(host), "?"
    )


def gives_below_root(hosts: Hosts, resource_class: str) -> Mask:
    """Which hosts have a class below their compute node, and not there."""
    return hosts.derived(
        ("below root", resource_class),
        lambda host: _is_below_root(host.provider_tree.providers, resource_class),
        "?",
    )


@lru_cache(maxsize=16_384)
def _is_below_root(providers: Providers, resource_class: str) -> bool:
    root, *below = (dict(provider.inventories) for provider in providers)
    return resource_class not in root and any(resource_class in classes for classes in below)


def whole_tree(host: HostState, amounts: Resources) -> ProviderTree:
    """The providers of one host with what is used of its own inventories after these amounts."""
    tree = host.provider_tree
    if not host.has_inventories:
        return tree
    root, asked = tree.providers[ROOT], dict(amounts)
    used = tuple(
        inventory.capacity - getattr(host, UNUSED[name]) + asked.get(name, 0)
        if name in UNUSED
        else amount
        for (name, inventory), amount in zip(root.inventories, root.used, strict=True)
    )
    root = msgspec.structs.replace(root, used=used)
    return ProviderTree(tree.uuids, (root, *tree.providers[ROOT + 1 :]))


def has_provider(hosts: Hosts, uuid: str) -> Mask:
    """Which hosts have a provider of this uuid in their tree."""
    return hosts.derived(("in tree", uuid), lambda host: uuid in host.provider_tree.uuids, "?")


def has_network(hosts: Hosts, network: str) -> Mask:
    """Which hosts report a network."""
    return hosts.derived(("network", network), lambda host: network in host.record.networks, "?")


# Aggregates


def is_member(hosts: Hosts, uuids: Uuids) -> Mask:
    """Which hosts are in one of these aggregates."""
    return hosts.by_aggregates().spread(
        lambda aggregates: not uuids.isdisjoint(aggregate.uuid for aggregate in aggregates)
    )


def memberships(hosts: Hosts) -> list[Uuids]:
    """Uuids of the aggregates that each host is in."""
    numbers, members = hosts.by_aggregates()
    uuids = [frozenset(aggregate.uuid for aggregate in aggregates) for aggregates in members]
    return [uuids[number] for number in numbers.tolist()]


def is_in_zone(hosts: Hosts, zone: str) -> Mask:
    """Which hosts are in an aggregate whose zone is exactly this text."""
    return hosts.by_aggregates().spread(
        lambda aggregates: (AVAILABILITY_ZONE, zone) in items_of(aggregates)
    )


def is_of_tenant(hosts: Hosts, tenant: str) -> Mask:
    """Which hosts are in an aggregate that names the tenant."""
    return hosts.by_aggregates().spread(
        lambda aggregates: names_tenant(items_of(aggregates), tenant)
    )


def names_tenant(items: MetadataItems, tenant: str) -> bool:
    """Whether one of the items names the tenant."""
    return any(key.startswith(TENANT) and value == tenant for key, value in items)


def is_isolated(hosts: Hosts, traits: frozenset[str]) -> Mask:
    """Which hosts are in an aggregate that requires a trait beyond these."""
    allowed = frozenset(f"trait:{trait}" for trait in traits)
    return hosts.by_aggregates().spread(
        lambda aggregates: any(
            value == "required" and key.startswith("trait:") and key not in allowed
            for key, value in items_of(aggregates)
        )
    )


def items_of(aggregates: Iterable[Aggregate]) -> MetadataItems:
    """Every metadata key and value of the aggregates."""
    return frozenset(item for aggregate in aggregates for item in aggregate.metadata.items())
