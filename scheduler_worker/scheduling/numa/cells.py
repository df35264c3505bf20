"""Fits one cell of an instance to one cell of a host, or counts the cells of many with room for it.

vCPUs are pinned to CPUs of which the threads of one core are siblings. With ``require`` vCPUs must
be siblings, with ``isolate`` each gets a core of its own, with ``prefer`` (the default) they fill
cores if possible and else get any CPU. CPUs for emulator threads are chosen after the CPUs of the
vCPUs.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from scheduler_worker.model.columns import Mask, Values
from scheduler_worker.model.topology import (
    ANY_PAGES,
    LARGE_PAGES,
    SMALL_PAGES,
    CPUs,
    CPUThreadPolicy,
    InstanceNUMACell,
    NUMACell,
    NUMAPages,
    NUMATopology,
    NUMAUse,
    first,
    numbers,
)

FIGURES = np.dtype(
    [
        *[(name, "?") for name in ("is_first", "has_pages")],
        *[(name, "i4") for name in ("free_pcpus", "cpus")],
        *[(name, "i8") for name in ("cpu_usage", "memory", "memory_usage")],
        *[(name, "i8") for name in ("page_kb", "free_pages", "total_pages")],
    ]
)
"""The layout of a topology's ``figures``: of each cell as many rows as it has sizes of pages, else
one. ``is_first`` is set in the first row of a cell."""


class Ratios(msgspec.Struct, frozen=True):
    """The allocation ratios of shared CPUs and of memory."""

    cpu: float = 1.0
    ram: float = 1.0


def fit_cell(
    host: NUMACell, cell: InstanceNUMACell, reserved: int, ratios: Ratios | None
) -> NUMAUse | str:
    """What the cell would take, with ``reserved`` CPUs for emulator threads; else why it cannot.

    Without ``ratios`` shared CPUs and memory are not limited. The reason is one clause.
    """
    pages = _pages(host, cell)
    problem = _memory_problem(host, cell, pages) or _sharing_problem(host, cell, ratios)
    if problem:
        return problem
    taken = _pinned(host, cell, reserved) if cell.pins else 0
    if isinstance(taken, str):
        return taken
    return NUMAUse(
        id=host.id,
        memory=cell.memory,
        cpus=len(cell.cpuset),
        pinned=numbers(taken),
        page_kb=pages.size_kb if pages else None,
    )


def _pinned(host: NUMACell, cell: InstanceNUMACell, reserved: int) -> CPUs | str:
    free, vcpus = host.free_pcpus, len(cell.pcpuset)
    if free.bit_count() < vcpus + reserved:
        return f"needs {vcpus + reserved} CPUs to pin, {free.bit_count()} are free"
    taken = pinned(host, vcpus, reserved, cell.cpu_thread_policy)
    if taken is None:
        return f"cannot pin {vcpus} CPUs with thread policy {cell.cpu_thread_policy}"
    return taken


def _memory_problem(host: NUMACell, cell: InstanceNUMACell, pages: NUMAPages | None) -> str | None:
    if cell.pagesize or host.mempages:
        if pages is None:
            return f"has no room for {cell.memory} MiB in pages{_page_text(cell.pagesize)}"
    # An instance with CPUs of its own does not share memory either.
    elif cell.memory > (host.free_memory if cell.pins else host.memory):
        return f"needs {cell.memory} MiB, {host.memory_usage} are used of {host.memory}"
    return None


def _sharing_problem(host: NUMACell, cell: InstanceNUMACell, ratios: Ratios | None) -> str | None:
    """Why the cell cannot run on shared CPUs here; memory may be overcommitted with them."""
    if not cell.shares:
        return None
    total, vcpus = host.cpuset.bit_count(), len(cell.cpuset)
    if vcpus > total:
        return f"needs {vcpus} CPUs, there are {total}"
    if ratios is None:
        return None
    if host.cpu_usage + vcpus > total * ratios.cpu:
        return f"needs {vcpus} CPUs, {host.cpu_usage} are used of {total} x {ratios.cpu:g}"
    if host.memory_usage + cell.memory > host.memory * ratios.ram:
        used = f"{host.memory_usage} are used of {host.memory} x {ratios.ram:g}"
        return f"needs {cell.memory} MiB, {used}"
    return None


def _pages(host: NUMACell, cell: InstanceNUMACell) -> NUMAPages | None:
    """The pages for the cell's memory: of the requested size, else of the smallest.

    Memory of a cell that neither pins CPUs nor requests a page size may be overcommitted: then all
    pages count, not only the free ones.
    """
    wanted_kb = cell.memory * 1024
    for pages in _candidates(host, cell.pagesize):
        # Whoever names a size gets pages that nobody else has.
        count = pages.free if cell.pagesize or cell.pins else pages.total
        if wanted_kb <= count * pages.size_kb and not wanted_kb % pages.size_kb:
            return pages
    return None


def _candidates(host: NUMACell, pagesize: int | None) -> Sequence[NUMAPages]:
    if pagesize and pagesize > 0:
        return [pages for pages in host.mempages if pages.size_kb == pagesize]
    # A host lists its pages by size, the smallest first.
    if pagesize == ANY_PAGES:
        return host.mempages[::-1]
    return host.mempages[:0:-1] if pagesize == LARGE_PAGES else host.mempages[:1]


def _page_text(pagesize: int | None) -> str:
    names = {SMALL_PAGES: " of the smallest size", LARGE_PAGES: " larger than the smallest"}
    return f" of {pagesize} KiB" if pagesize and pagesize > 0 else names.get(pagesize or 0, "")


def pinned(
    cell: NUMACell, vcpus: int, reserved: int, policy: CPUThreadPolicy | None
) -> CPUs | None:
    """The CPUs that the instance gets for itself, ``reserved`` ones included; None: none fit.

    The caller has checked that enough are free. A cell of a ``mixed`` instance may pin none of its
    vCPUs; as in Nova, it does not fit then with ``isolate``.
    """
    # There is no core whose siblings could be kept idle, or used for the emulator.
    if not vcpus and (reserved or policy == "isolate"):
        return None
    isolates = policy == "isolate"
    if isolates:
        chosen = _isolated(cell, vcpus)
    else:
        chosen = _packed(cell, vcpus, fewest=2 if policy == "require" else 1)
        if chosen is None and policy != "require":
            chosen = first(vcpus, cell.free_pcpus)
    if chosen is None or not reserved:
        return chosen
    return _with_reserved(cell, chosen, reserved, whole_cores=isolates)


def _isolated(cell: NUMACell, cores: int) -> CPUs | None:
    """All threads of so many idle cores; one of each runs a vCPU, its siblings stay idle.

    With a separate CPU set for shared vCPUs, siblings may be in that set and could not be kept
    idle.
    """
    if cell.threads_per_core > 1 and cell.pcpuset != cell.cpuset:
        return None
    idle = cell.cores_with[-1][:cores] if cell.cores_with else ()
    return sum(idle) if len(idle) == cores else None


def _packed(cell: NUMACell, vcpus: int, fewest: int) -> CPUs | None:
    """As many threads per core as possible, at least ``fewest``, on the first cores."""
    # Full cores first: they leave whole cores to instances that require them.
    for threads in range(cell.threads_per_core, fewest - 1, -1):
        cores = cell.cores_with[threads - 1]
        if cores and threads * len(cores) >= vcpus:
            full, rest = divmod(vcpus, threads)
            chosen = sum(first(threads, core) for core in cores[:full])
            return chosen + first(rest, cores[full]) if rest else chosen
    return None


def _with_reserved(cell: NUMACell, chosen: CPUs, count: int, *, whole_cores: bool) -> CPUs | None:
    """The chosen CPUs and the first free threads beside them, in the order of cores.

    Mostly that is the rest of a core that the vCPUs use in part.
    """
    for core in cell.siblings or (cell.pcpuset,):
        free = core & cell.free_pcpus & ~chosen
        threads = first(count, free)
        count -= threads.bit_count()
        # Isolation keeps the rest of the core idle, so nobody else may have it.
        chosen |= free if whole_cores and threads else threads
    return None if count else chosen


class HostCells:
    """The cells of hosts in arrays, the cells of a host behind each other.

    Most requests have cells alike, so the count of those with room decides whether they fit. Arrays
    count the cells of 10,000 hosts in a few milliseconds; only thread policies look at the cores of
    each cell.
    """

    def __init__(self, topologies: Sequence[NUMATopology]) -> None:
        self._topologies = topologies
        figures = [topology.figures for topology in topologies]
        self._pages = np.frombuffer(b"".join(figures), FIGURES)
        """A row for each size of pages of a cell."""
        is_first = self._pages["is_first"]
        self._cell_of_pages = np.cumsum(is_first) - 1
        rows = np.fromiter(map(len, figures), int, len(figures)) // FIGURES.itemsize
        self._host_of = np.repeat(np.arange(len(figures)), rows)[is_first]
        self._cells = self._pages[is_first]

    def with_room(
        self, cell: InstanceNUMACell, reserved: int, cpu_ratio: Values, ram_ratio: Values
    ) -> Values:
        """How many cells of each host have room for the cell, ``reserved`` CPUs beside it."""
        cells, room = self._cells, self._memory(cell)
        if cell.shares:
            vcpus, cpus, memory = len(cell.cpuset), cells["cpus"], cells["memory"]
            room &= vcpus <= cpus
            room &= cells["cpu_usage"] + vcpus <= cpus * cpu_ratio[self._host_of]
            room &= cells["memory_usage"] + cell.memory <= memory * ram_ratio[self._host_of]
        if cell.pins:
            self._pin(cell, reserved, room)
        counts: Values = np.bincount(self._host_of[room], minlength=len(self._topologies))
        return counts

    def _memory(self, cell: InstanceNUMACell) -> Mask:
        """The cells with enough memory, in pages where the host reports pages."""
        pages, wanted_kb = self._pages, cell.memory * 1024
        usable = pages["has_pages"].copy()
        if cell.pagesize and cell.pagesize > 0:
            usable &= pages["page_kb"] == cell.pagesize
        elif cell.pagesize != ANY_PAGES:  # the smallest come first
            usable &= pages["is_first"] != (cell.pagesize == LARGE_PAGES)
        count = pages["free_pages" if cell.pagesize or cell.pins else "total_pages"]
        usable &= wanted_kb % pages["page_kb"] == 0
        usable &= wanted_kb // pages["page_kb"] <= count
        room = np.zeros(len(self._cells), bool)
        room[self._cell_of_pages[usable]] = True
        if not cell.pagesize:
            cells = self._cells
            free = cells["memory"] - (cells["memory_usage"] if cell.pins else 0)
            room |= ~cells["has_pages"] & (cell.memory <= free)
        return room

    def _pin(self, cell: InstanceNUMACell, reserved: int, room: Mask) -> None:
        """Leave in ``room`` the cells with CPUs to pin."""
        vcpus, policy = len(cell.pcpuset), cell.cpu_thread_policy
        room &= self._cells["free_pcpus"] >= vcpus + reserved
        if not reserved and policy in {None, "prefer"}:
            return  # it takes whichever CPUs are free
        cells = [host_cell for topology in self._topologies for host_cell in topology.cells]
        for at in np.flatnonzero(room).tolist():
            room[at] = pinned(cells[at], vcpus, reserved, policy) is not None
