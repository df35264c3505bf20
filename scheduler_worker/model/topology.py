"""The topology of a host: NUMA cells with CPUs and pages, pools of PCI devices, and their use.

Names are Nova's. Fitting (``scheduling/numa``) returns what an instance would take: one
:class:`NUMAUse` for each of its cells, and the devices as pools with as many as are taken.

Taking is exact: giving the same back leaves what would be there had it never been taken, even if
the host has meanwhile reported a CPU as pinned that a reservation pins too.

CPU sets are bit masks: CPU n is bit n. Each request compares thousands of topologies and counts
the CPUs of cores; masks take a tenth of the time and memory of sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from struct import pack
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from scheduler_worker.conversion import convert
from scheduler_worker.model.requests import NetworkMetadata
from scheduler_worker.model.sizes import MAX_CELLS, Size

CPUPolicy = Literal["dedicated", "shared", "mixed"]
CPUThreadPolicy = Literal["prefer", "isolate", "require"]
PCINUMAPolicy = Literal["required", "legacy", "preferred", "socket"]

CPU = Annotated[int, Meta(ge=0, lt=2**16)]
CPUs = int
"""A set of host CPUs as a bit mask."""
Pages = Annotated[int, Meta(ge=0, le=2**50)]
Used = Annotated[int, Meta(ge=-(2**50), le=2**50)]
"""Negative for a while when a reservation is given back before the host reports it as gone."""

SMALL_PAGES, LARGE_PAGES, ANY_PAGES = -1, -2, -3
"""The page sizes that an instance may ask for without a number."""


def cpus(numbers: Iterable[int]) -> CPUs:
    """The mask of these CPU numbers."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def numbers(cpus: CPUs) -> tuple[int, ...]:
    """The CPU numbers of a mask, ascending."""
    ascending = []
    while cpus:
        rest = cpus & (cpus - 1)  # without the lowest
        ascending.append((cpus ^ rest).bit_length() - 1)
        cpus = rest
    return tuple(ascending)


def first(count: int, cpus: CPUs) -> CPUs:
    """The ``count`` lowest of the CPUs, or all of them."""
    rest = cpus
    for _ in range(count):
        rest &= rest - 1  # without the lowest
    return cpus ^ rest


class NUMAPages(msgspec.Struct, frozen=True, gc=False):
    """The pages of one size of a host cell."""

    size_kb: Annotated[int, Meta(gt=0, le=2**40)]
    total: Pages
    used: Used = 0
    reserved: Used = 0

    @property
    def free(self) -> int:
        """Pages that are neither used nor reserved."""
        return self.total - self.used - self.reserved


