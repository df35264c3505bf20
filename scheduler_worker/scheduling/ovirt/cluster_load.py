"""The load of a cluster, as balances see it, from the table of its hosts; and whether the others
have room for the highly available VMs of a host that fails.
"""

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from scheduler_worker.model.cluster_load import ClusterLoad, HostLoad, VmLoad
from scheduler_worker.model.host_records import state_of
from scheduler_worker.model.hosts import Hosts, HostState
from scheduler_worker.model.virt import RunningVm
from scheduler_worker.scheduling.ovirt import host_metrics


def cluster_load(hosts: Hosts, down_after_s: float) -> ClusterLoad:
    """The load of hosts, also of hosts that do not run or have been silent for ``down_after_s``.

    A host that no migration may start from or go to, since a VM is about to arrive or leave, is
    there and marked as not settled. A VM with CPUs of its own counts as pinned.
    """
    columns = {
        "load": host_metrics.shared_load(hosts),
        "shared_cpus": host_metrics.shared_cpus(hosts),
        "free_mb": host_metrics.schedulable_mb(hosts),
        "num_vms": host_metrics.reported_vms(hosts),
        "shared_vcpus": host_metrics.running_shared_vcpus(hosts),
        "pending": host_metrics.pending_vcpus(hosts) + hosts.reserved_instances,
    }
    return ClusterLoad(
        hosts=tuple(
            _host(state, {name: column[row] for name, column in columns.items()}, down_after_s)
            for row, state in enumerate(hosts.states())
        )
    )


def _host(state: HostState, numbers: Mapping[str, float], down_after_s: float) -> HostLoad:
    virt = host_metrics.facts_of(state)
    load = float(numbers["load"])
    return HostLoad(
        name=state.host,
        load=None if np.isnan(load) else load,
        shared_cpus=int(numbers["shared_cpus"]),
        free_mb=float(numbers["free_mb"]),
        num_vms=int(numbers["num_vms"]),
        vms=tuple(map(_vm, virt.vms)),
        shared_vcpus=int(numbers["shared_vcpus"]),
        out_of_bounds_since_s=state.record.over_commit_since_s,
        is_manager=virt.spm,
        is_settled=numbers["pending"] <= 0 and not any(vm.is_changing for vm in virt.vms),
        state=state_of(state.record, state.now_s, down_after_s),
        power=state.record.power,
    )


def _vm(vm: RunningVm) -> VmLoad:
    return VmLoad(
        id=vm.id,
        vcpus=vm.vcpus,
        memory_mb=vm.memory_mb,
        cpu_percent=vm.cpu_percent,
        can_move=vm.migratable and not vm.is_changing and not vm.exclusive_cpus,
        highly_available=vm.highly_available,
    )


OVERLOAD_PERCENT = 200.0
"""How much load a host may get in such an emergency."""


class _Room(NamedTuple):
    """What a host still has for VMs of others; the one with most memory sorts first."""

    lacking_mb: float
    """The free memory, negated."""
    number: int
    """Of the host; so ties keep the order of the hosts."""
    load: float
    """Its load less the most that it may get: 0 where it takes no more."""


def unprotected_hosts(cluster: ClusterLoad) -> list[str]:
    """The hosts whose highly available VMs would not all find room on the others that are up.

    One that is disabled or silent gives no room, but its VMs need some, unless they are seen on
    a host that is up.
    The largest VM takes the host with most memory first, and so on. A host without statistics
    counts as idle: a failure is no time to leave it out.
    """
    hosts = cluster.hosts
    rooms = sorted(
        _Room(-host.free_mb, number, (host.load or 0.0) - OVERLOAD_PERCENT * host.shared_cpus)
        for number, host in enumerate(hosts)
        if host.state == "up"
    )
    elsewhere = {vm.id for host in hosts if host.state == "up" for vm in host.vms}
    return [
        host.name
        for number, host in enumerate(hosts)
        if not _is_protected(_in_need(host, elsewhere), number, rooms)
    ]


def _in_need(host: HostLoad, elsewhere: Collection[str]) -> list[VmLoad]:
    """The highly available VMs of a host, the largest first.

    ``elsewhere`` are VMs that hosts that are up have; what a silent host says of these is old.
    """
    vms = [vm for vm in host.vms if vm.highly_available]
    if host.state == "down":
        vms = [vm for vm in vms if vm.id not in elsewhere]
    return sorted(vms, key=lambda vm: -vm.memory_mb)


def _is_protected(vms: Sequence[VmLoad], number: int, rooms: Sequence[_Room]) -> bool:
    remaining = _Rooms(rooms)
    return all(_placed(vm, number, remaining) for vm in vms)


class _Rooms:
    """Rooms of which the first ones are taken, changed and put back, without a copy of all."""

    def __init__(self, rooms: Sequence[_Room]) -> None:
        self._fresh, self._next = rooms, 0
        self._seen: list[_Room] = []

    def take_first(self) -> _Room | None:
        """The room with most memory, which is not there any more; None: there is none."""
        if self._next < len(self._fresh) and (
            not self._seen or self._fresh[self._next] < self._seen[0]
        ):
            self._next += 1
            return self._fresh[self._next - 1]
        return heapq.heappop(self._seen) if self._seen else None

    def put(self, room: _Room) -> None:
        heapq.heappush(self._seen, room)


def _placed(vm: VmLoad, source: int, rooms: _Rooms) -> bool:
    """Place a VM on the host with most memory that can take its load."""
    passed_over: list[_Room] = []
    is_placed = False
    while not is_placed and (room := rooms.take_first()) is not None:
        has_memory = -room.lacking_mb >= vm.memory_mb
        is_placed = has_memory and room.number != source and room.load + vm.load <= 0
        if is_placed:
            room = _Room(room.lacking_mb + vm.memory_mb, room.number, room.load + vm.load)
        passed_over.append(room)
        if not has_memory:
            break
    for room in passed_over:
        rooms.put(room)
    return is_placed
