"""What all scenes have in common: workers on one shared state, a plan, and faults.

A scene is a kind of run: what the workers do, who asks them, and what breaks. It extends
:class:`Stage` by a handler for each of its own deeds.
"""

import gc
import itertools
import logging
import sys
import uuid
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import tenacity.wait  # noqa: F401
from greenlet import GreenletExit

from scheduler_worker.backends.redis import connection
from scheduler_worker.ports import Change
from tests.simulation import plan as plans
from tests.simulation.history import History
from tests.simulation.machine import Machine, Process
from tests.simulation.plan import Deed, Plan
from tests.simulation.preemption import preempting
from tests.simulation.store import BEGINNING_S, Faults, Line, Store
from tests.support.services import World

STAGED = (
    "scheduler_worker.service.",
    "scheduler_worker.rpc.",
    "scheduler_worker.backends.redis.",
    "scheduler_worker.components",
    "scheduler_worker.waiters",
    "tenacity",
)
"""The modules that get the machine's threads, time, random source and ids."""
StandIn = tuple[Any, str, Any]
"""A module or class, the name of its attribute, and what is there during a run."""


class WorkerClock:
    """A clock that a plan sets; the monotonic one starts with the machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._booted_s = machine.random.uniform(-10_000.0, 10_000.0)
        self.ahead_s = 0.0

    def time_s(self) -> float:
        return BEGINNING_S + self._machine.now_s + self.ahead_s

    def monotonic_s(self) -> float:
        return self._machine.now_s - self._booted_s


class Worker:
    """One worker's machine: its process ends and restarts, its name and clock stay."""

    def __init__(self, name: str, store: Store, history: History, setting: plans.Base) -> None:
        self.name = name
        self.faults = Faults(setting.slowness)
        self.clock = WorkerClock(store.machine)
        self.machine = store.machine
        self.store = store
        self.history = history
        self.process: Process | None = None
        self.is_stopping = False
        self.is_serving = False
        """Whether it takes messages."""

    @property
    def is_up(self) -> bool:
        return self.process is not None

    def start(self) -> None:
        self.process = Process(self.name, is_preempted=True)
        self.is_serving = False
        self.machine.spawn(self.process, self.run)

    @abstractmethod
    def run(self) -> None:
        """Begin its work; the first thread of its process."""

    def use_cases(self, *, kept: Mapping[str, int] = {}, **settings: Any) -> World:
        """Its use cases, on the shared state; ``kept``: how many changes the store remembers."""
        state = Line(self.store, self.name, self.clock, self.faults, **kept)
        world = World(state=state, clock=self.clock, **settings)
        state.known = lambda scope: world.fleet.cluster(scope).versions
        return world

    def crash(self) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            self.is_stopping = False
            self.machine.kill(process)
            self.has_ended(process)

    def has_ended(self, process: Process) -> None:
        """Called when its process was killed."""

    def pause(self, seconds: float) -> None:
        if self.process is not None:
            self.machine.pause(self.process, seconds)

    def unlink(self) -> None:
        """Lose the connection to the broker, if it has one."""

    def drain(self) -> None:
        """Stop as a daemon does on SIGTERM, if it can do better than to end."""
        self.crash()

    def spawn(self, work: Callable[..., object], *arguments: Any) -> None:
        """Do something in a thread of its process; nothing is done while it is down."""
        if self.process is not None:
            self.machine.spawn(self.process, work, *arguments)


