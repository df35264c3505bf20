"""Fits an instance's topology to a host's.

Every cell of the instance gets a host cell of its own. Host cells are tried best first, in the
order of permutations. The first arrangement in which each pair fits, and networks and PCI devices
are near, is taken. A host cell is only chosen if the rest of the instance still fits the rest of
the host, so without networks and devices no choice is in vain. With them, the search gives up
after so many choices in vain; host cells that make no difference to the request count as one.

Networks and PCI devices are near or not depending on the set of host cells alone. A set that is
still incomplete is given up as soon as no further cells could bring what is missing.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cached_property

import msgspec
from msgspec import structs

from scheduler_worker.model.requests import NetworkMetadata
from scheduler_worker.model.topology import (
    InstanceNUMACell,
    InstanceNUMATopology,
    NUMACell,
    NUMATopology,
    NUMAUse,
    PCIPools,
)
from scheduler_worker.scheduling.numa.cells import Ratios, fit_cell
from scheduler_worker.scheduling.pci.pools import PCIRequest, devices_for, given, matched

Owners = dict[int, int]
"""The cell of the instance at each place in use."""

Places = int
"""A set of host cells as a bit mask of their places in the order in which they are tried."""

_NO_NETWORKS = "has the networks on other NUMA cells"
_NO_DEVICES = "has too few PCI devices near the NUMA cells"


class Near:
    """Judges sets of a host's cells for one request."""

    usable: Places = -1
    """The places that can be chosen at all."""

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
        devices = devices_for(self._devices, self._pools, cells, self._cells)
        return _NO_DEVICES if devices is None else devices

    def problem(self, chosen: Places, missing: int) -> str | None:
        """Why the set will not do, whichever ``missing`` cells are chosen besides; None: it may."""
        # A network that is far so far may come near with a cell that is still to be chosen.
        reach = chosen | self.usable if missing else chosen
        if not all(places & reach for places in self._networks):
            return _NO_NETWORKS
        return _NO_DEVICES if any(need.exceeds(chosen, missing) for need in self._needs) else None

    def kind(self, place: int) -> Hashable:
        """Equal for cells that can be exchanged in every set."""
        cell = self._cells[place]
        by_socket = any(device.numa_policy == "socket" for device in self._devices)
        near = tuple(places >> place & 1 for places in self._networks)
        node = cell.id if cell.id in self._nodes else None
        return near, node, cell.socket if by_socket else None

    @cached_property
    def _nodes(self) -> set[int | None]:
        """Those with devices that match."""
        return {pool.numa_node for device in self._devices for pool in matched(device, self._pools)}

    @cached_property
    def _needs(self) -> "list[_Need]":
        """Of the requested devices; equal requests are added."""
        counts: Counter[PCIRequest] = Counter()
        for device in self._devices:
            counts[structs.replace(device, count=0, providers=())] += device.count
        return [self._need(*alike) for alike in counts.items()]

    def _need(self, request: PCIRequest, count: int) -> "_Need":
        here: Counter[int | None] = Counter()
        for pool in given(request, matched(request, self._pools)):
            here[pool.numa_node] += pool.count
        everything, unknown = here.total(), here[None]
        # An upper bound is enough to give a set up; what is taken is decided when the set is
        # complete.
        if request.numa_policy == "preferred":
            return _Need(count, everything)
        if request.numa_policy == "socket":
            return _Need(count, everything - unknown)
        near = [
            (here[cell.id], place)
            for place, cell in enumerate(self._cells)
            if cell.id in here and self.usable >> place & 1
        ]
        # A device of an unknown cell may be near, which is good enough for ``legacy`` alone.
        anywhere = unknown if request.numa_policy == "legacy" else 0
        return _Need(count, anywhere, tuple(sorted(near, reverse=True)))


class _Need(msgspec.Struct, frozen=True, gc=False):
    """A number of devices, and the most that there are of them."""

    count: int
    anywhere: int
    """The devices that need not be on the cells."""
    near: tuple[tuple[int, int], ...] = ()
    """How many are on the cell of each place, the most first."""

    def exceeds(self, chosen: Places, missing: int) -> bool:
        """Whether the set has too few of them, with any ``missing`` cells besides."""
        most = self.anywhere
        for count, place in self.near:
            if chosen >> place & 1:
                most += count
            # The cells that bring the most come first, so this is the most that any others can
            # bring.
            elif missing:
                missing -= 1
                most += count
        return most < self.count


def _places_of_networks(network: NetworkMetadata | None, cells: Sequence[NUMACell]) -> list[Places]:
    if network is None:
        return []

    def places(name: str | None) -> Places:
        """The places of a network; None: of tunnels."""
        return sum(
            1 << place
            for place, cell in enumerate(cells)
            if (here := cell.network_metadata)
            and (here.tunneled if name is None else name in here.physnets)
        )

    names = [*network.physnets, *([None] if network.tunneled else [])]
    # A network on none of the host's cells is as near to one set as to another.
    return [mask for mask in map(places, names) if mask]


