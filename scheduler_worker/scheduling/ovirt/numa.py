"""Units for NUMA: whether virtual nodes fit on a host's, and how well a VM fits on one."""

from collections.abc import Hashable, Sequence

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.model.virt import HostNumaNode, VirtHost, VirtualNumaNode
from scheduler_worker.scheduling.ovirt import demand, host_metrics
from scheduler_worker.scheduling.ovirt.formulas import MAX_WEIGHT
from scheduler_worker.scheduling.plugin import Filter, Weigher

BEST = 1.0
MOST_TRIED = 1000
"""For one host; it takes some milliseconds."""


class NumaFilter(Filter):
    """Passes hosts whose NUMA nodes can carry the VM's pinned virtual nodes.

    Each virtual node goes to one of the nodes that it is pinned to, with room for all that go
    there. A VM that merely prefers its nodes passes every host with NUMA; a VM on its own host
    passes, and so does every host for a VM without pinned nodes.

    Reads: ``virt.numa_support``, ``virt.numa_nodes``; ``vm.numa_nodes``, huge pages.
    Example: a virtual node of 4 GiB pinned to node 1 needs 4 GiB free on node 1.
    """

    momentary = True
    unit_id = "fcbfe4b1-b83e-4428-b9d3-b3d348b93be6"
    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        vm = spec.machine
        return vm.pinning == "resize_and_pin" or any(node.host_nodes for node in vm.numa_nodes)

    def reads(self, spec: RequestSpec) -> Hashable:
        vm = spec.machine
        return vm.numa_nodes, vm.run_on, demand.hugepage_kb(spec)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        nodes, size_kb = spec.machine.numa_nodes, demand.hugepage_kb(spec)
        fits = host_metrics.of_facts(
            hosts, ("numa", nodes, size_kb), lambda virt: _carries(virt, nodes, size_kb) is True
        )
        return fits | demand.is_there(hosts, spec)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        virt = host_metrics.facts_of(host_state)
        if not virt.numa_support:
            return "does not support NUMA"
        free = {node.index: _free_mb(node) for node in virt.numa_nodes}
        rejection = f"its NUMA nodes have {free} MiB free, which do not carry the VM's pinned nodes"
        if _carries(virt, spec.machine.numa_nodes, demand.hugepage_kb(spec)) is None:
            return f"{rejection} in any of {MOST_TRIED} ways that were tried"
        return rejection


def _carries(virt: VirtHost, nodes: Sequence[VirtualNumaNode], size_kb: int | None) -> bool | None:
    if not virt.numa_support:
        return False
    pinned = [node for node in nodes if node.host_nodes and node.mode != "preferred"]
    return carries(pinned, virt.numa_nodes, size_kb)


def carries(
    nodes: Sequence[VirtualNumaNode],
    host_nodes: Sequence[HostNumaNode],
    size_kb: int | None,
    pinned_cpus: frozenset[int] = frozenset(),
) -> bool | None:
    """Whether the host's nodes have room for all virtual nodes; None: the search gave up.

    Virtual nodes without pinning may go anywhere. If CPUs are pinned, a host node must have one
    of them.
    """
    usable = (each for each in host_nodes if not pinned_cpus or pinned_cpus & set(each.cpus))
    rooms = {node.index: _room(node, size_kb) for node in usable}
    return _Search(nodes, rooms).place(0)