class Stage:
    """Everything of one run."""

    workers: list[Any]
    """Set by each scene."""
    quiet_s: ClassVar[float] = 32.0
    """After the plan's end: faults are repaired, casts are retried, reservations expire."""

    def __init__(self, plan: Plan, machine: Machine, history: History) -> None:
        self.plan = plan
        self.machine = machine
        self.history = history
        self.setting: Any = plan.setting
        self.store = Store(machine, history, hold_timeout_s=self.setting.hold_timeout_s)
        self._remembered: dict[Deed, Any] = {}

    @classmethod
    def stand_ins(cls, machine: Machine, history: History) -> list[StandIn]:
        """What else is replaced during a run of this scene."""
        return []

    def run(self) -> None:
        for worker in self.workers:
            worker.start()
        self.begin()
        for deed in self.plan.deeds:
            self._prepare(deed)
            self.machine.at(deed.at_s, partial(self._await, deed))
        self.machine.at(plans.ENDS_S, self.history.await_nothing)
        self.end()

    def begin(self) -> None:
        """Set the scene, once the workers start."""

    def end(self) -> None:
        """Let the time pass."""
        self.machine.run(plans.ENDS_S + self.quiet_s)

    def left(self) -> dict[str, list[Change]]:
        return {scope: self.store.held(scope) for scope in self.store.scopes()}

    def serve(self, work: Callable[[Any], object]) -> None:
        """Some worker does something, as for a message that it gets."""
        serving = [worker for worker in self.workers if worker.is_up and worker.is_serving]
        if serving:
            worker = self.machine.random.choice(serving)
            worker.spawn(work, worker)

    # Deeds

    def _prepare(self, deed: Deed) -> None:
        """Save the snapshots that a store will fall back to."""
        if isinstance(deed, plans.Down | plans.Failover) and 0 < deed.loses_s < plans.EVERYTHING:
            self.machine.at(max(0.0, deed.at_s - deed.loses_s), partial(self._remember, deed))

    def _remember(self, deed: Deed) -> None:
        self._remembered[deed] = self.store.remember()

    def _await(self, deed: Deed) -> None:
        if deed.when is None:
            self._begin(deed)
        else:
            worker = getattr(deed, "worker", None)
            who = None if worker is None else self.workers[worker].name
            self.history.await_(who, deed.when, partial(self._begin, deed))

    def _begin(self, deed: Deed) -> None:
        self.history.add("plan", type(deed).__name__.lower(), deed=str(deed)[17:], of=deed)
        getattr(self, f"_{type(deed).__name__.lower()}")(deed)

    def _crash(self, deed: plans.Crash) -> None:
        self.workers[deed.worker].crash()
        self.machine.at(deed.for_s, partial(self._revive, self.workers[deed.worker]))

    def _drain(self, deed: plans.Drain) -> None:
        self.workers[deed.worker].drain()
        self.machine.at(deed.for_s, partial(self._revive, self.workers[deed.worker]))

    def _revive(self, worker: Worker) -> None:
        if worker.is_up:
            if worker.is_stopping:
                self.machine.at(0.5, partial(self._revive, worker))
        else:
            worker.start()

    def _pause(self, deed: plans.Pause) -> None:
        worker = self.workers[deed.worker]
        worker.pause(deed.for_s)
        if deed.loses_link:
            worker.unlink()

    def _cut(self, deed: plans.Cut) -> None:
        faults = self.workers[deed.worker].faults
        faults.cut_until_s = max(faults.cut_until_s, self.machine.now_s + deed.for_s)

    def _flaky(self, deed: plans.Flaky) -> None:
        faults = self.workers[deed.worker].faults
        faults.flaky_until_s = max(faults.flaky_until_s, self.machine.now_s + deed.for_s)
        faults.flakiness = deed.flakiness

    def _jump(self, deed: plans.Jump) -> None:
        self.workers[deed.worker].clock.ahead_s += deed.by_s

    def _down(self, deed: plans.Down) -> None:
        if not self.store.is_up:
            return
        self.store.go_down()
        kept: Any = None
        if deed.loses_s:
            lost_all = deed.loses_s == plans.EVERYTHING
            kept = self.store.emptied() if lost_all else self._remembered[deed]
        self.machine.at(deed.for_s, partial(self.store.come_up, kept))

    def _failover(self, deed: plans.Failover) -> None:
        if self.store.is_up:
            self.store.go_down()
            self.machine.at(deed.for_s, partial(self.store.come_up, self._remembered[deed]))
            self.machine.at(deed.for_s, partial(self.store.set_clock, deed.by_s))

    def _clock(self, deed: plans.Clock) -> None:
        self.store.set_clock(deed.by_s)


def play(stage: type[Stage], plan: Plan, machine: Machine | None = None) -> Any:
    """A run of a plan, when it is over."""
    machine = machine or Machine(plan.seed)
    history = History(machine)
    with _staged(stage, machine, history), _preempted(machine, plan.setting):
        run = stage(plan, machine, history)
        run.run()
    return run


def _unraisable(report: Callable[[Any], object], error: Any) -> None:
    """A coroutine of a killed thread ends with it, wherever it waits."""
    if error.exc_type is not GreenletExit:
        report(error)


def _preempted(machine: Machine, setting: plans.Base) -> AbstractContextManager[None]:
    if not setting.preempted:
        return nullcontext()
    where = setting.preempted_in
    if where and f"scheduler_worker.{where}" not in sys.modules:
        raise LookupError(
            f"{where} is no module of the worker, so no thread would lose its turn there"
        )
    return preempting(machine.give_way(setting.preempted, long=0.2 if where else 0.02), where)


@contextmanager
def _staged(stage: type[Stage], machine: Machine, history: History) -> Iterator[None]:
    """The worker's modules see the machine's threads, clock and ids, and are silent."""
    modules = [module for name, module in sys.modules.items() if name.startswith(STAGED)]
    numbers = itertools.count(1)
    ids = SimpleNamespace(**vars(uuid) | {"uuid4": lambda: uuid.UUID(int=next(numbers))})
    everywhere = {"unique_hex": lambda: f"#{next(numbers)}", "uuid": ids}
    silenced = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
            # A thread may be killed between making a coroutine and beginning it.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            patch.setattr(connection, "open_nodes", lambda *_, **__: None)
            patch.setattr(sys, "unraisablehook", partial(_unraisable, sys.unraisablehook))
            for stand_in in stage.stand_ins(machine, history):
                patch.setattr(*stand_in)
            for module in modules:
                for name in everywhere.keys() & vars(module).keys():
                    patch.setattr(module, name, everywhere[name])
            with machine.inside(*modules):
                yield
    finally:
        gc.enable()
        logging.disable(silenced)
