"""The inside of a host: NUMA cells with CPUs and pages, pools of PCI devices; and what is taken.

The words carry Nova's names. A fit (``scheduling/numa``) tells what an instance would take: one
:class:`NUMAUse` for each of its cells, and the devices as pools that hold as many as are taken.

Taking is exact: giving the same back leaves what would be there had it never been taken, even
where the host has come to report a CPU as pinned that a promise holds too.

The CPUs of a host are kept as the bits of a number: CPU n is bit n. Thousands of topologies are
compared, and CPUs of cores counted, with each request; so this takes a tenth of the time of sets,
and of their memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from scheduler_worker.model.requests import NetworkMetadata, Size

CPUPolicy = Literal["dedicated", "shared", "mixed"]
CPUThreadPolicy = Literal["prefer", "isolate", "require"]
PCINUMAPolicy = Literal["required", "legacy", "preferred", "socket"]

CPU = Annotated[int, Meta(ge=0, lt=2**16)]
CPUs = int
"""A set of host CPUs as bits."""
Pages = Annotated[int, Meta(ge=0, le=2**50)]

SMALL_PAGES, LARGE_PAGES, ANY_PAGES = -1, -2, -3
"""Page sizes that an instance may ask for without naming one."""


def cpus(numbers: Iterable[int]) -> CPUs:
    """The CPUs of these numbers."""
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


def numbers(cpus: CPUs) -> tuple[int, ...]:
    """The numbers of CPUs, ascending."""
    found = []
    while cpus:
        others = cpus & (cpus - 1)
        found.append((cpus ^ others).bit_length() - 1)
        cpus = others
    return tuple(found)


def first(count: int, cpus: CPUs) -> CPUs:
    """The so many lowest of some CPUs, or all of them."""
    others = cpus
    for _ in range(count):
        others &= others - 1
    return cpus ^ others


class NUMAPages(msgspec.Struct, frozen=True, gc=False):
    """The pages of one size of a host cell."""

    size_kb: Annotated[int, Meta(gt=0, le=2**40)]
    total: Pages
    used: int = 0
    reserved: int = 0

    @property
    def free(self) -> int:
        """Pages that nobody uses and that nothing is reserved of."""
        return self.total - self.used - self.reserved


class NUMAUse(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What one cell of an instance takes from the host cell ``id``."""

    id: int
    memory: Size
    """MiB."""
    cpus: int = 0
    """How many vCPUs float over the shared CPUs."""
    pinned: tuple[int, ...] = ()
    """Numbers of the host CPUs that nobody else may have: pinned ones, those of emulator threads
    and, where threads are isolated, their idle siblings."""
    page_kb: int | None = None
    """The size of its pages; None where the host does not tell of pages."""


class NUMACell(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True, dict=True):
    """A host cell; memory in MiB. What every fit asks of it is found out once."""

    id: int
    memory: int
    cpuset: CPUs = 0
    """CPUs for vCPUs that share."""
    pcpuset: CPUs = 0
    """CPUs for vCPUs that are pinned."""
    cpu_usage: int = 0
    memory_usage: int = 0
    pinned_cpus: CPUs = 0
    siblings: tuple[CPUs, ...] = ()
    """The threads of each core."""
    mempages: tuple[NUMAPages, ...] = ()
    """By rising size."""
    network_metadata: NetworkMetadata | None = None
    socket: int | None = None
    held: tuple[CPUs, ...] = ()
    """What each promise pins, beside what the host reports as pinned."""

    @cached_property
    def free_pcpus(self) -> CPUs:
        """CPUs that can be pinned."""
        free = self.pcpuset & ~self.pinned_cpus
        for each in self.held:
            free &= ~each
        return free

    @cached_property
    def cores_with(self) -> tuple[tuple[CPUs, ...], ...]:
        """For one thread, for two and so on: the free CPUs of cores that have at least so many."""
        free = [core & self.free_pcpus for core in self.siblings]
        return tuple(
            tuple(core for core in free if core.bit_count() >= threads)
            for threads in range(1, max(map(int.bit_count, self.siblings), default=0) + 1)
        )

    @property
    def free_memory(self) -> int:
        """MiB."""
        return self.memory - self.memory_usage

    @property
    def threads_per_core(self) -> int:
        """Of the core with the most; 0 when the host does not tell."""
        return len(self.cores_with)

    def taken(self, use: NUMAUse, times: int = 1) -> NUMACell:
        """The cell after a use; with ``times`` -1 as if that had never been."""
        return NUMACell(
            id=self.id,
            memory=self.memory,
            cpuset=self.cpuset,
            pcpuset=self.pcpuset,
            cpu_usage=self.cpu_usage + times * use.cpus,
            memory_usage=self.memory_usage + times * use.memory,
            pinned_cpus=self.pinned_cpus,
            siblings=self.siblings,
            mempages=tuple(_pages_taken(pages, use, times) for pages in self.mempages),
            network_metadata=self.network_metadata,
            socket=self.socket,
            held=_held(self.held, use, times),
        )


