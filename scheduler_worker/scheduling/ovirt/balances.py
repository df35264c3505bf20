"""oVirt's balances: which VMs a host gives up, to which hosts, and how many empty hosts stay on."""

from collections.abc import Sequence

from scheduler_worker.model.cluster_load import (
    BalanceMemory,
    BalancePlan,
    ClusterLoad,
    HostLoad,
    PowerAction,
    Proposals,
)
from scheduler_worker.model.virt import VCPU_LOAD_PERCENT
from scheduler_worker.scheduling.ovirt.parameters import EvenLimits, GuestLimits, PowerLimits
from scheduler_worker.scheduling.ovirt.relief import (
    BoundsClock,
    Headroom,
    SourceHost,
    Stage,
    migrations,
    over,
    under,
    why_nothing,
)
from scheduler_worker.scheduling.plugin import Balance


def _was_put(host: HostLoad, state: str) -> bool:
    return host.power.state == state and bool(host.power.by_policy)


def _may_rest(host: HostLoad) -> bool:
    power = host.power
    return power.is_managed and power.is_healthy and not power.is_excluded and not host.is_manager


_REST_MINUTES = 2
"""For how long a moved VM stays where the balance has no over-commit duration of its own."""


class NoBalance(Balance):
    """Moves nothing.

    Reads: nothing.
    Example: the policies ``none`` and ``cluster_maintenance`` have it.
    """

    unit_id = "38440000-8cf0-14bd-c43e-10b96e4ef00a"

    def plan(self, cluster: ClusterLoad, memory: BalanceMemory, now_s: float) -> BalancePlan:
        return BalancePlan(nothing_because="the policy's balance moves nothing")


class _StagedBalance(Balance):
    """Compares hosts in stages; see :mod:`scheduler_worker.scheduling.ovirt.relief`."""

    vcpu_percent = VCPU_LOAD_PERCENT
    """The load of a vCPU without statistics."""

    def plan(self, cluster: ClusterLoad, memory: BalanceMemory, now_s: float) -> BalancePlan:
        hosts = cluster.settled
        memory = memory.without_moves_before(now_s - self.rest_s)
        power = self.power_action(cluster)
        if len(hosts) < 2:
            why = "fewer than two hosts are up and take part in no migration"
            return BalancePlan(nothing_because=why, memory=memory, power=power)
        stages = self.stages(hosts, now_s)
        room = Headroom(self.high_percent, self.low_mb)
        proposals = Proposals(migrations(stages, room, memory.moves.keys()))
        why = "" if proposals else why_nothing(stages)
        return BalancePlan(migrations=proposals, power=power, nothing_because=why, memory=memory)

    def stages(self, hosts: Sequence[HostLoad], now_s: float) -> list[Stage]:
        """Sources and destinations among hosts that are up and settled."""
        raise NotImplementedError

    def power_action(self, cluster: ClusterLoad) -> PowerAction | None:
        """Which host to switch on or off; None: none."""
        return None

    @property
    def rest_s(self) -> float:
        """For how long a VM that has been moved stays where it is."""
        return 60.0 * float(getattr(self.parameters, "CpuOverCommitDurationMinutes", _REST_MINUTES))

    @property
    def high_percent(self) -> float:
        """The load that no host shall have."""
        return float(self.parameters.HighUtilization)

    @property
    def ready_percent(self) -> float:
        """The load below which a host takes VMs of others: 80 % of the highest at most."""
        return min(0.8 * self.high_percent, self.high_percent - self.vcpu_percent)

    @property
    def low_mb(self) -> float:
        """The free memory that no host shall be below."""
        return float(self.parameters.MaxFreeMemoryForOverUtilized or 0)

    def _short_of_memory(self, hosts: Sequence[HostLoad]) -> list[SourceHost]:
        low = self.low_mb
        short = [host for host in hosts if host.free_mb < low and host.num_vms > 1]
        why = f"MiB left, less than {low:g} MiB is too little"
        return [SourceHost(host, f"has {host.free_mb:.0f} {why}") for host in short]


class EvenDistributionBalance(_StagedBalance):
    """Moves VMs off hosts with too much load or too little memory, to those with little load.

    A host has too much load after ``CpuOverCommitDurationMinutes`` at ``HighUtilization`` or more,
    or with ``VCpuToPhysicalCpuRatio`` vCPUs for each CPU; too little memory below
    ``MaxFreeMemoryForOverUtilized`` MiB. Others take VMs below 80 % of that load, or with more than
    ``MinFreeMemoryForUnderUtilized`` MiB, as far as they stay within both limits. The VMs with the
    least load are tried first.

    Reads: ``virt.cpu_percent`` or ``virt.cpu_usage``, ``virt.cores``, ``virt.vms``, schedulable
    memory, pending VMs.
    Example: with ``HighUtilization`` 80 a host that has been at 90 % for two minutes gives a VM to
    one at 25 %.
    """

    unit_id = "7db4ab05-81ab-42e8-868a-aee2df483ed2"
    parameters_type = EvenLimits

    def stages(self, hosts: Sequence[HostLoad], now_s: float) -> list[Stage]:
        clock = BoundsClock(now_s, self.rest_s)
        ratio = float(self.parameters.VCpuToPhysicalCpuRatio)
        ample_mb = float(self.parameters.MinFreeMemoryForUnderUtilized or 0)
        return [
            Stage(
                over(hosts, self.high_percent, clock, ratio),
                [host for host, _ in under(hosts, self.ready_percent, clock, vms=0)],
            ),
            Stage(self._short_of_memory(hosts), [h for h in hosts if h.free_mb > ample_mb]),
        ]


