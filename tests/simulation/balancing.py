"""The scene in which workers balance a cluster, while tenants and administrators use it.

Agents migrate VMs and switch hosts off and on, late, twice as slow, or not at all. Hosts report
what they run through any worker.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from scheduler_worker.errors import (
    BackendError,
    MigrationRefused,
    NoValidHost,
    PowerRefused,
    SchedulerWorkerError,
)
from scheduler_worker.model.cluster_load import Mode
from scheduler_worker.model.ledgers import AskedMigration, AskedPower, MigrationLimits, Progress
from scheduler_worker.model.policies import from_plain
from scheduler_worker.service.balancing.administration import BalancingAdministration
from scheduler_worker.service.balancing.balancer import Balancer
from scheduler_worker.service.balancing.settings import BalancingSettings
from scheduler_worker.service.state.leadership import Leadership
from tests.simulation import plan as plans
from tests.simulation.history import History
from tests.simulation.machine import Machine
from tests.simulation.plan import Base, Deed, Plan
from tests.simulation.stage import Stage, Worker
from tests.simulation.store import BEGINNING_S
from tests.support.balancers import CORES, even_load, power_saving, with_balances
from tests.support.services import World, request

CLUSTER = "default"
REPORTED_EACH_S = 0.8
AGAIN_S = 0.7
"""After how long a person, or an agent, tries again what has failed."""
LIMITS = MigrationLimits(
    most=2, begin_within_s=2.0, end_within_s=3.0, first_wait_s=0.5, longest_wait_s=2.0
)
MEMORY_MB = 65_536


Kind = Literal["spread", "save"]


class Place(Deed, frozen=True, kw_only=True):
    """A tenant wants a place for a VM, which is there after a while."""

    vm: str
    builds_after_s: float


class Stop(Deed, frozen=True, kw_only=True):
    """The VM that is longest on a host goes."""

    host: str


class Load(Deed, frozen=True, kw_only=True):
    """The VMs of a host use so much of one CPU now, in percent."""

    host: str
    percent: int


class Switch(Deed, frozen=True, kw_only=True):
    """An administrator sets the cluster's mode."""

    mode: Mode


class Attach(Deed, frozen=True, kw_only=True):
    """An administrator attaches another policy, or another version of the same."""

    policy: Kind


class Setting(Base, frozen=True, kw_only=True):
    """Parameters of a run in which workers balance."""

    hosts: int = 4
    vms: int = 5
    """How many there are at first."""
    mode: Literal["on", "dry_run"] = "on"
    interval_s: float = 1.0
    trouble: float = 0.0
    """How often an agent refuses, fails, or is silent."""

    @property
    def names(self) -> list[str]:
        return [f"h{number}" for number in range(1, self.hosts + 1)]


_MOMENTS: tuple[plans.When, ...] = ("leases", "commits", "writes", "rounds", "rounds", "asks")
_MODULES = (
    *("service.balancing.rounds", "service.balancing.ledgers", "service.balancing.power"),
    *("service.balancing.balancer", "service.state.leadership", "service.state.writing"),
)


