"""Compares NUMA cells (CPUs, memory, pages) and PCI devices of a host after a request."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from scheduler_worker import codec
from scheduler_worker.model.host_reports import fields_of
from scheduler_worker.model.hosts import HostState
from scheduler_worker.model.topology import (
    NUMACell,
    NUMATopology,
    PCIPools,
    numbers,
    read_numa_topology,
    read_pci_pools,
)

TOPOLOGY, POOLS = "numa_topology", "pci_device_pools"


def differences(host: HostState, recorded: dict[str, Any]) -> Iterator[str]:
    """The differences of a host from ``recorded``, which has the form of a report.

    Only what is recorded is compared: the topology, or the pools, or both.
    """
    [report] = codec.decode_host_reports([{"host": host.host} | recorded])
    reported = fields_of(report)
    if TOPOLOGY in reported:
        found, expected = host.numa_topology, read_numa_topology(reported[TOPOLOGY])
        yield from _compared(host.host, _cells(found), _cells(expected))
    if POOLS in reported:
        pools = read_pci_pools(reported[POOLS] or ())
        yield from _compared(host.host, _devices(host.pci_pools), _devices(pools))


def _compared(host: str, found: dict[str, Any], expected: dict[str, Any]) -> Iterator[str]:
    for name in sorted(found.keys() | expected.keys()):
        mine, its = found.get(name), expected.get(name)
        if mine != its:
            yield f"{host}, {name}: {mine} left; recorded is {its}"


def _cells(topology: NUMATopology | None) -> dict[str, Any]:
    return {f"NUMA cell {cell.id}": _used(cell) for cell in topology.cells} if topology else {}


def _used(cell: NUMACell) -> dict[str, Any]:
    return {
        "cpu_usage": cell.cpu_usage,
        "memory_usage": cell.memory_usage,
        "pinned_cpus": sorted(
            set(numbers(cell.pinned_cpus)).union(*map(numbers, cell.reserved_pins))
        ),
        "pages used": {pages.size_kb: pages.used for pages in cell.mempages},
    }


def _devices(pools: PCIPools) -> dict[str, Any]:
    """The number of remaining devices of each kind; kinds without any are left out."""
    counts: Counter[str] = Counter()
    for pool in pools:
        tags = {key: value for key, value in sorted(pool.tags.items()) if value is not None}
        at = "anywhere" if pool.numa_node is None else f"at node {pool.numa_node}"
        counts[f"devices {pool.vendor_id}:{pool.product_id} {at} {tags}"] += pool.count
    return {kind: count for kind, count in counts.items() if count}
