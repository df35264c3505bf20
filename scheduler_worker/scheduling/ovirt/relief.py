"""How oVirt's balances find hosts to relieve, and VMs that may move to others.

A balance compares hosts in stages: first by load or number of VMs, then by memory. Each stage has
sources, which are to give up VMs, and destinations, which may take some.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from scheduler_worker.model.cluster_load import HostLoad, Migration, VmLoad
from scheduler_worker.wording import listed

_ROUNDING = 1e-9
"""By which share of its terms a difference of loads may be wrong, with much to spare."""


class SourceHost(NamedTuple):
    """A host that is to give up VMs."""

    host: HostLoad
    why: str
    empties: bool = False
    """Whether it is to give up all of them, so that it can be switched off."""


class Stage(NamedTuple):
    """Hosts compared by one figure."""

    sources: list[SourceHost]
    destinations: list[HostLoad]


class Headroom(NamedTuple):
    """What a destination must keep."""

    high_percent: float
    """Its load after the move is at most this."""
    low_mb: float
    """Its free memory after the move is more than this."""


class Destinations:
    """Hosts that may take VMs, of which those with room for one are found without asking each."""

    def __init__(self, hosts: Sequence[HostLoad], room: Headroom) -> None:
        known = [at for at, host in enumerate(hosts) if host.mean_percent() is not None]
        known.sort(key=lambda at: -hosts[at].free_mb)
        self._names = [host.name for host in hosts]
        self._room = room
        self._places = np.array(known, "i8")
        self._free_mb = [hosts[at].free_mb for at in known]
        self._load = np.array([hosts[at].load for at in known], "f8")
        self._cpus = np.array([hosts[at].shared_cpus for at in known], "f8")
        full = room.high_percent * self._cpus
        slack = full - self._load + _ROUNDING * (full + self._load)
        self._most_load = list(accumulate(slack.tolist(), max))
        """The most that the first one, the first two, ... of the hosts may take."""

    def with_room_for(self, vm: VmLoad, source: str) -> tuple[str, ...]:
        """The hosts that can take a VM of ``source``, in their order."""
        room, memory_mb, load = self._room, vm.memory_mb, vm.load
        # Memory descends: hosts with enough of it are those before the first with too little.
        count = bisect_left(
            self._free_mb, True, key=lambda free_mb: not free_mb - memory_mb > room.low_mb
        )
        if not count or load > self._most_load[count - 1]:
            return ()
        fits = (self._load[:count] + load) / self._cpus[:count] <= room.high_percent
        places = np.sort(self._places[:count][fits]).tolist()
        return tuple(self._names[at] for at in places if self._names[at] != source)


class BoundsClock(NamedTuple):
    """For how long a load has been out of its bounds."""

    now_s: float
    duration_s: float

    def has_run(self, host: HostLoad) -> bool:
        """Whether the load has been out of its bounds for long enough."""
        since_s = host.out_of_bounds_since_s
        return since_s is not None and self.now_s - since_s >= self.duration_s


def over(
    hosts: Iterable[HostLoad], percent: float, clock: BoundsClock, ratio: float = 0.0
) -> list[SourceHost]:
    """The hosts with too much load, or too many vCPUs for each CPU; the busiest first."""
    sources = []
    for host in hosts:
        load, why = host.load_percent, ""
        if load is not None and load >= percent and clock.has_run(host) and host.num_vms:
            why = f"has a load of {load} %, {percent:g} % and more is too much"
        elif ratio and host.shared_cpus and host.shared_vcpus / host.shared_cpus >= ratio:
            density = host.shared_vcpus / host.shared_cpus
            why = f"has {density:.2g} vCPUs for each CPU, {ratio:g} are allowed"
        if why:
            sources.append(SourceHost(host, why))
    return sorted(sources, key=lambda source: -(source.host.load_percent or 0))


def under(
    hosts: Iterable[HostLoad], percent: float, clock: BoundsClock, *, vms: int
) -> list[tuple[HostLoad, int]]:
    """The hosts with little load and at least so many VMs, with the load; the idlest first."""
    idle = [
        (host, load)
        for host in hosts
        if (load := host.load_percent) is not None
        and load < percent
        and (host.out_of_bounds_since_s is None or clock.has_run(host))
        and host.num_vms >= vms
    ]
    return sorted(idle, key=lambda pair: pair[1])


def migrations(
    stages: Iterable[Stage], room: Headroom, resting: Collection[str]
) -> Iterator[Migration]:
    """A proposal for each VM of a source that may move and fits on a destination.

    ``resting`` are VMs that have just been moved.
    """
    for sources, hosts in stages:
        destinations = Destinations(hosts, room)
        for source, why, empties in sources:
            movable = [vm for vm in source.vms if vm.can_move and vm.id not in resting]
            for vm in sorted(movable, key=lambda vm: vm.load):
                if names := destinations.with_room_for(vm, source.name):
                    yield Migration(
                        vm=vm.id,
                        source=source.name,
                        destinations=names,
                        reason=f"{source.name} {why}",
                        empties=empties,
                    )


def why_nothing(stages: Iterable[Stage]) -> str:
    """Why stages lead to no proposal."""
    stages = [stage for stage in stages if stage.sources]
    if not stages:
        return "no host has to give up VMs"
    sources = [source for stage in stages for source in stage.sources]
    if not any(stage.destinations for stage in stages):
        return f"no host is ready to take VMs ({reasons(sources)})"
    names = listed(list(dict.fromkeys(source.host.name for source in sources)))
    return f"no VM of {names} may move to a host that has room for it ({reasons(sources)})"


def reasons(sources: Iterable[SourceHost]) -> str:
    """Why hosts are to give up VMs, the first ones of many."""
    clauses = dict.fromkeys(f"{source.host.name} {source.why}" for source in sources)
    return listed(list(clauses), between="; ")