def make(seed: str) -> Plan:
    rng = random.Random(f"{seed}: balancing")
    faults = rng.choice((0, 1, 2, 3, 4))
    setting = Setting(
        workers=rng.choice((2, 2, 3)),
        hosts=rng.choice((3, 4)),
        vms=rng.choice((0, 3, 8)),
        mode=rng.choice(("on", "on", "dry_run")),
        slowness=rng.choice((0.0, 0.1)) if faults else 0.0,
        trouble=rng.choice((0.0, 0.2, 0.5)),
        **plans.preempted(rng, _MODULES),
    )
    deeds: list[Deed] = [Attach(at_s=0.5, policy=rng.choice(("spread", "save", "save")))]
    for number in range(rng.randint(2, 8)):
        after_s = rng.choice((0.05, 0.5, 2.0))
        deeds.append(Place(at_s=plans.time_of(rng), vm=f"t{number}", builds_after_s=after_s))
    for host in rng.choices(setting.names, k=rng.randint(3, 10)):
        at_s, percent = plans.time_of(rng), rng.choice((5, 20, 90, 150))
        deeds.append(
            rng.choice((Stop(at_s=at_s, host=host), Load(at_s=at_s, host=host, percent=percent)))
        )
    for _ in range(rng.choice((0, 1, 3, 6))):
        when: plans.When | None = rng.choice((None, "rounds", "rounds", "asks"))
        modes: tuple[Mode, ...] = ("on", "on", "dry_run", "off")
        mode = rng.choice(modes)
        deeds.append(Switch(at_s=plans.time_of(rng), when=when, mode=mode))
    for _ in range(rng.choice((0, 0, 1, 3))):
        when = rng.choice((None, "rounds", "rounds", "asks"))
        policy: Kind = rng.choice(("spread", "save"))
        deeds.append(Attach(at_s=plans.time_of(rng), when=when, policy=policy))
    deeds += plans.broken(rng, setting, faults, _MOMENTS)
    return plans.ordered(seed, setting, deeds)


class Balancing(Stage):
    """A run in which workers balance."""

    quiet_s = 16.0
    """All that was asked for is done, refused or overdue."""

    def __init__(self, plan: Plan, machine: Machine, history: History) -> None:
        super().__init__(plan, machine, history)
        self.plant = Plant(self)
        self.workers = [
            BalancingWorker(f"w{number}", self) for number in range(1, self.setting.workers + 1)
        ]
        self._versions = 0

    def begin(self) -> None:
        self.plant.begin()

    def insist(self, what: str, work: Callable[["BalancingWorker"], object], tries: int) -> None:
        """Let some worker do it, and again if it fails or nothing is heard of it."""
        has_ended = False

        def attempt(worker: BalancingWorker) -> None:
            nonlocal has_ended
            try:
                work(worker)
            except SchedulerWorkerError as error:
                self.history.add(worker.name, "fails", doing=what, why=str(error))
            else:
                has_ended = True

        def again(left: int) -> None:
            if left and not has_ended:
                self.serve(attempt)
                self.machine.at(AGAIN_S, partial(again, left - 1))

        again(tries)

    # Deeds

    def _place(self, deed: Place) -> None:
        asked = request(deed.vm, request_id=f"place {deed.vm}")

        def place(worker: BalancingWorker) -> None:
            [[chosen]] = worker.world.scheduler.select(asked, remaining_s=3.0).selections
            host = chosen.service_host
            self.history.add(worker.name, "places", vm=deed.vm, host=host)
            self.machine.at(deed.builds_after_s, partial(self.plant.build, deed.vm, host))

        self.insist("placing", place, 1)

    def _stop(self, deed: Stop) -> None:
        vms = self.plant.vms[deed.host]
        if vms:
            del vms[next(iter(vms))]

    def _load(self, deed: Load) -> None:
        self.plant.load(deed.host, deed.percent)

    def _switch(self, deed: Switch) -> None:
        self.insist("switching", lambda worker: worker.switch(deed.mode), 5)

    def _attach(self, deed: Attach) -> None:
        self._versions += 1
        made = even_load if deed.policy == "spread" else power_saving
        document = made(version=self._versions, CpuOverCommitDurationMinutes="0.01")
        document["filters"] = [{"unit": "RamFilter"}, {"unit": "ComputeFilter"}]
        self.insist("attaching", lambda worker: worker.attach(document), 20)


