"""Chooses the pools of a host that serve PCI requests, step by step.

For one request the pools are narrowed to those of suitable devices, then by NUMA affinity, then by
kinds that are only given on request (physical functions, vdpa, remote management), then by
whether a device can migrate, then by the resource providers that were chosen before. Devices are
taken from the remaining pools in order. Several requests are served one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from scheduler_worker.model.topology import (
    NUMACell,
    PCIPool,
    PCIPools,
    count_devices,
    devices_taken,
)
from scheduler_worker.scheduling.pci.requests import PCIRequest, is_true

Cells = Sequence[NUMACell]


def devices_for(
    requests: Iterable[PCIRequest],
    pools: PCIPools,
    cells: Cells | None = None,
    host_cells: Cells = (),
) -> PCIPools | None:
    """The devices that would be taken, as pools with as many; None: there are too few.

    ``cells`` are those of ``host_cells`` that the instance is on; None: it has no NUMA topology,
    and devices on any node are suitable.
    """
    found: PCIPools = ()
    last: PCIPools = ()
    for request in requests:
        pools = devices_taken(pools, last)
        suitable = _suitable(request, pools, cells, host_cells)
        if request.providers:
            taken = _of_providers(request, suitable, pools)
        else:
            taken = _first(suitable, request.count)
        if taken is None or not suitable:
            return None
        found += taken
        last = taken
    return found


def _suitable(
    request: PCIRequest, pools: PCIPools, cells: Cells | None, host_cells: Cells
) -> list[PCIPool]:
    found = matched(request, pools)
    return given(request, found if cells is None else _near(request, found, cells, host_cells))


def matched(request: PCIRequest, pools: PCIPools) -> list[PCIPool]:
    """The pools with devices that match, on whatever node, whether they are given or not."""
    return [pool for pool in pools if pool.count > 0 and request.suits(pool)]


def given(request: PCIRequest, pools: Iterable[PCIPool]) -> list[PCIPool]:
    """Those of the matched pools that are given: some kinds only if the request asks for them.

    A request for devices that can migrate, or that cannot, gets those that are tagged so.
    """
    wants_function = request.asks_for("dev_type", "type-PF")
    wants_vdpa = request.asks_for("dev_type", "vdpa")
    is_remote, migrates = request.is_remote_managed, request.live_migratable
    return [
        pool
        for pool in pools
        if (wants_function or pool.value("dev_type") != "type-PF")
        and (wants_vdpa or pool.value("dev_type") != "vdpa")
        and (is_remote or not is_true(pool.value("remote_managed")))
        and (migrates is None or pool.value("live_migratable") == str(migrates).lower())
    ]


def _near(
    request: PCIRequest, pools: list[PCIPool], cells: Cells, host_cells: Cells
) -> list[PCIPool]:
    """The pools that the request's NUMA policy allows, nearest first."""
    nodes = {cell.id for cell in cells}
    near = [pool for pool in pools if pool.numa_node in nodes]
    policy = request.numa_policy
    if policy == "required" or count_devices(near) >= request.count:
        return near
    if policy == "socket":
        return _on_sockets(pools, cells, host_cells)
    near += [pool for pool in pools if pool.numa_node is None]
    if policy == "legacy" or count_devices(near) >= request.count:
        return near
    return near + [pool for pool in pools if pool not in near]


def _on_sockets(pools: list[PCIPool], cells: Cells, host_cells: Cells) -> list[PCIPool]:
    if any(cell.socket is None for cell in host_cells):
        return []
    sockets = {cell.socket for cell in cells}
    nodes = {cell.id for cell in host_cells if cell.socket in sockets}
    return [pool for pool in pools if pool.numa_node in nodes]


def _first(pools: Iterable[PCIPool], missing: int) -> PCIPools | None:
    taken = []
    for pool in pools:
        if not missing:
            break
        taken.append(pool.with_count(min(pool.count, missing)))
        missing -= taken[-1].count
    return None if missing else tuple(taken)


def _of_providers(
    request: PCIRequest, suitable: Iterable[PCIPool], pools: PCIPools
) -> PCIPools | None:
    """The devices of the chosen providers, from the pool of each.

    A host with a provider whose devices are in several pools cannot serve: the pool is ambiguous.
    """
    wanted: Counter[str | None] = Counter(request.providers)
    spread = Counter(pool.tags["rp_uuid"] for pool in pools if "rp_uuid" in pool.tags)
    chosen = [pool for pool in suitable if 0 < wanted[pool.value("rp_uuid")] <= pool.count]
    if any(count > 1 for count in spread.values()) or count_devices(chosen) < request.count:
        return None
    return tuple(pool.with_count(wanted[pool.value("rp_uuid")]) for pool in chosen)