MOST_IN_VAIN = 80
"""Choices; they take some milliseconds. Four cells of eight can be chosen in 70 ways."""


class NumaRequest(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True, dict=True):
    """What a request requires of a host's topology, networks and devices."""

    topology: InstanceNUMATopology
    network: NetworkMetadata | None = None
    devices: tuple[PCIRequest, ...] = ()

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """For each cell the first one that fits the same host cells."""
        # Neither its id nor the numbers of its vCPUs say where a cell fits.
        kinds: list[Hashable] = []
        for at, cell in enumerate(self.topology.cells):
            sizes = cell.memory, len(cell.cpuset), len(cell.pcpuset), cell.pagesize
            kinds.append((self.reserved(at), sizes, cell.cpu_policy, cell.cpu_thread_policy))
        return tuple(map(kinds.index, kinds))

    @cached_property
    def alike(self) -> tuple[int, InstanceNUMACell, int] | None:
        """How many cells, the first, and its reserved CPUs, if any host cells for all will do."""
        if self.network is not None or self.devices or not self.kinds or any(self.kinds):
            return None
        return len(self.topology.cells), self.topology.cells[0], self.reserved(0)

    def reserved(self, at: int) -> int:
        """CPUs for emulator threads beside a cell: they are on the first one."""
        return int(not at and self.topology.emulator_threads_policy == "isolate")


class NumaAssignment(msgspec.Struct, frozen=True):
    """What an instance would take, in the order of its cells."""

    cells: tuple[NUMAUse, ...] = ()
    devices: PCIPools = ()


def fit(
    host: NUMATopology,
    pools: PCIPools,
    request: NumaRequest,
    ratios: Ratios | None,
    *,
    packs: bool = False,
) -> NumaAssignment | str:
    """What the instance would take from the host; else why it does not fit: one clause.

    Without ``ratios`` shared CPUs and memory are not limited. ``packs`` prefers the fullest cells
    to the emptiest.
    """
    if len(host.cells) < len(request.topology.cells):
        return f"has {len(host.cells)} NUMA cells, the instance {len(request.topology.cells)}"
    return _Search(host, pools, request, ratios, packs=packs).result()


