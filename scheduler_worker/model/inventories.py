"""What flavors take of a host's own inventories: CPUs, memory and disk, as Placement counts them.

A host whose root reports such inventories is judged by them: an instance fits if its amounts are
within the inventories' ``min_unit``, ``max_unit`` and ``step_size``, and ``(total - reserved) x
allocation_ratio``, rounded down, less what is used has room for them. Such a root without an
inventory of a class has none of it. So it is with a root that has other inventories, on a host that
reports no vCPUs, memory and disk. Any other host is judged by the filters of its policy alone.

The usages that a host reports may name their consumers. A reservation of one of these is in the
usages, and not counted again; its reported vCPUs, NUMA cells and devices follow later.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import structs

from scheduler_worker.model.claims import Resources
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.providers import (
    FLAVOR_CLASSES,
    ProviderUse,
    ResourceProvider,
    is_capacity,
)

UNLIMITED = 2**62
"""What is unused on a host that no inventories decide about."""

UNUSED: Mapping[str, str] = {name: f"unused_{name.lower()}" for name in FLAVOR_CLASSES}
"""Resource class -> the column of what is unused of it."""


def root_of(record: HostRecord) -> ResourceProvider | None:
    """The provider whose inventories decide about the host's capacity; None: none does."""
    for provider in record.resource_providers:
        if provider.uuid == record.uuid:
            inventories = provider.inventories
            # A host without vCPUs, memory and disk to share is bare metal, which is taken whole.
            has_something = record.vcpus or record.memory_mb or record.local_gb
            decides = is_capacity(inventories) or (inventories and not has_something)
            return provider if decides else None
    return None


def has_inventories(record: HostRecord) -> bool:
    """Whether inventories decide about the host's capacity."""
    return root_of(record) is not None


def unused(record: HostRecord, resource_class: str) -> int:
    """What is left of the inventory of a class; negative where more than it has is used."""
    root = root_of(record)
    if root is None:
        return UNLIMITED
    inventory = root.inventories.get(resource_class)
    capacity = inventory.capacity if inventory else 0
    return capacity - root.usages.get(resource_class, 0)


class Provided(NamedTuple):
    """What an instance takes of a host's providers."""

    of_root: Mapping[str, int] = {}
    """What it takes of the inventories that decide about the host's capacity, by class."""
    of_tree: tuple[ProviderUse, ...] = ()
    """What it takes beside these."""


def use_of_root(host_uuid: str, amounts: Mapping[str, int]) -> ProviderUse:
    """What an instance takes of the host's own inventories."""
    resources = {name: amount for name, amount in amounts.items() if amount}
    return ProviderUse(provider=host_uuid, resources=resources)


def uses_on(record: HostRecord, taken: Resources) -> tuple[ProviderUse, ...]:
    """What an instance takes of the host's providers.

    What was reserved while the host had no inventories counts with the sizes of its flavor.
    """
    root = root_of(record)
    if root is None or any(use.provider == root.uuid for use in taken.providers):
        return taken.providers
    disk_gb = -(-taken.disk_mb // 1024)
    sizes = {"VCPU": taken.vcpus, "MEMORY_MB": taken.memory_mb, "DISK_GB": disk_gb}
    return (use_of_root(root.uuid, sizes), *taken.providers)


def provided(record: HostRecord, instance_uuid: str, taken: Resources, since_s: float) -> Provided:
    """What an instance takes of the host's providers beyond their reported usages.

    ``since_s`` is when it was reserved, by the store's clock: usages that were read earlier may
    show the instance as it was before.
    """
    uses = uses_on(record, taken)
    included = [
        each.uuid for each in record.resource_providers if each.includes(instance_uuid, since_s)
    ]
    if included:
        uses = tuple(use for use in uses if use.provider not in included)
    root = root_of(record)
    return Provided({}, uses) if root is None else _divided(root.uuid, uses)


def _divided(root: str, uses: Iterable[ProviderUse]) -> Provided:
    of_root: dict[str, int] = {}
    of_tree: list[ProviderUse] = []
    for use in uses:
        beside = use.resources
        if use.provider == root:
            beside = {}
            for name, amount in use.resources.items():
                if name in UNUSED:
                    of_root[name] = of_root.get(name, 0) + amount
                else:
                    beside[name] = amount
        if beside:
            of_tree.append(structs.replace(use, resources=beside))
    return Provided(of_root, tuple(of_tree))
