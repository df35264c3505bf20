"""A tuner for tests: policies in memory, and simulated agents that set what they are sent."""

from typing import Any, cast

from scheduler_worker.errors import SchedulerWorkerError
from scheduler_worker.ports import Store
from scheduler_worker.service.tuning.cycle import TuningSettings
from scheduler_worker.service.tuning.policies import TuningPolicies
from scheduler_worker.service.tuning.records import EntityState, HostStates, SetBy, TunedHostState
from scheduler_worker.service.tuning.tuner import Tuner
from scheduler_worker.tuning.samples import Entity
from tests.support.observers import CountingObserver
from tests.support.services import World, host
from tests.support.tuning import FakePolicySource

INTERVAL_S = 15.0
BALLOON = """
scope: VM
rules:
  shrink:
    output: memory.balloon
    target: policy.balloon_min
    function: {name: linear, change: 10, time: 1 sec}
"""
"""A balloon loses 10 a second until it is at its minimum."""


def tuned(store: Store, cluster: str, uuid: str, now_s: float) -> None:
    """Store the state of a host on which a rule has set a value, as a cycle does."""
    rules = {"ksm.run": SetBy(("ksm:run",), now_s)}
    entity = EntityState(Entity("Host", uuid), now_s, {"ksm.run": 1.0}, set_by=rules)
    state = TunedHostState(now_s, now_s, [entity])
    HostStates(cluster).write(store, {uuid: state}, now_s)


class FakeAgents:
    """A publisher, with an agent on every host in ``balloons``."""

    def __init__(self, world: World, **balloons: dict[str, float]) -> None:
        self.world = world
        self.balloons = balloons
        self.casts: list[dict[str, Any]] = []
        self.failures: dict[str, SchedulerWorkerError] = {}
        self.load: dict[str, Any] = {}
        self.more: dict[str, Any] = {}
        """Other objects that are reported of a VM."""

    def cast(self, *, topic: str, method: str, server: str, arguments: dict[str, Any]) -> None:
        assert (topic, method) == ("tuning_agent", "apply_tuning")
        if server in self.failures:
            raise self.failures[server]
        self.casts.append(arguments)
        for vm, outputs in arguments["vms"].items():
            self.balloons[server][vm] = outputs.get("memory.balloon", self.balloons[server][vm])

    def report(self, *names: str) -> None:
        """Report what all agents, or these, observe now."""
        for name in names or self.balloons:
            vms = {
                vm: {"memory": {"balloon": at}} | self.more.get(vm, {})
                for vm, at in self.balloons[name].items()
            }
            self.world.report(host(name, load=self.load, vms=vms))


class Scenario:
    """Hosts ``a`` and ``b``, their agents, and a tuner."""

    def __init__(self, policy: str = BALLOON, **settings: Any) -> None:
        self.world = World()
        self.observed = CountingObserver()
        self.agents = FakeAgents(self.world, a={"v1": 1000.0, "v2": 600.0}, b={"v3": 1000.0})
        self.files = FakePolicySource(balloon=policy)
        self.settings = TuningSettings(interval_s=INTERVAL_S, **settings)
        self.tuner = self.another()

    def another(self) -> Tuner:
        fleet, agents = self.world.beside().fleet, cast("Any", self.agents)
        return Tuner(
            fleet, TuningPolicies(fleet.store, self.files), agents, self.world.clock,
            settings=self.settings, observer=self.observed,
        )  # fmt: skip

    def cycle(self, tuner: Tuner | None = None, after_s: float = INTERVAL_S) -> list[Any]:
        """Let time pass, let all agents report, run the tuner; return its casts."""
        self.world.clock.advance(after_s)
        self.agents.report()
        before = len(self.agents.casts)
        (tuner or self.tuner).run_due()
        return self.agents.casts[before:]