class _Search:
    """One fit, with the results for pairs and the choices that were in vain.

    Host cells are named by their place in the order in which they are tried.
    """

    def __init__(
        self,
        host: NUMATopology,
        pools: PCIPools,
        request: NumaRequest,
        ratios: Ratios | None,
        *,
        packs: bool,
    ) -> None:
        self._request = request
        self._pools = pools
        self._ratios = ratios
        self._count = len(request.topology.cells)
        self._cells = ordered(host, pools, request, packs=packs)
        self._places = range(len(self._cells))
        self._pairs: dict[tuple[int, int], NUMAUse | str] = {}
        self._rejection = ""

    def result(self) -> NumaAssignment | str:
        """Mostly each cell can have the first place that is left."""
        # Greedy first: right unless cells compete for a place, or networks and devices matter.
        chosen: list[int] = []
        for at in range(self._count):
            for place in self._places:
                if place not in chosen and self._fits(at, place):
                    chosen.append(place)
                    break
            else:
                return self._searched() if chosen else self._misfit()
        return self._agreed(chosen) or self._searched()

    @cached_property
    def _near(self) -> Near:
        return Near(self._request.network, self._request.devices, self._pools, self._cells)

    def _pair(self, at: int, place: int) -> NUMAUse | str:
        # To fit a pair is what costs: cells of one kind share the answer.
        kind = self._request.kinds[at]
        use = self._pairs.get((kind, place))
        if use is None:
            cell, reserved = self._request.topology.cells[kind], self._request.reserved(kind)
            use = fit_cell(self._cells[place], cell, reserved, self._ratios)
            self._pairs[kind, place] = use
        return use

    def _fits(self, at: int, place: int) -> bool:
        return not isinstance(self._pair(at, place), str)

    def _misfit(self) -> str:
        """Why a cell of the instance finds no host cell: the last pair that does not fit."""
        pairs = self._pairs.items()
        place, rejection = [(place, why) for (_, place), why in pairs if isinstance(why, str)][-1]
        return f"NUMA cell {self._cells[place].id} {rejection}"

    def _searched(self) -> NumaAssignment | str:
        owners: Owners = {}
        # Only networks and devices can make a choice vain, so look for any arrangement first.
        if not all(self._placed(owners, at, -1, set()) for at in range(self._count)):
            return self._misfit()
        self._dead: set[int] = set()
        self._in_vain = 0
        self._weights = self._weights_of_kinds()
        if not self._may_do(0, self._count):
            return self._rejection
        fitted = self._complete((), 0, 0, owners)
        if fitted is None and self._in_vain >= MOST_IN_VAIN:
            return f"{self._rejection}, and the search gave up after {MOST_IN_VAIN} choices in vain"
        return fitted or self._rejection

    def _weights_of_kinds(self) -> list[int]:
        """A number for each host cell, equal for cells that make no difference to the instance.

        The sum of those in use says how many of each are.
        """
        kinds = sorted(set(self._request.kinds))
        rows = [tuple(self._fits(kind, place) for kind in kinds) for place in self._places]
        self._near.usable = sum(1 << place for place in self._places if any(rows[place]))
        known: dict[object, int] = {}
        return [
            # Sixteen bits for each kind: no host has so many cells that a sum carries over.
            known.setdefault((rows[place], self._near.kind(place)), 1 << 16 * len(known))
            for place in self._places
        ]

    def _settled(self, owners: Owners, at: int, place: int) -> Owners | None:
        """The owners with the cell at this place, where only cells after it move; None: no way."""
        owner = owners.get(place)
        if owner == at:
            return owners
        moved = {taken: owner for taken, owner in owners.items() if owner != at} | {place: at}
        # An augmenting path (Kuhn): who had the place moves on, if that is possible.
        if owner is None or self._placed(moved, owner, at, {place}):
            return moved
        return None

    def _placed(self, owners: Owners, at: int, settled: int, tried: set[int]) -> bool:
        """Whether the cell now has a place, the first free one if there is one.

        Others may move for it; cells up to ``settled`` stay where they are.
        """
        for place in self._places:
            # A free place moves nobody, so it costs the fewest questions.
            if place not in owners and self._fits(at, place):
                owners[place] = at
                return True
        for place in self._places:
            owner = owners.get(place, settled)
            if owner > settled and place not in tried and self._fits(at, place):
                # Whoever cannot leave a place for this cell cannot leave it for another one either.
                tried.add(place)
                if self._placed(owners, owner, settled, tried):
                    owners[place] = at
                    return True
        return False

    def _complete(
        self, chosen: tuple[int, ...], used: Places, state: int, owners: Owners
    ) -> NumaAssignment | None:
        """The first completion of the places that are chosen for the first cells.

        ``state`` is the sum of their weights. ``owners`` completes them, whatever is near.
        """
        at = len(chosen)
        if at == self._count:
            return self._agreed(chosen)
        for place, weight in enumerate(self._weights):
            # Cells of one weight can be exchanged: a sum that failed once fails with any of them.
            if used >> place & 1 or state + weight in self._dead or not self._fits(at, place):
                continue
            settled = self._settled(owners, at, place)
            after = used | 1 << place
            if settled is not None and self._may_do(after, self._count - at - 1):
                fitted = self._complete((*chosen, place), after, state + weight, settled)
                if fitted is not None or self._in_vain >= MOST_IN_VAIN:
                    return fitted
                self._in_vain += 1
            # Reached only if everything below has failed, so the sum need not be tried again.
            self._dead.add(state + weight)
        return None

    def _may_do(self, used: Places, missing: int) -> bool:
        problem = self._near.problem(used, missing)
        self._rejection = problem or self._rejection
        return problem is None

    def _agreed(self, chosen: Sequence[int]) -> NumaAssignment | None:
        """The arrangement, if networks and devices are near; else None."""
        devices: PCIPools | str = ()
        if self._request.network or self._request.devices:
            devices = self._near.taken(sum(1 << place for place in chosen))
        if isinstance(devices, str):
            self._rejection = devices
            return None
        pairs = [self._pair(at, place) for at, place in enumerate(chosen)]
        return NumaAssignment(tuple([use for use in pairs if not isinstance(use, str)]), devices)


def ordered(
    host: NUMATopology, pools: PCIPools, request: NumaRequest, *, packs: bool
) -> Sequence[NUMACell]:
    """Host cells, best first: by PCI devices (the most for an instance that wants some, else the
    fewest), then by CPUs, then by memory. In the host's order when all are needed.
    """
    if len(host.cells) == len(request.topology.cells):
        return host.cells
    # All cells are of one policy, and the first that names it speaks for them.
    pins = next((cell.pins for cell in request.topology.cells if cell.cpu_policy), False)
    sign = -1 if packs else 1
    devices: Counter[int | None] = Counter()
    for pool in pools:
        # Cells with devices are left to instances that want some.
        devices[pool.numa_node] += -pool.count if request.devices else pool.count

    def rank(cell: NUMACell) -> tuple[int, int, int]:
        cpus = -cell.free_pcpus.bit_count() if pins else cell.cpu_usage
        return devices[cell.id], sign * cpus, -sign * cell.free_memory

    return sorted(host.cells, key=rank)
