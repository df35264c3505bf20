"""What judgement sees of hosts' traits, aggregates, networks and providers, in columns."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_worker.model.aggregates import AVAILABILITY_ZONE, Aggregate
from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.providers import ROOT, ProviderTree
from scheduler_worker.scheduling.prefilters.traits import DISABLED

TENANT = "filter_tenant_id"
"""How the metadata keys begin that name the tenants of an aggregate."""

MetadataItems = frozenset[tuple[str, str]]
Uuids = frozenset[str]


def is_node(hosts: Hosts, nodename: str) -> Mask:
    """Which hosts are the node of this name."""
    return hosts.derived(("node", nodename), lambda host: host.nodename == nodename, "?")


# Providers and traits


def tree_of(host: HostState) -> ProviderTree:
    """The providers of one host, less what is promised."""
    found: ProviderTree = host.provider_tree
    return found


def has_trait(hosts: Hosts, trait: str) -> Mask:
    """Which hosts' compute nodes have a trait."""
    return hosts.derived(("trait", trait), lambda host: trait in traits_of(host), "?")


def traits_of(host: HostState) -> frozenset[str]:
    """The traits of a host's compute node; a disabled service is one too."""
    traits = tree_of(host).providers[ROOT].traits
    return traits | {DISABLED} if host.service_disabled else traits


def could_give(hosts: Hosts, resource_class: str, amount: int) -> Mask:
    """Which hosts have a provider that could give so much, were nothing used."""
    return hosts.derived(
        ("could give", resource_class, amount),
        lambda host: any(
            name == resource_class and inventory.allows(amount)
            for each in tree_of(host).providers
            for name, inventory in each.inventories
        ),
        "?",
    )


def has_provider(hosts: Hosts, uuid: str) -> Mask:
    """Which hosts have a provider of this uuid in their tree."""
    return hosts.derived(("in tree", uuid), lambda host: uuid in tree_of(host).uuids, "?")


def has_network(hosts: Hosts, network: str) -> Mask:
    """Which hosts report a network."""
    return hosts.derived(("network", network), lambda host: network in host.record.networks, "?")


# Aggregates


def is_member(hosts: Hosts, uuids: Uuids) -> Mask:
    """Which hosts are in one of these aggregates."""
    return hosts.by_aggregates().spread(
        lambda aggregates: not uuids.isdisjoint(each.uuid for each in aggregates)
    )


def memberships(hosts: Hosts) -> list[Uuids]:
    """Uuids of the aggregates that each host is in."""
    numbers, members = hosts.by_aggregates()
    found = [frozenset(each.uuid for each in aggregates) for aggregates in members]
    return [found[number] for number in numbers.tolist()]


def is_in_zone(hosts: Hosts, zone: str) -> Mask:
    """Which hosts are in an aggregate that is this zone, to the letter."""
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
    """Which hosts are in an aggregate for requests that require more than these traits."""
    allowed = frozenset(f"trait:{each}" for each in traits)
    return hosts.by_aggregates().spread(
        lambda aggregates: any(
            value == "required" and key.startswith("trait:") and key not in allowed
            for key, value in items_of(aggregates)
        )
    )


def items_of(aggregates: Iterable[Aggregate]) -> MetadataItems:
    """Every key and value that one of the aggregates carries."""
    return frozenset(item for each in aggregates for item in each.metadata.items())