class PowerSavingBalance(_StagedBalance):
    """Empties hosts with little load, and relieves those with much, so that few hosts run.

    Hosts give up VMs below ``LowUtilization`` or with more than ``MinFreeMemoryForUnderUtilized``
    MiB free, and near ``HighUtilization`` or below ``MaxFreeMemoryForOverUtilized`` MiB. With
    ``EnableAutomaticHostPowerManagement`` empty hosts are put into maintenance and switched off,
    until ``HostsInReserve`` of them are left, and are brought back when there are fewer.

    Reads: as OptimalForEvenDistribution; the power state of hosts.
    Example: with ``LowUtilization`` 20 the VMs of a host at 10 % move to one at 40 %.
    """

    unit_id = "736999d0-1023-46a4-9a75-1316ed50e151"
    parameters_type = PowerLimits

    def stages(self, hosts: Sequence[HostLoad], now_s: float) -> list[Stage]:
        clock = BoundsClock(now_s, self.rest_s)
        low, switches = float(self.parameters.LowUtilization), self.switches_hosts
        overloaded = {source.host.name for source in over(hosts, self.high_percent, clock)}
        why = f"% only, less than {low:g} % is too little"
        found = under(hosts, low, clock, vms=1)
        idle = [SourceHost(host, f"has a load of {load} {why}", switches) for host, load in found]
        return [
            Stage(
                over(hosts, self.ready_percent, clock) + idle,
                [host for host in hosts if host.name not in overloaded],
            ),
            Stage(
                self._short_of_memory(hosts) + self._ample_in_memory(hosts),
                [host for host in hosts if host.free_mb > self.low_mb],
            ),
        ]

    def power_action(self, cluster: ClusterLoad) -> PowerAction | None:
        """The next step towards the wanted number of empty hosts that are up."""
        if not self.switches_hosts:
            return None
        hosts, reserve = cluster.hosts, int(self.parameters.HostsInReserve)
        up = [host for host in hosts if host.state == "up" and host.is_settled]
        empty = [host for host in up if not host.num_vms]
        in_maintenance = [host for host in hosts if _was_put(host, "maintenance")]
        resting = [host for host in in_maintenance if not host.power.is_excluded]
        healthy = [host for host in resting if host.power.is_healthy]
        why = f"{len(empty)} empty hosts are up, {reserve} are wanted"
        if len(empty) < reserve:
            off = [host for host in hosts if _was_put(host, "down") and host.power.is_healthy]
            ready = (host for host in resting + off if host.state != "disabled")
            return next((PowerAction(host=host.name, to="up", reason=why) for host in ready), None)
        if healthy and (len(empty) == reserve or len(healthy) > 1):
            why += f", {len(healthy)} more are in maintenance"
            return PowerAction(host=healthy[0].name, to="down", reason=why)
        if len(empty) == reserve:
            return None
        idle = (host.name for host in empty if _may_rest(host))
        return next((PowerAction(host=name, to="maintenance", reason=why) for name in idle), None)

    @property
    def switches_hosts(self) -> bool:
        """Whether empty hosts are switched off."""
        return bool(self.parameters.EnableAutomaticHostPowerManagement == "true")

    def _ample_in_memory(self, hosts: Sequence[HostLoad]) -> list[SourceHost]:
        ample = self.parameters.MinFreeMemoryForUnderUtilized
        if ample is None:
            return []
        unused = [host for host in hosts if host.free_mb > float(ample) and host.num_vms]
        why, switches = f"MiB left, more than {ample} MiB is unused", self.switches_hosts
        return [SourceHost(host, f"has {host.free_mb:.0f} {why}", switches) for host in unused]


class EvenGuestsBalance(_StagedBalance):
    """Moves VMs off the hosts with most of them, if there are at least ``HighVmCount``.

    Others take VMs that have at least ``MigrationThreshold`` fewer. The role of storage pool
    manager counts for ``SpmVmGrace`` VMs.

    Reads: as OptimalForEvenDistribution; the number of VMs, ``virt.spm``.
    Example: of hosts with 12, 8 and 7 VMs the first gives a VM to the last.
    """

    unit_id = "d58c8e32-44e1-418f-9222-52cd887bf9e0"
    parameters_type = GuestLimits

    def stages(self, hosts: Sequence[HostLoad], now_s: float) -> list[Stage]:
        counts = [(host, self.occupied(host)) for host in hosts]
        most = max((count for _, count in counts), default=0)
        least = most - int(self.parameters.MigrationThreshold)
        enough = int(self.parameters.HighVmCount)
        why = f"counts as {most} VMs, {enough} and more are too many"
        sources = [SourceHost(host, why) for host, count in counts if count == most >= enough]
        return [Stage(sources, [host for host, count in counts if count <= least])]

    def occupied(self, host: HostLoad) -> int:
        """For how many VMs a host counts."""
        return host.num_vms + (int(self.parameters.SpmVmGrace) if host.is_manager else 0)
