"""Counts cells of many hosts that have room for a cell of an instance, as ``fit_cell`` does.

Most requests have cells alike, so the count decides whether they fit. Arrays count the cells of
10,000 hosts in a few milliseconds; only thread policies look at the cores of each cell.
"""

from collections.abc import Sequence

import numpy as np

from scheduler_worker.model.columns import Mask, Values
from scheduler_worker.model.topology import (
    ANY_PAGES,
    FIGURES,
    LARGE_PAGES,
    InstanceNUMACell,
    NUMATopology,
)
from scheduler_worker.scheduling.numa.cells import pinned


class HostCells:
    """The cells of hosts in arrays, the cells of a host behind each other."""

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