class BalancingWorker(Worker):
    """A worker with a balancer; it places VMs, and takes reports of hosts and agents."""

    world: World
    balancer: Balancer

    def __init__(self, name: str, stage: Balancing) -> None:
        super().__init__(name, stage.store, stage.history, stage.setting)
        self._stage = stage

    def run(self) -> None:
        setting: Setting = self._stage.setting
        limits: dict[str, Any] = {"reservation_ttl_s": 4.0, "remember_answers_s": 1.0}
        made = self.use_cases(hold_timeout_s=setting.hold_timeout_s, **limits)
        self.world = world = with_balances(made)
        self.balancer = Rounds(
            self.history,
            world.fleet,
            lambda: world.pipelines,
            self._stage.plant,
            self.clock,
            lock=world.state,
            power_target=self._stage.plant,
            settings=BalancingSettings(
                mode=setting.mode, interval_s=setting.interval_s, limits=LIMITS
            ),
            name=self.name,
        )
        self.balancer.start()
        self.is_serving = True

    def switch(self, mode: Any) -> None:
        world, default = self.world, self._stage.setting.mode
        administration = BalancingAdministration(
            world.fleet, lambda: world.pipelines.nova_policy, default_mode=default
        )
        administration.switch(CLUSTER, mode)
        self.history.add(self.name, "switches", mode=mode)

    def attach(self, document: dict[str, Any]) -> None:
        world = self.world
        world.desk.in_force.settle(CLUSTER, lambda _: from_plain(document))


class Rounds(Balancer):
    """A balancer whose rounds are in the history."""

    def __init__(self, history: History, *arguments: Any, name: str, **others: Any) -> None:
        super().__init__(*arguments, name=name, **others)
        self._who = name
        self._history = history

    def run_cluster(self, cluster: str, lead: Leadership) -> Any:
        self._history.add(self._who, "rounds", cluster=cluster)
        return super().run_cluster(cluster, lead)


