"""Fills hosts one instance after the other, where cells, devices or providers decide.

What an instance takes of a host's NUMA cells, of its devices and of its providers depends on those
before it, so no column tells how many more fit. Copies of the hosts are filled, with the claims
that decisions would make, until a filter refuses. Hosts that are alike in all that these filters
read are filled once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import ClaimOrReservation
from scheduler_worker.model.inventories import UNUSED
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.filters.numa_topology import NUMATopologyFilter
from scheduler_worker.scheduling.filters.pci_passthrough import PciPassthroughFilter
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.scheduling.prefilters.units import ResourceProviders

_ALIKE = (NUMATopologyFilter, PciPassthroughFilter, ResourceProviders)
_READ = (
    *("numa_topology", "pci_pools", "cpu_allocation_ratio", "ram_allocation_ratio"),
    *("has_inventories", *UNUSED.values()),
)
"""What these filters read of a host's columns, beside its providers and aggregates."""


class Steps:
    """How many instances may still be placed on copies; then upper bounds have to do."""

    def __init__(self, left: int = 20_000) -> None:
        self.left = left


class HostToFill(NamedTuple):
    """A copy of one host: all that filters may look at."""

    row: int
    record: HostRecord
    version: int
    reservations: Sequence[ClaimOrReservation]
    instances: Mapping[str, Mapping[str, Any]]
    most: int
    """How many instances the other filters let it take."""
    kind: Hashable | None
    """Hosts of one kind take as many instances; None: it is the only one of its kind."""


class Filled(NamedTuple):
    """What became of a host."""

    instances: int
    refused_by: str | None
    """None: it takes all that the other filters let it take."""
    is_exact: bool = True


def copied(hosts: HostTable, row: int, most: int, filters: Sequence[Filter]) -> HostToFill:
    """A host of a table, to be filled after the table has changed."""
    record = hosts.records[row]
    return HostToFill(
        row=row,
        record=record,
        version=hosts.versions[row],
        reservations=hosts.reservations_of_host(record.uuid),
        instances=hosts.reported_instances(record.host),
        most=most,
        kind=_kind(hosts, row, most) if all(type(each) in _ALIKE for each in filters) else None,
    )


def _kind(hosts: HostTable, row: int, most: int) -> Hashable:
    columns = tuple(hosts.columns[name].item(row) for name in _READ)
    providers = hosts.columns["provider_tree"].item(row).providers
    return columns, providers, tuple(map(id, hosts.aggregates_of(hosts.records[row].host))), most


def fill(
    pipeline: Pipeline,
    like: HostTable,
    hosts: Sequence[HostToFill],
    spec: RequestSpec,
    filters: Sequence[Filter],
    steps: Steps,
) -> dict[int, Filled]:
    """Row -> how many instances the host takes. ``like`` has the time and the aggregates."""
    kinds = {_name(each): each for each in hosts}
    copies = _table(like, list(kinds.values()))
    found: dict[Hashable, Filled] = {}
    for name, each in kinds.items():
        row = copies.row_of(each.record.uuid)
        assert row is not None  # noqa: S101 - it was just put
        found[name] = _filled(pipeline, copies, row, spec, filters, each.most, steps)
    return {each.row: found[_name(each)] for each in hosts}


def _name(host: HostToFill) -> Hashable:
    return host.row if host.kind is None else (host.kind,)


def _table(like: HostTable, hosts: Sequence[HostToFill]) -> HostTable:
    copies = HostTable()
    copies.now_s = like.now_s
    if hosts:
        copies.set_aggregates(like.aggregates)
        copies.metadata_keys, copies.metadata_items = like.metadata_keys, like.metadata_items
    for each in hosts:
        copies.put(each.record, each.version)
        copies.set_instances(each.record.host, each.instances)
        for reservation in each.reservations:
            copies.consume(reservation)
    return copies


def _filled(
    pipeline: Pipeline,
    hosts: HostTable,
    row: int,
    spec: RequestSpec,
    filters: Sequence[Filter],
    most: int,
    steps: Steps,
) -> Filled:
    host = hosts.state(row)
    for placed in range(most):
        if not steps.left:
            return Filled(most, None, is_exact=False)
        steps.left -= 1
        one = structs.replace(spec, instance_uuid=f"{row}/{placed}")
        for unit in filters:
            if not unit.host_passes(host, one):
                return Filled(placed, unit.name)
        limits = pipeline.selections.of(hosts, row, one, None).limits
        hosts.consume(pipeline.selections.claim(host, one, limits, ""))
    return Filled(most, None)