class _Search:
    """The largest are placed first, and each choice is taken back if the rest does not fit.

    What is left is tried once for each step; host nodes count as equal that have equal room and
    that the same virtual nodes are pinned to.
    """

    def __init__(self, nodes: Sequence[VirtualNumaNode], rooms: dict[int, float]) -> None:
        self._nodes = sorted(nodes, key=lambda node: -node.memory_mb)
        self._rooms = rooms
        sets = {node.host_nodes for node in nodes}
        self._kinds = {index: tuple(index in host_nodes for host_nodes in sets) for index in rooms}
        self._tried: set[Hashable] = set()

    def place(self, step: int) -> bool | None:
        """Whether the nodes from this one on have room; None: too much was tried."""
        if step == len(self._nodes):
            return True
        node, rooms = self._nodes[step], self._rooms
        state = step, tuple(sorted((self._kinds[index], room) for index, room in rooms.items()))
        if state in self._tried or not self._has_room(self._nodes[step:]):
            return False
        self._tried.add(state)
        for index in node.host_nodes or tuple(rooms):
            if rooms.get(index, -1.0) >= node.memory_mb:
                rooms[index] -= node.memory_mb
                fits = self.place(step + 1) if len(self._tried) < MOST_TRIED else None
                if fits is not False:
                    return fits
                rooms[index] += node.memory_mb
        return False

    def _has_room(self, nodes: Sequence[VirtualNumaNode]) -> bool:
        """Whether there may be room: by the sum of memory, and by the smallest node."""
        least, rooms = nodes[-1].memory_mb, self._rooms.values()
        if sum(node.memory_mb for node in nodes) > sum(rooms):
            return False
        return not least or len(nodes) <= sum(room // least for room in rooms)


def _free_mb(node: HostNumaNode) -> int:
    return node.memory_mb if node.free_mb is None else node.free_mb


def _room(node: HostNumaNode, size_kb: int | None) -> float:
    """The memory of a node that the VM can have, MiB: in huge pages if it is backed by them."""
    if not size_kb:
        return _free_mb(node)
    return dict(node.free_hugepages).get(size_kb, 0) * size_kb / 1024


class PinningWeight(Weigher):
    """Prefers hosts where virtual NUMA nodes fit on the nodes of the CPUs that the VM is pinned to,
    as they do on the host that it runs on.

    Reads: ``virt.numa_nodes``; ``vm.numa_nodes``, ``vm.pinned_cpus``, ``vm.run_on``.
    Example: a VM pinned to the CPUs of node 0 prefers hosts where node 0 has room for it.
    """

    unit_id = "1b14ac11-20e9-4593-a149-2eb83c60a330"
    lower_is_better = True
    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        return bool(spec.machine.pinned_cpus and spec.machine.numa_nodes)

    def reads(self, spec: RequestSpec) -> Hashable:
        vm = spec.machine
        return vm.numa_nodes, vm.pinned_cpus, demand.hugepage_kb(spec), vm.run_on

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        nodes, size_kb = spec.machine.numa_nodes, demand.hugepage_kb(spec)
        cpus = frozenset(spec.machine.pinned_cpus)
        fits = host_metrics.of_facts(
            hosts,
            ("pinning", nodes, size_kb, cpus),
            lambda virt: carries(nodes, virt.numa_nodes, size_kb, cpus) is True,
        )
        return np.where(fits | demand.is_there(hosts, spec), BEST, float(MAX_WEIGHT))


class OneNumaNodeWeight(Weigher):
    """Prefers hosts without NUMA, or with a NUMA node that holds all of a VM without nodes itself.

    Reads: ``virt.numa_support``, ``virt.numa_nodes``; ``vm.numa_nodes``, the flavor.
    Example: a VM of 32 GiB prefers hosts where one node has as much.
    """

    unit_id = "f58c1cb9-d91f-48a6-a196-c6d22fb10c4e"
    lower_is_better = True
    reads_use = False

    def applies(self, spec: RequestSpec) -> bool:
        return not spec.machine.numa_nodes

    def reads(self, spec: RequestSpec) -> Hashable:
        return spec.flavor.memory_mb, spec.flavor.vcpus

    def weigh(self, hosts: Hosts, spec: RequestSpec) -> Values:
        memory_mb, vcpus = spec.flavor.memory_mb, spec.flavor.vcpus
        fits = host_metrics.of_facts(
            hosts, ("one node", memory_mb, vcpus), lambda virt: _fits_one(virt, memory_mb, vcpus)
        )
        return np.where(fits, BEST, float(MAX_WEIGHT))


def _fits_one(virt: VirtHost, memory_mb: int, vcpus: int) -> bool:
    if not virt.numa_support or not virt.numa_nodes:
        return True
    return any(_free_mb(node) >= memory_mb and len(node.cpus) >= vcpus for node in virt.numa_nodes)
