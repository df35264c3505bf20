"""Hosts' traits, aggregates, networks and providers as columns."""

from collections.abc import Callable, Container, Iterable, Mapping
from functools import lru_cache, partial

import numpy as np
from msgspec import structs

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.inventories import UNLIMITED, UNUSED
from scheduler_worker.model.providers import ROOT, Inventory, Provider, Providers, ProviderTree
from scheduler_worker.scheduling.prefilters.needs import Resources
from scheduler_worker.scheduling.prefilters.traits import DISABLED

TENANT = "filter_tenant_id"
"""The prefix of the metadata keys that name the tenants of an aggregate."""

Uuids = frozenset[str]


def _traits_of(host: HostState) -> frozenset[str]:
    """The traits of a host's compute node, with :data:`DISABLED` for a disabled service."""
    traits = host.provider_tree.providers[ROOT].traits
    return traits | {DISABLED} if host.service_disabled else traits


_NAMES: Mapping[str, Callable[[HostState], Container[str]]] = {
    "node": lambda host: (host.nodename,),
    "trait": _traits_of,
    "network": lambda host: host.record.networks,
    "provider": lambda host: host.provider_tree.uuids,
}


def has(hosts: Hosts, kind: str, name: str) -> Mask:
    """Which hosts have this ``node``, ``trait``, ``network``, or ``provider`` in their tree."""
    return hosts.derived((kind, name), lambda host: name in _NAMES[kind](host), "?")


# Providers


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


def _bounds(host: HostState, name: str) -> tuple[int, int, int]:
    """The least and the most that one instance may take, and of what it is a multiple."""
    if not host.has_inventories:
        return 0, UNLIMITED, 1
    return _bounds_of(host.provider_tree.providers[ROOT], name)


@lru_cache(maxsize=16_384)
def _bounds_of(root: Provider, name: str) -> tuple[int, int, int]:
    inventory = dict(root.inventories).get(name)
    if inventory is None:
        return (1, 0, 1)
    return inventory.min_unit, min(inventory.max_unit, inventory.capacity), inventory.step_size


@lru_cache(maxsize=16_384)
def allows(root: Provider, amounts: Resources) -> bool:
    """Whether a compute node's inventories would serve these amounts if nothing were used."""
    inventories = dict(root.inventories)
    return all(name in inventories and inventories[name].allows(n) for name, n in amounts)


def inventories_of(host: HostState) -> Mapping[str, Inventory]:
    """The inventories of a host's compute node."""
    return dict(host.provider_tree.providers[ROOT].inventories)


def lacks_pinned_cpus(hosts: Hosts) -> Mask:
    """:func:`lacks_pinned_cpus_on`, of each host."""
    return hosts.derived(("unpinned",), lacks_pinned_cpus_on, "?")


def lacks_pinned_cpus_on(host: HostState) -> bool:
    """Whether the host's own inventories have vCPUs, but no CPUs for pinning."""
    inventories = inventories_of(host) if host.has_inventories else {}
    return "VCPU" in inventories and "PCPU" not in inventories


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
    root = tree.providers[ROOT]
    used = tuple(
        inventory.capacity - getattr(host, UNUSED[name]) if name in UNUSED else amount
        for (name, inventory), amount in zip(root.inventories, root.used, strict=True)
    )
    root = structs.replace(root, used=used).taken_by_one(dict(amounts))
    return ProviderTree(tree.uuids, (root, *tree.providers[ROOT + 1 :]))


# Aggregates


def is_member(hosts: Hosts, uuids: Uuids) -> Mask:
    """Which hosts are in one of these aggregates."""
    return hosts.by_aggregates().spread(
        lambda aggregates: not uuids.isdisjoint(aggregate.uuid for aggregate in aggregates)
    )


def has_metadata(hosts: Hosts, test: Callable[[frozenset[tuple[str, str]]], bool]) -> Mask:
    """Which hosts are in aggregates whose metadata, every key and value, pass a test."""
    return hosts.by_aggregates().spread(
        lambda some: test(frozenset(item for each in some for item in each.metadata.items()))
    )


def names_tenant(items: Iterable[tuple[str, str]], tenant: str) -> bool:
    """Whether one of the items names the tenant."""
    return any(key.startswith(TENANT) and value == tenant for key, value in items)


def isolates(items: Iterable[tuple[str, str]], traits: frozenset[str]) -> bool:
    """Whether one of the items requires a trait beyond these."""
    allowed = {f"trait:{trait}" for trait in traits}
    required = (key for key, value in items if value == "required")
    return any(key.startswith("trait:") and key not in allowed for key in required)