class Plant:
    """The truth about hosts and VMs, and the agents that change it."""

    def __init__(self, stage: Balancing) -> None:
        self._stage = stage
        self._machine = stage.machine
        self._history = stage.history
        setting: Setting = stage.setting
        self._trouble = setting.trouble
        self.vms: dict[str, dict[str, int]] = {name: {} for name in setting.names}
        """Host -> its VMs, and how much of one CPU each uses, in percent."""
        self.power: dict[str, Any] = dict.fromkeys(setting.names, "up")
        for number in range(setting.vms):
            host = self._machine.random.choice(setting.names[:2])
            self.vms[host][f"v{number}"] = self._machine.random.choice((20, 90, 150))

    def begin(self) -> None:
        """Hosts report from now on."""
        for host in self.vms:
            self._report(host)

    def build(self, vm: str, host: str) -> None:
        if self.power[host] == "up":
            self.vms[host].setdefault(vm, 50)

    def load(self, host: str, percent: int) -> None:
        self.vms[host] = dict.fromkeys(self.vms[host], percent)

    # Reports

    def _report(self, host: str) -> None:
        power = {"state": self.power[host], "is_managed": True}
        report: dict[str, Any] = {"host": host, "power": power}
        if power["state"] != "down":
            report |= self._figures(host)
        self._stage.serve(partial(self._take, report))
        self._machine.at(REPORTED_EACH_S, partial(self._report, host))

    def _figures(self, host: str) -> dict[str, Any]:
        vms = self.vms[host]
        return {
            "uuid": f"uuid-{host}",
            "vcpus": 16,
            "vcpus_used": len(vms),
            "memory_mb": MEMORY_MB,
            "memory_mb_used": 1024 * len(vms),
            "local_gb": 100,
            "updated_at": BEGINNING_S + self._machine.now_s,
            "instances": [{"uuid": vm, "vm_state": "active"} for vm in vms],
            "virt": {
                "cores": CORES,
                "cpu_percent": min(100.0, sum(vms.values()) / CORES),
                "committed_mb": 0,
                "vms": [{"id": vm, "cpu_percent": percent} for vm, percent in vms.items()],
            },
        }

    def _take(self, report: dict[str, Any], worker: BalancingWorker) -> None:
        try:
            worker.world.report(report)
        except SchedulerWorkerError as error:
            self._history.add(worker.name, "fails", doing="report", why=str(error))

    # Migrations: a MigrationTarget

    def migrate(self, cluster: str, migration: AskedMigration) -> None:
        self._ask(migration, MigrationRefused, partial(self._begin_migration, migration))

    def progress(self, migrations: object) -> dict[str, Progress]:
        return {}

    def withdraw(self, migration: AskedMigration) -> None:
        """``begin_by_s`` has told the agent already."""

    def _begin_migration(self, asked: AskedMigration) -> None:
        """An agent asks a worker for a destination, as one of Nova's does."""
        if asked.vm not in self.vms[asked.source] or self._is_late(asked):
            return
        moves = request(asked.vm, request_id=f"move {asked.id}", ignore_hosts=[asked.source])

        def begin(worker: BalancingWorker) -> None:
            try:
                [[chosen]] = worker.world.scheduler.select(moves, remaining_s=1.0).selections
            except NoValidHost as error:
                self._tell(asked, Progress(state="refused", why=str(error)))
                return
            host = chosen.service_host
            self._tell(asked, Progress(state="started", destination=host))
            self._machine.at(self._while(), partial(self._end_migration, asked, host))

        self._stage.insist("migrating", begin, 1)

    def _end_migration(self, asked: AskedMigration, host: str) -> None:
        source = self.vms[asked.source]
        if asked.vm not in source:
            return
        if self._fails():
            self._tell(asked, Progress(state="failed", why="it broke"))
            return
        self.vms[host][asked.vm] = source.pop(asked.vm)
        self._history.add("agent", "has moved", vm=asked.vm, host=host)
        self._tell(asked, Progress(state="done", destination=host))

    # Power: a PowerTarget

    def set_power(self, cluster: str, action: AskedPower) -> None:
        self._ask(action, PowerRefused, partial(self._obey, action))

    def _obey(self, asked: AskedPower) -> None:
        if self._is_late(asked):
            return
        if self._fails() or (asked.to != "up" and self.vms[asked.host]):
            self._tell(asked, Progress(state="failed", why="it has VMs"))
            return
        self.power[asked.host] = asked.to
        self._history.add("agent", "has set", host=asked.host, to=asked.to)
        self._tell(asked, Progress(state="done"))

    # Both

    def _ask(
        self,
        asked: AskedMigration | AskedPower,
        refusal: type[SchedulerWorkerError],
        begin: Callable[[], None],
    ) -> None:
        """Called by a worker: the message may be refused or lost, or arrive although it fails."""
        machine = self._machine
        process = machine.runner
        assert process is not None, "only a worker asks"
        machine.sleep(machine.random.uniform(0.0, 0.02))
        outcomes = ("refused", "lost", "unsure") if self._fails() else ("taken",)
        outcome = machine.random.choice(outcomes)
        self._history.add(process.name, "asks", asked=asked, outcome=outcome)
        if outcome in {"taken", "unsure"}:
            machine.at(self._while(), begin)
        machine.sleep(machine.random.uniform(0.0, 0.02))
        if outcome == "refused":
            raise refusal("nobody listens")
        if outcome != "taken":
            raise BackendError("the broker does not confirm")

    def _tell(self, asked: AskedMigration | AskedPower, progress: Progress) -> None:
        """An agent says how far an action is."""
        if self._fails():
            return
        self._history.add("agent", "tells", asked=asked, progress=progress)

        def tell(worker: BalancingWorker) -> None:
            is_migration = isinstance(asked, AskedMigration)
            take = worker.balancer.report if is_migration else worker.balancer.report_power
            take(CLUSTER, asked.id, progress)

        self._stage.insist("telling", tell, 4)

    def _is_late(self, asked: AskedMigration | AskedPower) -> bool:
        return self._stage.store.time_s() >= asked.overdue_at_s

    def _fails(self) -> bool:
        return self._machine.random.random() < self._trouble * 0.4

    def _while(self) -> float:
        return self._machine.random.choice((0.01, 0.3, 1.0))
