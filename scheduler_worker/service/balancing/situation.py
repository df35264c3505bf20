"""What a round of balancing decides on: the cluster's load as of now, less what is in progress."""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from msgspec import structs

from scheduler_worker.model.cluster_load import ClusterLoad, HostLoad, Mode, mode_in_force
from scheduler_worker.model.ledgers import AskedMigration, MigrationLedger, PowerLedger, Progress
from scheduler_worker.model.policy_references import PolicyReference
from scheduler_worker.model.virt import bounds_of_load
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock, ClusterLock, MigrationTarget, PowerTarget
from scheduler_worker.scheduling.ovirt.cluster_load import cluster_load
from scheduler_worker.scheduling.plugin import Balance
from scheduler_worker.service.balancing.ledgers import Ledgers
from scheduler_worker.service.balancing.settings import BalancingSettings
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state.replica import ClusterReplica, Fleet


class BalancingDependencies(NamedTuple):
    """The collaborators of all clusters' rounds."""

    fleet: Fleet
    lock: ClusterLock
    pipelines: Callable[[], Pipelines]
    target: MigrationTarget
    power_target: PowerTarget
    ledgers: Ledgers
    clock: Clock
    observer: Observer
    settings: BalancingSettings


class Situation(NamedTuple):
    """A cluster at one moment."""

    now_s: float
    """By the store's clock."""
    policy: PolicyReference
    balance: Balance
    mode: Mode
    load: ClusterLoad
    ledger: MigrationLedger
    power: PowerLedger
    busy_hosts: tuple[str, ...]
    """Those with a load at the upper bound or above."""

    def holds(self, deps: BalancingDependencies, replica: ClusterReplica) -> bool:
        """Whether policy and mode are still the same; the caller holds the replica's lock."""
        policy = deps.pipelines().of(replica).policy
        mode = mode_in_force(replica.switch, policy.id, deps.settings.mode)
        return (policy, mode) == (self.policy, self.mode)


def situation_of(deps: BalancingDependencies, replica: ClusterReplica) -> Situation | None:
    """The cluster as this process knows it; None where its policy has no balance.

    Raises ClusterPolicyError where the policy cannot be compiled here.
    """
    with replica.lock:
        pipeline = deps.pipelines().of(replica)
        if pipeline.balance is None:
            return None
        table = deps.fleet.prepare(replica)
        high = bounds_of_load(replica.policy.parameters if replica.policy else {})["high"]
        load = cluster_load(table, deps.settings.down_after_s)
        switching = replica.power.under_way
        busy = less_in_progress(load, replica.ledger, [switching.host] if switching else [])
        return Situation(
            now_s=table.now_s,
            policy=pipeline.policy,
            balance=pipeline.balance,
            mode=mode_in_force(replica.switch, pipeline.policy.id, deps.settings.mode),
            load=left_alone(busy, replica.power.waiting(table.now_s)),
            ledger=replica.ledger,
            power=replica.power,
            busy_hosts=tuple(
                host.name
                for host in load.hosts
                if host.state != "down" and (host.load_percent or 0) >= high
            ),
        )


def less_in_progress(
    load: ClusterLoad, ledger: MigrationLedger, switching: Collection[str]
) -> ClusterLoad:
    """The load where hosts of migrations under way are not settled, nor are ``switching`` ones.

    The VMs of these migrations cannot be moved.
    """
    moving = ledger.under_way.keys()
    busy = {asked.source for asked in ledger.under_way.values()} | set(switching)
    busy |= {asked.destination for asked in ledger.under_way.values() if asked.destination}
    if not busy:
        return load

    def seen(host: HostLoad) -> HostLoad:
        vms = tuple(
            structs.replace(vm, can_move=False) if vm.id in moving else vm for vm in host.vms
        )
        return structs.replace(host, vms=vms, is_settled=host.is_settled and host.name not in busy)

    return ClusterLoad(hosts=tuple(map(seen, load.hosts)))


def left_alone(load: ClusterLoad, hosts: Collection[str]) -> ClusterLoad:
    """The load where no balance may change the power of these hosts."""

    def seen(host: HostLoad) -> HostLoad:
        if host.name not in hosts:
            return host
        power = structs.replace(host.power, by_policy=False, is_excluded=True)
        return structs.replace(host, power=power)

    return ClusterLoad(hosts=tuple(map(seen, load.hosts))) if hosts else load


def arrivals(
    load: ClusterLoad, ledger: MigrationLedger
) -> Iterator[tuple[AskedMigration, Progress]]:
    """The migrations under way whose VMs are reported by one other host, and not by the source."""
    hosts: dict[str, list[str]] = {vm: [] for vm in ledger.under_way}
    for host in load.hosts:
        for vm in host.vms:
            if vm.id in hosts:
                hosts[vm.id].append(host.name)
    for asked in ledger.under_way.values():
        reporting = hosts[asked.vm]
        if len(reporting) == 1 and reporting != [asked.source]:
            yield asked, Progress(state="done", destination=reporting[0])
