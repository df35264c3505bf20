"""A balancer for tests: hosts with VMs, a target that notes what it is asked, agents that obey."""

from collections.abc import Sequence
from typing import Any

import msgspec

from scheduler_worker.errors import BackendError, SchedulerWorkerError
from scheduler_worker.model.ledgers import AskedMigration, AskedPower, MigrationLimits, Progress
from scheduler_worker.model.policies import from_plain
from scheduler_worker.operations.balancing import Balancing, list_balancing
from scheduler_worker.ports import Publisher
from scheduler_worker.scheduling.even_load import EvenLoadBalance
from scheduler_worker.scheduling.ovirt.balances import PowerSavingBalance
from scheduler_worker.service.balancing.administration import BalancingAdministration
from scheduler_worker.service.balancing.balancer import Balancer
from scheduler_worker.service.balancing.settings import BalancingSettings
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.policies.units import unit_catalogue
from tests.support.observers import CountingObserver
from tests.support.services import WEIGHERS, World, host

INTERVAL_S = 60.0
LIMITS = MigrationLimits(begin_within_s=90, end_within_s=600, first_wait_s=100, longest_wait_s=400)
CORES = 4


BALANCES = {"EvenLoad": EvenLoadBalance, "OptimalForPowerSaving": PowerSavingBalance}


def even_load(policy_id: str = "spread", version: int = 1, **parameters: str) -> dict[str, Any]:
    given = {"HighUtilization": "80", "CpuOverCommitDurationMinutes": "1"} | parameters
    document = {"id": policy_id, "name": policy_id, "version": version, "parameters": given}
    return {**document, "balance": {"unit": "EvenLoad"}}


def power_saving(version: int = 1, **parameters: str) -> dict[str, Any]:
    """Empty hosts beyond one are switched off; a small load alone empties no host."""
    switching = {"EnableAutomaticHostPowerManagement": "true", "HostsInReserve": "1"}
    given = {"LowUtilization": "0"} | switching | parameters
    document = {"id": "save", "name": "save", "version": version, "parameters": given}
    uses = {"filters": [{"unit": "RamFilter"}], "balance": {"unit": "OptimalForPowerSaving"}}
    return document | uses


def busy_host(name: str, cluster: str = "default", **vms: float | dict[str, Any]) -> dict[str, Any]:
    """A report of a host of four CPUs; ``vms``: VM -> percent of one CPU that it uses, or more."""
    running = [
        {"id": vm, **({"cpu_percent": load} if isinstance(load, int | float) else load)}
        for vm, load in vms.items()
    ]
    load = sum(each.get("cpu_percent", 0) for each in running) / CORES
    virt = {"cores": CORES, "cpu_percent": load, "vms": running, "committed_mb": 0}
    return host(name, cluster=cluster, virt=virt, memory_mb=65536)


def with_balances(world: World) -> World:
    units = {each.__name__: each for each in (*world.filters, *WEIGHERS)}
    catalogue = unit_catalogue(units, BALANCES)
    world.pipelines = Pipelines(catalogue, world.pipelines.nova_policy, world.options)
    return world


class NotingTarget:
    """Notes what it is asked for; ``failures``: VM -> the error that it raises for it."""

    def __init__(self) -> None:
        self.asked: list[AskedMigration] = []
        self.failures: dict[str, SchedulerWorkerError] = {}
        self.known: dict[str, Progress] = {}
        """VM -> what it says of its migration."""
        self.withdrawn: list[str] = []
        self.is_away = False
        """Whether questions about migrations fail."""

    def migrate(self, cluster: str, migration: AskedMigration) -> None:
        self.asked.append(migration)
        if migration.vm in self.failures:
            raise self.failures[migration.vm]

    def progress(self, migrations: Sequence[AskedMigration]) -> dict[str, Progress]:
        if self.is_away:
            raise BackendError("the target is away")
        return {each.id: self.known[each.vm] for each in migrations if each.vm in self.known}

    def withdraw(self, migration: AskedMigration) -> None:
        if self.is_away:
            raise BackendError("the target is away")
        self.withdrawn.append(migration.vm)


class NotingPower:
    """Notes which power actions it is asked for; ``failures``: host -> the error that it raises."""

    def __init__(self) -> None:
        self.asked: list[AskedPower] = []
        self.failures: dict[str, SchedulerWorkerError] = {}

    def set_power(self, cluster: str, action: AskedPower) -> None:
        self.asked.append(action)
        if action.host in self.failures:
            raise self.failures[action.host]


class NotingPublisher(Publisher):
    """Notes what is cast, unless it fails with ``failure``."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.failure: Exception | None = None

    def cast(self, **message: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent.append(message)


class Scenario:
    """Hosts of a cluster with a balance, and a balancer that is switched on."""

    def __init__(self, mode: str = "on", **settings: Any) -> None:
        self.world = with_balances(World())
        self.observed = CountingObserver()
        self.target = NotingTarget()
        self.power = NotingPower()
        given = {"interval_s": INTERVAL_S, "mode": mode, "limits": LIMITS} | settings
        self.settings = msgspec.convert(given, BalancingSettings)
        self.hosts: dict[str, dict[str, Any]] = {}
        self.put("a", v1=200, v2=60, v3=60)
        self.put("b", w1=40)
        self.put("c", x1=300)
        self.report()
        self.attach(even_load())
        self.balancer = self.another()
        world = self.beside()
        self.balancing = BalancingAdministration(
            world.fleet, lambda: world.pipelines.nova_policy, default_mode=self.settings.mode
        )
        """In another process on the same state."""

    def shown(self) -> list[Balancing]:
        """What every edge shows of each cluster."""
        services = self.world.services._replace(balancing=self.balancing)
        return self.world.call(list_balancing, services=services).items

    def another(self) -> Balancer:
        """The balancer of another worker on the same state."""
        world = self.beside()
        return Balancer(
            world.fleet, lambda: world.pipelines, self.target, self.world.clock,
            lock=world.state, power_target=self.power, settings=self.settings,
            observer=self.observed,
        )  # fmt: skip

    def beside(self) -> World:
        return with_balances(self.world.beside())

    def attach(self, policy: dict[str, Any], cluster: str = "default") -> None:
        world = self.world
        policies = ClusterPolicies(world.fleet, lambda: world.pipelines)
        policies.settle(cluster, lambda _: from_plain(policy))

    def put(self, name: str, **vms: Any) -> None:
        """A host with these VMs, from the next report on."""
        self.hosts[name] = busy_host(name, **vms)

    def report(self) -> None:
        self.world.report(*self.hosts.values())

    def moved(self, vm: str, source: str, destination: str) -> None:
        """A VM is on another host, from the next report on."""
        loads = {
            name: {each["id"]: each for each in found["virt"]["vms"]}
            for name, found in self.hosts.items()
        }
        loads[destination][vm] = loads[source].pop(vm)
        for name in (source, destination):
            self.put(name, **loads[name])

    def round(self, balancer: Balancer | None = None, after_s: float = INTERVAL_S) -> list[str]:
        """Let time pass, let all hosts report, run the balancer; return the VMs it asked for."""
        self.world.clock.advance(after_s)
        self.report()
        before = len(self.target.asked)
        (balancer or self.balancer).run_due()
        return [each.vm for each in self.target.asked[before:]]

    def status(self, cluster: str = "default") -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self.balancing.status(cluster))
        return found