class NUMAUse(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What one cell of an instance takes from the host cell ``id``."""

    id: int
    memory: Size
    """MiB."""
    cpus: int = 0
    """How many vCPUs it runs on shared CPUs."""
    pinned: tuple[int, ...] = ()
    """Numbers of the host CPUs it has for itself: of pinned vCPUs, of emulator threads and,
    with thread policy ``isolate``, their idle siblings."""
    page_kb: int | None = None
    """The size of its pages; None: the host reports no pages."""


class NUMACell(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True, dict=True):
    """A host cell; memory in MiB. What every fit computes from it is computed once."""

    id: int
    memory: int
    cpuset: CPUs = 0
    """CPUs for shared vCPUs."""
    pcpuset: CPUs = 0
    """CPUs for pinned vCPUs."""
    cpu_usage: int = 0
    memory_usage: int = 0
    pinned_cpus: CPUs = 0
    siblings: tuple[CPUs, ...] = ()
    """The threads of each core."""
    mempages: tuple[NUMAPages, ...] = ()
    """In ascending size."""
    network_metadata: NetworkMetadata | None = None
    socket: int | None = None
    reserved_pins: tuple[CPUs, ...] = ()
    """What each reservation pins, beside what the host reports as pinned. A list, not a union: two
    reservations may pin the same CPU for a while, and giving one back must not free it."""

    @cached_property
    def free_pcpus(self) -> CPUs:
        """CPUs that can still be pinned."""
        free = self.pcpuset & ~self.pinned_cpus
        for reserved_pin in self.reserved_pins:
            free &= ~reserved_pin
        return free

    @cached_property
    def cores_with(self) -> tuple[tuple[CPUs, ...], ...]:
        """At index n - 1: the free CPUs of each core that has at least n of them."""
        free = [core & self.free_pcpus for core in self.siblings]
        return tuple(
            tuple(core for core in free if core.bit_count() >= threads)
            for threads in range(1, max(map(int.bit_count, self.siblings), default=0) + 1)
        )

    def figures(self) -> bytes:
        """As many rows as it has sizes of pages, else one: ``FIGURES`` has their layout."""
        figures = (
            self.free_pcpus.bit_count(),
            self.cpuset.bit_count(),
            self.cpu_usage,
            self.memory,
            self.memory_usage,
        )
        rows = [(pages.size_kb, pages.free, pages.total) for pages in self.mempages] or [(1, 0, 0)]
        return b"".join(
            [
                pack("=2?2i6q", not at, bool(self.mempages), *figures, *row)
                for at, row in enumerate(rows)
            ]
        )

    @property
    def free_memory(self) -> int:
        """MiB."""
        return self.memory - self.memory_usage

    @property
    def threads_per_core(self) -> int:
        """Of the core with the most; 0: the host does not report cores."""
        return len(self.cores_with)

    def taken(self, use: NUMAUse, times: int = 1) -> NUMACell:
        """The cell after a use was taken; ``times`` is -1 to give it back."""
        return structs.replace(
            self,
            cpu_usage=self.cpu_usage + times * use.cpus,
            memory_usage=self.memory_usage + times * use.memory,
            mempages=tuple(_pages_taken(pages, use, times) for pages in self.mempages),
            reserved_pins=_pins_after(self.reserved_pins, use, times),
        )


def _pages_taken(pages: NUMAPages, use: NUMAUse, times: int) -> NUMAPages:
    if pages.size_kb != use.page_kb:
        return pages
    used = pages.used + times * (use.memory * 1024 // pages.size_kb)
    return NUMAPages(pages.size_kb, pages.total, used, pages.reserved)


def _pins_after(reserved_pins: tuple[CPUs, ...], use: NUMAUse, times: int) -> tuple[CPUs, ...]:
    if not use.pinned:
        return reserved_pins
    pinned = cpus(use.pinned)
    if times > 0:
        return (*reserved_pins, pinned)
    at = reserved_pins.index(pinned)
    return reserved_pins[:at] + reserved_pins[at + 1 :]


class NUMATopology(msgspec.Struct, frozen=True, cache_hash=True, dict=True):
    """The cells of a host."""

    cells: tuple[NUMACell, ...]

    @cached_property
    def figures(self) -> bytes:
        """What fits of many hosts at once read: the rows of all cells."""
        return b"".join([cell.figures() for cell in self.cells])

    def taken(self, uses: Iterable[NUMAUse], times: int = 1) -> NUMATopology:
        """The topology less these uses of its cells; ``times`` -1 gives them back."""
        cells = self.cells
        for use in uses:
            cells = tuple(cell.taken(use, times) if cell.id == use.id else cell for cell in cells)
        return NUMATopology(cells)


class InstanceNUMACell(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A requested cell; memory in MiB, page size in KiB or one of the negative constants."""

    id: int
    memory: Size
    cpuset: frozenset[CPU] = frozenset()
    """vCPUs on shared host CPUs."""
    pcpuset: frozenset[CPU] = frozenset()
    """Pinned vCPUs."""
    pagesize: Annotated[int, Meta(ge=ANY_PAGES, le=2**40)] | None = None
    cpu_policy: CPUPolicy | None = None
    cpu_thread_policy: CPUThreadPolicy | None = None

    @property
    def pins(self) -> bool:
        """Whether some of its vCPUs are pinned."""
        return self.cpu_policy in {"dedicated", "mixed"}

    @property
    def shares(self) -> bool:
        """Whether some of its vCPUs may run on shared CPUs."""
        return self.cpu_policy != "dedicated"


class InstanceNUMATopology(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The requested cells of an instance."""

    cells: Annotated[tuple[InstanceNUMACell, ...], Meta(max_length=MAX_CELLS)]
    emulator_threads_policy: Literal["share", "isolate"] | None = None


class PCIDevice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What PCI devices are that are equal in everything; `tags` are their further properties."""

    vendor_id: str
    product_id: str
    numa_node: int | None = None
    tags: dict[str, str | None] = {}


class PCIPool(PCIDevice, frozen=True, gc=False, kw_only=True):
    """The devices of a host that are equal in everything."""

    count: Annotated[int, Meta(ge=-(2**40), le=2**40)] = 0
    """Negative for a while when the host reports a device as taken that is still reserved, too."""

    def __hash__(self) -> int:
        return hash((self.vendor_id, self.product_id, self.numa_node, self.count, len(self.tags)))

    def value(self, key: str) -> str | None:
        """The devices' value of a key in a request's spec."""
        if key == "vendor_id":
            return self.vendor_id
        return self.product_id if key == "product_id" else self.tags.get(key)

    def with_count(self, count: int) -> PCIPool:
        """The same devices in this number."""
        return structs.replace(self, count=count)

    def is_of(self, pool: PCIPool) -> bool:
        """Whether both pools are of the same devices."""
        return (
            self.numa_node == pool.numa_node
            and self.product_id == pool.product_id
            and self.vendor_id == pool.vendor_id
            and self.tags == pool.tags
        )


PCIPools = tuple[PCIPool, ...]


def count_devices(pools: Iterable[PCIPool]) -> int:
    """How many devices the pools hold."""
    return sum(pool.count for pool in pools)


def devices_taken(pools: PCIPools, taken: Iterable[PCIPool], times: int = 1) -> PCIPools:
    """The pools less these devices of theirs; ``times`` -1 gives them back."""
    for devices in taken:
        pools = tuple(
            pool.with_count(pool.count - times * devices.count) if pool.is_of(devices) else pool
            for pool in pools
        )
    return pools


class _Cell(msgspec.Struct):
    """A host cell as it is reported."""

    id: int
    memory: Size
    cpuset: list[CPU]
    pcpuset: list[CPU] | None = None
    cpu_usage: Used = 0
    memory_usage: Used = 0
    pinned_cpus: list[CPU] = []
    siblings: list[list[CPU]] = []
    mempages: list[NUMAPages] = []
    network_metadata: NetworkMetadata | None = None
    socket: int | None = None

    def cell(self) -> NUMACell:
        """The model's form. A report without ``pcpuset`` pins on the CPUs that are shared."""
        converted = {
            "cpuset": cpus(self.cpuset),
            "pcpuset": cpus(self.cpuset if self.pcpuset is None else self.pcpuset),
            "pinned_cpus": cpus(self.pinned_cpus),
            "siblings": tuple(map(cpus, self.siblings)),
            "mempages": tuple(sorted(self.mempages, key=lambda pages: pages.size_kb)),
        }
        return NUMACell(**structs.asdict(self) | converted)


class _Topology(msgspec.Struct):
    cells: list[_Cell]


def read_numa_topology(reported: Any) -> NUMATopology | None:
    """Reads a reported topology, an object or JSON text; None when it is none."""
    try:
        is_text = isinstance(reported, str) and reported
        plain = msgspec.json.decode(reported) if is_text else reported
        read = convert(plain, _Topology) if plain else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return _shared(NUMATopology(tuple(cell.cell() for cell in read.cells))) if read else None


@lru_cache(maxsize=4096)
def _shared(topology: NUMATopology) -> NUMATopology:
    """Makes equal topologies one object, which saves memory and makes comparisons cheap."""
    return topology


def read_pci_pools(reported: Iterable[Any] | None) -> PCIPools:
    """Reads reported pools, those with the fewest tags first; invalid ones are left out."""
    if not reported:
        return ()
    counts: dict[PCIPool, int] = {}
    for plain in reported:
        try:
            pool = convert(plain, PCIPool)
        except msgspec.ValidationError:
            continue
        kind = pool.with_count(0)
        counts[kind] = counts.get(kind, 0) + pool.count
    kinds = sorted(counts, key=lambda kind: len(kind.tags))
    return tuple(kind.with_count(counts[kind]) for kind in kinds)
