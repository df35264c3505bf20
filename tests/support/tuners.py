"""Tuners for tests: policies in the hand, an agent that does as it is told."""

from __future__ import annotations

from collections import Counter
from typing import Any

from scheduler_worker.errors import SchedulerWorkerError
from scheduler_worker.ports import Observer, PolicyText, PolicyTexts
from scheduler_worker.service.tuner import Tuner
from scheduler_worker.service.tuner_cycle import TuningSettings
from tests.support.services import World, host

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


class Told(Observer):
    """Counts what it is told of tuning."""

    def __init__(self) -> None:
        self.faults: Counter[tuple[str, str]] = Counter()
        self.results: Counter[str] = Counter()
        self.cycles: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    def tuning_cycled(self, scope: str, duration_s: float) -> None:
        self.cycles[scope] += 1

    def tuning_failed(self, scope: str) -> None:
        self.failures[scope] += 1

    def tuning_told(self, result: str, count: int = 1) -> None:
        self.results[result] += count

    def tuning_faulted(self, policy: str, kind: str, count: int) -> None:
        self.faults[policy, kind] += count


class Files:
    """The operator's files, as a test has them."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts
        self.clusters: str | None = 'parameters: {"*": {balloon_min: 500}}'
        self.problems: tuple[str, ...] = ()

    def read(self) -> PolicyTexts:
        policies = (PolicyText(name, f"/{name}.yaml", text) for name, text in self.texts.items())
        clusters = self.clusters and PolicyText("tuning", "/tuning.yaml", self.clusters)
        return PolicyTexts(
            policies=tuple(policies), clusters=clusters or None, problems=self.problems
        )


class Agents:
    """Is the bus, with an agent on every host that is in ``balloons``."""

    def __init__(self, world: World, **balloons: dict[str, float]) -> None:
        self.world = world
        self.balloons = balloons
        self.casts: list[dict[str, Any]] = []
        self.fails: dict[str, SchedulerWorkerError] = {}
        self.load: dict[str, Any] = {}
        self.more: dict[str, Any] = {}
        """What else is reported of a VM."""

    def cast(self, *, topic: str, method: str, server: str, arguments: dict[str, Any]) -> None:
        assert (topic, method) == ("tuning_agent", "apply_tuning")
        if server in self.fails:
            raise self.fails[server]
        self.casts.append(arguments)
        for vm, outputs in arguments["vms"].items():
            self.balloons[server][vm] = outputs.get("memory.balloon", self.balloons[server][vm])

    def report(self, *names: str) -> None:
        """What all agents, or these, see now."""
        for name in names or self.balloons:
            vms = {
                vm: {"memory": {"balloon": at}} | self.more.get(vm, {})
                for vm, at in self.balloons[name].items()
            }
            self.world.report(host(name, load=self.load, vms=vms))


class Stage:
    """A world with hosts ``a`` and ``b``, their agents, and a tuner."""

    def __init__(self, policy: str = BALLOON, **settings: Any) -> None:
        self.world = World()
        self.told = Told()
        self.agents = Agents(self.world, a={"v1": 1000.0, "v2": 600.0}, b={"v3": 1000.0})
        self.files = Files(balloon=policy)
        self.settings = TuningSettings(interval_s=INTERVAL_S, **settings)
        self.tuner = self.another()

    def another(self) -> Tuner:
        """The tuner of another worker on the same state."""
        world = self.world.beside()
        return Tuner(
            world.fleet, self.files, self.agents, self.world.clock,
            settings=self.settings, observer=self.told,
        )  # fmt: skip

    def cycle(self, tuner: Tuner | None = None, after_s: float = INTERVAL_S) -> list[Any]:
        """Time passes, everybody reports, the tuner takes its turn; what it said meanwhile."""
        self.world.clock.advance(after_s)
        self.agents.report()
        said = len(self.agents.casts)
        (tuner or self.tuner).run_due()
        return self.agents.casts[said:]