def _pages_taken(pages: NUMAPages, use: NUMAUse, times: int) -> NUMAPages:
    if pages.size_kb != use.page_kb:
        return pages
    used = pages.used + times * (use.memory * 1024 // pages.size_kb)
    return NUMAPages(pages.size_kb, pages.total, used, pages.reserved)


def _held(held: tuple[CPUs, ...], use: NUMAUse, times: int) -> tuple[CPUs, ...]:
    if not use.pinned:
        return held
    pinned = cpus(use.pinned)
    if times > 0:
        return (*held, pinned)
    at = held.index(pinned)
    return held[:at] + held[at + 1 :]


class NUMATopology(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The cells of a host."""

    cells: tuple[NUMACell, ...]

    def taken(self, uses: Iterable[NUMAUse], times: int = 1) -> NUMATopology:
        """The topology after the uses; with ``times`` -1 as if they had never been.

        A use of a cell that is not there is passed over.
        """
        cells = self.cells
        for use in uses:
            cells = tuple(cell.taken(use, times) if cell.id == use.id else cell for cell in cells)
        return NUMATopology(cells)


class InstanceNUMACell(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A cell that an instance asks for; memory in MiB, pages in KiB or one of the negatives."""

    id: int
    memory: Size
    cpuset: frozenset[CPU] = frozenset()
    """vCPUs that share host CPUs."""
    pcpuset: frozenset[CPU] = frozenset()
    """vCPUs that are pinned."""
    pagesize: Annotated[int, Meta(ge=ANY_PAGES, le=2**40)] | None = None
    cpu_policy: CPUPolicy | None = None
    cpu_thread_policy: CPUThreadPolicy | None = None

    @property
    def pins(self) -> bool:
        """Whether some of its vCPUs are pinned."""
        return self.cpu_policy in {"dedicated", "mixed"}

    @property
    def shares(self) -> bool:
        """Whether some of its vCPUs may float."""
        return self.cpu_policy != "dedicated"


class InstanceNUMATopology(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The cells that an instance asks for."""

    cells: tuple[InstanceNUMACell, ...]
    emulator_threads_policy: Literal["share", "isolate"] | None = None


class PCIPool(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The devices of a host that are alike in everything; ``tags`` are what else is known."""

    vendor_id: str
    product_id: str
    numa_node: int | None = None
    count: Annotated[int, Meta(ge=-(2**40), le=2**40)] = 0
    """Below zero for a while when a promise holds what the host reports as taken, too."""
    tags: dict[str, str | None] = {}

    def __hash__(self) -> int:
        return hash((self.vendor_id, self.product_id, self.numa_node, self.count, len(self.tags)))

    def value(self, key: str) -> str | None:
        """What the devices have under a key of a request."""
        if key == "vendor_id":
            return self.vendor_id
        return self.product_id if key == "product_id" else self.tags.get(key)

    def with_count(self, count: int) -> PCIPool:
        """As many of the same devices."""
        return PCIPool(
            vendor_id=self.vendor_id,
            product_id=self.product_id,
            numa_node=self.numa_node,
            count=count,
            tags=self.tags,
        )

    def is_of(self, other: PCIPool) -> bool:
        """Whether devices of one are devices of the other."""
        return self.with_count(other.count) == other


PCIPools = tuple[PCIPool, ...]


def count_devices(pools: Iterable[PCIPool]) -> int:
    """How many devices the pools hold."""
    return sum(pool.count for pool in pools)


def devices_taken(pools: PCIPools, taken: Iterable[PCIPool], times: int = 1) -> PCIPools:
    """The pools after devices were taken from them; with ``times`` -1 as if they never had been.

    A pool that is not there is passed over.
    """
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
    cpu_usage: int = 0
    memory_usage: int = 0
    pinned_cpus: list[CPU] = []
    siblings: list[list[CPU]] = []
    mempages: list[NUMAPages] = []
    network_metadata: NetworkMetadata | None = None
    socket: int | None = None

    def word(self) -> NUMACell:
        """Cells that are older than their ``pcpuset`` pin on the CPUs that others share."""
        return NUMACell(
            id=self.id,
            memory=self.memory,
            cpuset=cpus(self.cpuset),
            pcpuset=cpus(self.cpuset if self.pcpuset is None else self.pcpuset),
            cpu_usage=self.cpu_usage,
            memory_usage=self.memory_usage,
            pinned_cpus=cpus(self.pinned_cpus),
            siblings=tuple(map(cpus, self.siblings)),
            mempages=tuple(sorted(self.mempages, key=lambda pages: pages.size_kb)),
            network_metadata=self.network_metadata,
            socket=self.socket,
        )


class _Topology(msgspec.Struct):
    cells: list[_Cell]


def read_numa_topology(said: Any) -> NUMATopology | None:
    """What a host reports, as object or JSON text; None when it cannot be read as a topology."""
    try:
        plain = msgspec.json.decode(said) if isinstance(said, str) and said else said
        read = msgspec.convert(plain, _Topology) if plain else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return _shared(NUMATopology(tuple(cell.word() for cell in read.cells))) if read else None


@lru_cache(maxsize=4096)
def _shared(topology: NUMATopology) -> NUMATopology:
    """Hosts of a kind share one topology, which saves memory and is quick to recognise."""
    return topology


def read_pci_pools(said: Iterable[Any] | None) -> PCIPools:
    """What a host reports, those with the fewest tags first; what cannot be read is left out."""
    counts: dict[PCIPool, int] = {}
    for each in said or ():
        try:
            pool = msgspec.convert(each, PCIPool)
        except msgspec.ValidationError:
            continue
        kind = pool.with_count(0)
        counts[kind] = counts.get(kind, 0) + pool.count
    kinds = sorted(counts, key=lambda kind: len(kind.tags))
    return tuple(kind.with_count(counts[kind]) for kind in kinds)
