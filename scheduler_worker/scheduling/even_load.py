"""A balance that relieves hosts with few moves, and does not move a VM back."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, structs

from scheduler_worker.model.cluster_load import (
    BalanceMemory,
    BalancePlan,
    ClusterLoad,
    HostLoad,
    Migration,
    Proposals,
)
from scheduler_worker.scheduling.ovirt.parameters import High, Megabytes, Minutes
from scheduler_worker.scheduling.ovirt.relief import (
    BoundsClock,
    Destinations,
    Headroom,
    SourceHost,
    over,
    reasons,
)
from scheduler_worker.scheduling.plugin import Balance

_FULL_PERCENT = 95
"""At this load VMs get less than they want, so that any move helps."""
_PATIENCE = 5
"""For so many over-commit durations only VMs are moved that alone relieve a host."""


class EvenLoadLimits(msgspec.Struct, frozen=True):
    """Which hosts give up VMs and take them, and for how long a moved VM stays."""

    CpuOverCommitDurationMinutes: Minutes = "2"
    HighUtilization: High = "75"
    MaxFreeMemoryForOverUtilized: Megabytes | None = None
    Headroom: Annotated[str, Meta(pattern=r"^([1-9]|[1-3][0-9])$")] = "5"
    RestMinutes: Annotated[str, Meta(pattern=r"^([1-9][0-9]{0,3})$")] = "60"


class EvenLoadBalance(Balance):
    """Moves as few VMs as possible off hosts with too much load, and none of them back.

    A host has too much load after ``CpuOverCommitDurationMinutes`` at ``HighUtilization`` or more.
    The first choice is the smallest VM that alone brings it ``Headroom`` percent below, then the
    largest that brings it below at all; smaller ones once the load has lasted for longer, or is
    95 % and more. A host takes a VM if it stays as far below itself and keeps more than
    ``MaxFreeMemoryForOverUtilized`` MiB, at most one in that time, and none before it has been up
    for as long. A moved VM stays for ``RestMinutes``.

    Reads: ``virt.cpu_percent`` or ``virt.cpu_usage``, ``virt.cores``, ``virt.vms``, schedulable
    memory, pending VMs.
    Example: a host of four CPUs at 90 %, with VMs of 20, 100 and 200 %, gives up the second, which
    leaves it at 65 %; OptimalForEvenDistribution begins with the first, which is not enough.
    """

    parameters_type = EvenLoadLimits

    def plan(self, cluster: ClusterLoad, memory: BalanceMemory, now_s: float) -> BalancePlan:
        memory = self._updated(cluster, memory, now_s)
        hosts = cluster.settled
        clock = BoundsClock(now_s, 60.0 * float(self.parameters.CpuOverCommitDurationMinutes))
        sources = over(hosts, self._high_percent, clock)
        ready = self._ready(hosts, memory, clock)
        low_mb = float(self.parameters.MaxFreeMemoryForOverUtilized or 0)
        destinations = Destinations(ready, Headroom(self._target_percent, low_mb))
        proposals = Proposals(
            migration
            for source in sources
            for migration in self._migrations(source, destinations, memory.moves, clock)
        )
        why = "" if proposals else _why_nothing(sources, ready)
        return BalancePlan(migrations=proposals, nothing_because=why, memory=memory)

    @property
    def _high_percent(self) -> float:
        return float(self.parameters.HighUtilization)

    @property
    def _target_percent(self) -> float:
        """The load below which sources are brought, and at which destinations stop."""
        return self._high_percent - float(self.parameters.Headroom)

    def _updated(self, cluster: ClusterLoad, memory: BalanceMemory, now_s: float) -> BalanceMemory:
        """The memory as of now: hosts that are up, moved VMs that rest."""
        rest_s = 60.0 * int(self.parameters.RestMinutes)
        known = memory.seen_since_s
        # Nothing is known of any host when a balance begins, and all of them cannot be new.
        first_s = now_s if known else now_s - rest_s
        up = [host.name for host in cluster.hosts if host.state == "up"]
        since_s = {name: known.get(name, first_s) for name in up}
        return structs.replace(memory.without_moves_before(now_s - rest_s), seen_since_s=since_s)

    def _ready(
        self, hosts: Sequence[HostLoad], memory: BalanceMemory, clock: BoundsClock
    ) -> list[HostLoad]:
        """The hosts whose load tells what they can take: up for a while, and with no new VM."""
        latest = clock.now_s - clock.duration_s
        taking = {move.destination for move in memory.moves.values() if move.begun_at_s > latest}
        since_s = memory.seen_since_s
        return [each for each in hosts if each.name not in taking and since_s[each.name] <= latest]

    def _migrations(
        self,
        source: SourceHost,
        destinations: Destinations,
        resting: Mapping[str, object],
        clock: BoundsClock,
    ) -> Iterator[Migration]:
        host = source.host
        load = host.load or 0.0
        surplus = load - self._target_percent * host.shared_cpus
        least = (load - self._high_percent * host.shared_cpus) * _share_to_relieve(host, clock)
        movable = (vm for vm in host.vms if vm.can_move and vm.id not in resting)
        worth_it = [vm for vm in movable if vm.load > least]
        # Those whose load is at least the surplus, ascending; then the others, descending.
        worth_it.sort(key=lambda vm: (vm.load < surplus, abs(vm.load - surplus)))
        for vm in worth_it:
            if names := destinations.with_room_for(vm, host.name):
                yield Migration(
                    vm=vm.id,
                    source=host.name,
                    destinations=names,
                    reason=f"{host.name} {source.why}; the VM brings {vm.load:.0f} % of a CPU",
                )


def _share_to_relieve(host: HostLoad, clock: BoundsClock) -> float:
    """Of the load above the limit, the share that a VM must bring to be worth a move.

    All of it at first, less the longer it lasts, since a host may have small VMs only.
    """
    if host.out_of_bounds_since_s is None or (host.load_percent or 0) >= _FULL_PERCENT:
        return 0.0
    lasts_s = clock.now_s - host.out_of_bounds_since_s
    return min(1.0, _PATIENCE * clock.duration_s / max(lasts_s, 1.0))


def _why_nothing(sources: Sequence[SourceHost], ready: Sequence[HostLoad]) -> str:
    if not sources:
        return "no host has had too much load for long enough"
    if not ready:
        return f"no host is ready to take VMs ({reasons(sources)})"
    return f"no VM may move, would help, and has a host with enough headroom ({reasons(sources)})"
