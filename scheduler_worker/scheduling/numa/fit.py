"""Fits an instance's topology to a host's.

Every cell of the instance gets a host cell of its own. Host cells are tried best first, in the
order of permutations; the first arrangement in which each pair fits, and networks and PCI devices
are near, is taken. A host cell is only chosen if the rest of the instance still fits the rest of
the host, so without networks and devices no choice is in vain. With them, the search gives up
after so many choices in vain; host cells that make no difference to the request count as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

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
from scheduler_worker.scheduling.numa.matching import Matching, Owners
from scheduler_worker.scheduling.numa.near import Near, Places
from scheduler_worker.scheduling.pci.requests import PCIRequest

MOST_IN_VAIN = 80
"""Choices; they take some milliseconds. Four cells of eight can be chosen in 70 ways."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True, dict=True):
    """What a request requires of a host's topology, networks and devices."""

    topology: InstanceNUMATopology
    network: NetworkMetadata | None = None
    devices: tuple[PCIRequest, ...] = ()

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """For each cell the first one that fits the same host cells."""
        first: dict[tuple[object, ...], int] = {}
        return tuple(
            first.setdefault(
                (
                    self.reserved(at),
                    cell.memory,
                    len(cell.cpuset),
                    len(cell.pcpuset),
                    cell.pagesize,
                    cell.cpu_policy,
                    cell.cpu_thread_policy,
                ),
                at,
            )
            for at, cell in enumerate(self.topology.cells)
        )

    def reserved(self, at: int) -> int:
        """CPUs for emulator threads beside a cell: they are on the first one."""
        return int(not at and self.topology.emulator_threads_policy == "isolate")


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
    return _Search(host, pools, wanted, ratios, packs=packs).result()


class _Search:
    """One fit, with the results for pairs and the choices that were in vain.

    Host cells are named by their place in the order in which they are tried.
    """

    def __init__(
        self,
        host: NUMATopology,
        pools: PCIPools,
        wanted: Wanted,
        ratios: Ratios | None,
        *,
        packs: bool,
    ) -> None:
        self._wanted = wanted
        self._pools = pools
        self._ratios = ratios
        self._count = len(wanted.topology.cells)
        self._cells = ordered(host, pools, wanted, packs=packs)
        self._pairs: dict[tuple[int, int], NUMAUse | str] = {}
        self._rejection = ""

    def result(self) -> Fitted | str:
        """Mostly each cell can have the first place that is left."""
        chosen: list[int] = []
        for at in range(self._count):
            for place in range(len(self._cells)):
                if place not in chosen and self._fits(at, place):
                    chosen.append(place)
                    break
            else:
                return self._searched() if chosen else self._misfit()
        return self._agreed(chosen) or self._searched()

    @cached_property
    def _near(self) -> Near:
        return Near(self._wanted.network, self._wanted.devices, self._pools, self._cells)

    def _pair(self, at: int, place: int) -> NUMAUse | str:
        kind = self._wanted.kinds[at]
        found = self._pairs.get((kind, place))
        if found is None:
            cell, reserved = self._wanted.topology.cells[kind], self._wanted.reserved(kind)
            found = fit_cell(self._cells[place], cell, reserved, self._ratios)
            self._pairs[kind, place] = found
        return found

    def _fits(self, at: int, place: int) -> bool:
        return not isinstance(self._pair(at, place), str)

    def _misfit(self) -> str:
        """Why a cell of the instance finds no host cell: the last pair that does not fit."""
        pairs = self._pairs.items()
        tried = [(place, found) for (_, place), found in pairs if isinstance(found, str)]
        place, rejection = tried[-1]
        return f"NUMA cell {self._cells[place].id} {rejection}"

    def _searched(self) -> Fitted | str:
        self._matching = Matching(len(self._cells), self._fits)
        owners: Owners = {}
        if not all(self._matching.grow(owners, at) for at in range(self._count)):
            return self._misfit()
        self._dead: set[int] = set()
        self._in_vain = 0
        self._weights = self._weights_of_kinds()
        if not self._may_do(0, self._count):
            return self._rejection
        found = self._complete((), 0, 0, owners)
        if found is None and self._in_vain >= MOST_IN_VAIN:
            return f"{self._rejection}, and the search gave up after {MOST_IN_VAIN} choices in vain"
        return found or self._rejection

    def _weights_of_kinds(self) -> list[int]:
        """A number for each host cell, equal for those that make no difference to the instance.

        The sum of those in use says how many of each are.
        """
        kinds = sorted(set(self._wanted.kinds))
        places = range(len(self._cells))
        rows = [tuple(self._fits(kind, place) for kind in kinds) for place in places]
        self._near.usable = sum(1 << place for place in places if any(rows[place]))
        known: dict[object, int] = {}
        return [
            known.setdefault((rows[place], self._near.kind(place)), 1 << 16 * len(known))
            for place in places
        ]

    def _complete(
        self, chosen: tuple[int, ...], used: Places, state: int, owners: Owners
    ) -> Fitted | None:
        """The first completion of the places that are chosen for the first cells.

        ``state`` is the sum of their weights. ``owners`` completes them, whatever is near.
        """
        at = len(chosen)
        if at == self._count:
            return self._agreed(chosen)
        for place, weight in enumerate(self._weights):
            if used >> place & 1 or state + weight in self._dead or not self._fits(at, place):
                continue
            settled = self._matching.settled(owners, at, place)
            after = used | 1 << place
            if settled is not None and self._may_do(after, self._count - at - 1):
                found = self._complete((*chosen, place), after, state + weight, settled)
                if found is not None or self._in_vain >= MOST_IN_VAIN:
                    return found
                self._in_vain += 1
            self._dead.add(state + weight)
        return None

    def _may_do(self, used: Places, missing: int) -> bool:
        problem = self._near.problem(used, missing)
        self._rejection = problem or self._rejection
        return problem is None

    def _agreed(self, chosen: Sequence[int]) -> Fitted | None:
        """The arrangement, if networks and devices are near; else None."""
        devices: PCIPools | str = ()
        if self._wanted.network or self._wanted.devices:
            devices = self._near.taken(sum(1 << place for place in chosen))
        if isinstance(devices, str):
            self._rejection = devices
            return None
        pairs = [self._pair(at, place) for at, place in enumerate(chosen)]
        return Fitted(tuple([use for use in pairs if not isinstance(use, str)]), devices)


def ordered(
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
