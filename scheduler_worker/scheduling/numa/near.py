"""What has to be near the cells of an instance: networks, and PCI devices.

Whether they are depends on the set of host cells alone. A set that is still incomplete is given up
as soon as no further cells could bring what is missing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property

import msgspec

from scheduler_worker.model.requests import NetworkMetadata
from scheduler_worker.model.topology import NUMACell, PCIPools
from scheduler_worker.scheduling.pci.pools import devices_for, given, matched
from scheduler_worker.scheduling.pci.requests import PCIRequest

Places = int
"""A set of host cells as a bit mask of their places in the order in which they are tried."""

_NO_NETWORKS = "has the networks on other NUMA cells"
_NO_DEVICES = "has too few PCI devices near the NUMA cells"


class Near:
    """Judges sets of a host's cells for one request."""

    usable: Places = -1
    """Those that can be chosen at all."""

    def __init__(
        self,
        network: NetworkMetadata | None,
        devices: Sequence[PCIRequest],
        pools: PCIPools,
        cells: Sequence[NUMACell],
    ) -> None:
        """``cells`` are all cells of the host, in the order in which they are tried."""
        self._devices, self._pools, self._cells = devices, pools, cells
        self._networks = _places_of_networks(network, cells)

    def taken(self, chosen: Places) -> PCIPools | str:
        """The devices that an instance on these cells would take; else why there are too few."""
        if not all(places & chosen for places in self._networks):
            return _NO_NETWORKS
        cells = [cell for place, cell in enumerate(self._cells) if chosen >> place & 1]
        found = devices_for(self._devices, self._pools, cells, self._cells)
        return _NO_DEVICES if found is None else found

    def problem(self, chosen: Places, missing: int) -> str | None:
        """Why the set will not do, whichever ``missing`` cells are chosen besides; None: it may."""
        reach = chosen | self.usable if missing else chosen
        if not all(places & reach for places in self._networks):
            return _NO_NETWORKS
        return _NO_DEVICES if any(need.exceeds(chosen, missing) for need in self._needs) else None

    def kind(self, place: int) -> Hashable:
        """Equal for cells that can be exchanged in every set."""
        cell = self._cells[place]
        return (
            tuple(places >> place & 1 for places in self._networks),
            cell.id if cell.id in self._nodes else None,
            cell.socket if any(each.numa_policy == "socket" for each in self._devices) else None,
        )

    @cached_property
    def _nodes(self) -> set[int | None]:
        """Those with devices that match."""
        pools = self._pools
        return {pool.numa_node for each in self._devices for pool in matched(each, pools)}

    @cached_property
    def _needs(self) -> list[_Need]:
        """Of the requested devices; equal requests are added."""
        counts: dict[PCIRequest, int] = {}
        for each in self._devices:
            alike = msgspec.structs.replace(each, count=0, providers=())
            counts[alike] = counts.get(alike, 0) + each.count
        return [self._need(*alike) for alike in counts.items()]

    def _need(self, request: PCIRequest, count: int) -> _Need:
        here: dict[int | None, int] = {}
        for pool in given(request, matched(request, self._pools)):
            here[pool.numa_node] = here.get(pool.numa_node, 0) + pool.count
        everything, unknown = sum(here.values()), here.get(None, 0)
        if request.numa_policy == "preferred":
            return _Need(count, everything)
        if request.numa_policy == "socket":
            return _Need(count, everything - unknown)
        near = [
            (here[cell.id], place)
            for place, cell in enumerate(self._cells)
            if cell.id in here and self.usable >> place & 1
        ]
        anywhere = unknown if request.numa_policy == "legacy" else 0
        return _Need(count, anywhere, tuple(sorted(near, reverse=True)))


class _Need(msgspec.Struct, frozen=True, gc=False):
    """A number of devices, and the most that there are of them."""

    count: int
    anywhere: int
    """Those that need not be on the cells."""
    near: tuple[tuple[int, int], ...] = ()
    """How many are on the cell of each place, the most first."""

    def exceeds(self, chosen: Places, missing: int) -> bool:
        """Whether the set has too few of them, with any ``missing`` cells besides."""
        found = self.anywhere
        for count, place in self.near:
            if chosen >> place & 1:
                found += count
            elif missing:
                missing -= 1
                found += count
        return found < self.count


def _places_of_networks(network: NetworkMetadata | None, cells: Sequence[NUMACell]) -> list[Places]:
    """The places of each requested network that is on some cell of the host."""
    if network is None:
        return []

    def places(name: str | None) -> Places:
        """Those of a network; None: of tunnels."""
        return sum(
            1 << place
            for place, cell in enumerate(cells)
            if (here := cell.network_metadata)
            and (here.tunneled if name is None else name in here.physnets)
        )

    names = [*network.physnets, *([None] if network.tunneled else [])]
    return [found for found in map(places, names) if found]
