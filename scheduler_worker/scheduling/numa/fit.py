"""Fits an instance's topology to a host's.

Every cell of the instance gets a host cell of its own. The search tries host cells best first, in
the order of permutations, and takes the first arrangement in which each pair fits and PCI devices
and networks are near. Each pair is fitted once. Whether an arrangement can be completed depends
only on the set of host cells in use, so no set is tried twice: the search is bounded by the number
of subsets of the host's cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scheduler_worker.model.requests import NetworkMetadata
from scheduler_worker.model.topology import (
    InstanceNUMATopology,
    NUMACell,
    NUMATopology,
    NUMAUse,
    PCIPools,
)
from scheduler_worker.scheduling.numa.cells import Ratios, fit_cell
from scheduler_worker.scheduling.pci.pools import devices_for
from scheduler_worker.scheduling.pci.requests import PCIRequest


class Wanted(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What a request requires of a host's topology, networks and devices."""

    topology: InstanceNUMATopology
    network: NetworkMetadata | None = None
    devices: tuple[PCIRequest, ...] = ()


class Fitted(msgspec.Struct, frozen=True):
    """What an instance would take, in the order of its cells."""

    cells: tuple[NUMAUse, ...] = ()
    devices: PCIPools = ()


def fit(
    host: NUMATopology,
    pools: PCIPools,
    wanted: Wanted,
    ratios: Ratios | None,
    *,
    packs: bool = False,
) -> Fitted | str:
    """What the instance would take from the host; else why it does not fit: one clause.

    Without ``ratios`` shared CPUs and memory are not limited. ``packs`` prefers the fullest cells
    to the emptiest.
    """
    if len(host.cells) < len(wanted.topology.cells):
        return f"has {len(host.cells)} NUMA cells, the instance {len(wanted.topology.cells)}"
    search = _Search(host, pools, wanted, ratios, packs=packs)
    return search.complete() or search.rejection


class _Search:
    """One fit, with the results for pairs and the sets of host cells that lead nowhere."""

    def __init__(
        self,
        host: NUMATopology,
        pools: PCIPools,
        wanted: Wanted,
        ratios: Ratios | None,
        *,
        packs: bool,
    ) -> None:
        self._host = host
        self._pools = pools
        self._wanted = wanted
        self._ratios = ratios
        self._asked = wanted.topology.cells
        self._cells = _ordered(host, pools, wanted, packs=packs)
        self._pairs: dict[tuple[int, int], NUMAUse | str] = {}
        self._dead: set[int] = set()
        self.rejection = ""

    def complete(
        self, uses: tuple[NUMAUse, ...] = (), cells: tuple[NUMACell, ...] = (), used: int = 0
    ) -> Fitted | None:
        """The first completion of ``cells``, chosen for the first cells of the instance.

        ``used`` is their set, as a bit mask of positions.
        """
        at = len(uses)
        if at == len(self._asked):
            return self._agreed(uses, cells)
        if used in self._dead:
            return None
        for number, cell in enumerate(self._cells):
            if used >> number & 1:
                continue
            use = self._pair(at, number)
            if not isinstance(use, str):
                found = self.complete((*uses, use), (*cells, cell), used | 1 << number)
                if found is not None:
                    return found
        self._dead.add(used)
        return None

    def _pair(self, at: int, number: int) -> NUMAUse | str:
        found = self._pairs.get((at, number))
        if found is None:
            cell = self._cells[number]
            isolates = self._wanted.topology.emulator_threads_policy == "isolate"
            found = fit_cell(cell, self._asked[at], int(isolates and not at), self._ratios)
            self._pairs[at, number] = found
            if isinstance(found, str):
                self.rejection = f"NUMA cell {cell.id} {found}"
        return found

    def _agreed(self, uses: tuple[NUMAUse, ...], cells: Sequence[NUMACell]) -> Fitted | None:
        """The arrangement, if networks and devices are near; else None."""
        if not _reaches(self._wanted.network, cells, self._host.cells):
            self.rejection = "has the networks on other NUMA cells"
            return None
        devices = devices_for(self._wanted.devices, self._pools, cells, self._host.cells)
        if devices is None:
            self.rejection = "has too few PCI devices near the NUMA cells"
            return None
        return Fitted(uses, devices)


def _ordered(
    host: NUMATopology, pools: PCIPools, wanted: Wanted, *, packs: bool
) -> Sequence[NUMACell]:
    """Host cells, best first: by PCI devices (the most for an instance that wants some, else the
    fewest), then by CPUs, then by memory. In the host's order when all are needed.
    """
    if len(host.cells) == len(wanted.topology.cells):
        return host.cells
    pins = next((cell.pins for cell in wanted.topology.cells if cell.cpu_policy), False)
    sign = -1 if packs else 1
    devices: dict[int | None, int] = {}
    for pool in pools:
        count = -pool.count if wanted.devices else pool.count
        devices[pool.numa_node] = devices.get(pool.numa_node, 0) + count

    def rank(cell: NUMACell) -> tuple[int, int, int]:
        cpus = -cell.free_pcpus.bit_count() if pins else cell.cpu_usage
        return devices.get(cell.id, 0), sign * cpus, -sign * cell.free_memory

    return sorted(host.cells, key=rank)


def _reaches(
    network: NetworkMetadata | None, cells: Sequence[NUMACell], host_cells: Sequence[NUMACell]
) -> bool:
    """Whether the chosen cells have every requested network that is on some cell of the host."""
    if network is None:
        return True
    near = [cell.network_metadata for cell in cells if cell.network_metadata]
    anywhere = [cell.network_metadata for cell in host_cells if cell.network_metadata]
    missing = set(network.physnets).difference(*(each.physnets for each in near))
    if any(missing.intersection(each.physnets) for each in anywhere):
        return False
    return not network.tunneled or _tunneled(near) or not _tunneled(anywhere)


def _tunneled(networks: Sequence[NetworkMetadata]) -> bool:
    return any(each.tunneled for each in networks)
