"""Hosts as they were before some instances came: what these take now is given back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

from msgspec import structs

from scheduler_worker.model.claims import Resources
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.providers import ResourceProvider
from scheduler_worker.ports import Put
from scheduler_worker.service.simulation.copies import (
    Snapshot,
    hosts_in,
    instances_in,
    reservations_in,
)
from scheduler_worker.service.state import records


class InstanceUse(NamedTuple):
    """What an instance takes of its host."""

    resources: Resources
    amounts: Mapping[str, int]
    """Of the inventories of the compute node: resource class -> amount."""


def rewound(snapshot: Snapshot, taken: Mapping[str, InstanceUse]) -> tuple[Snapshot, set[str]]:
    """The snapshot as if these instances, by uuid, were not there, and those that were.

    Reservations go as they are. What a host reports as used is reduced by what the instance takes
    if the host is its only one, and has a single node: else it stays where it is.
    """
    changes: list[tuple[str, Put]] = []
    gone: set[str] = set()
    hosts_of = _hosts_of(snapshot, taken)
    for cluster, found in snapshot.clusters.items():
        reserved = [each for each in reservations_in(found) if each.instance_uuid in taken]
        changes += [(cluster, records.gone(records.RESERVATION + each.id)) for each in reserved]
        gone |= {each.instance_uuid for each in reserved}
        for name, node in _single_nodes(found):
            here = [each for each in hosts_of.get((cluster, name), ()) if each not in gone]
            if here:
                left = reduce(lambda node, each: _without(node, each, taken[each]), here, node)
                changes.append((cluster, records.put_host(left)))
                gone.update(here)
    for cluster, found in snapshot.clusters.items():
        for host, instances in instances_in(found):
            stay = {uuid: facts for uuid, facts in instances.items() if uuid not in gone}
            if len(stay) < len(instances):
                changes.append((cluster, records.put_instances(host, stay)))
    return snapshot.having(changes), gone


def _hosts_of(
    snapshot: Snapshot, wanted: Mapping[str, InstanceUse]
) -> dict[tuple[str, str], list[str]]:
    """Cluster and host -> the wanted instances that are there, and nowhere else."""
    hosts = {
        (cluster, host): [each for each in instances if each in wanted]
        for cluster, found in snapshot.clusters.items()
        for host, instances in instances_in(found)
    }
    times = Counter(each for some in hosts.values() for each in some)
    return {place: [each for each in some if times[each] == 1] for place, some in hosts.items()}


def _single_nodes(found: Mapping[str, str]) -> list[tuple[str, HostRecord]]:
    """The hosts with one node, by name."""
    nodes: dict[str, list[HostRecord]] = {}
    for node in hosts_in(found):
        nodes.setdefault(node.host, []).append(node)
    return [(name, some[0]) for name, some in nodes.items() if len(some) == 1]


def _without(node: HostRecord, instance: str, taken: InstanceUse) -> HostRecord:
    of, disk_gb = taken.resources, -(-taken.resources.disk_mb // 1024)
    more = {
        name: value + amount
        for name, amount in (
            ("free_ram_mb", of.memory_mb),
            ("free_disk_gb", disk_gb),
            ("disk_available_least", disk_gb),
        )
        if (value := getattr(node, name)) is not None
    }
    return structs.replace(
        node,
        vcpus_used=max(0, node.vcpus_used - of.vcpus),
        memory_mb_used=max(0, node.memory_mb_used - of.memory_mb),
        local_gb_used=max(0, node.local_gb_used - disk_gb),
        resource_providers=tuple(
            _root_without(each, instance, taken.amounts) if each.uuid == node.uuid else each
            for each in node.resource_providers
        ),
        **more,
    )


def _root_without(
    root: ResourceProvider, instance: str, amounts: Mapping[str, int]
) -> ResourceProvider:
    if root.consumers is not None and instance not in root.consumers:
        return root
    return structs.replace(
        root,
        usages={name: max(0, used - amounts.get(name, 0)) for name, used in root.usages.items()},
        consumers=root.consumers and tuple(each for each in root.consumers if each != instance),
    )
