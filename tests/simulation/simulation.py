"""One run: executes a plan and records its history."""

import gc
import itertools
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
import tenacity.wait  # noqa: F401

from scheduler_worker.backends.redis import connection, engine
from scheduler_worker.ports import Change
from scheduler_worker.rpc.serving import server
from scheduler_worker.service.placement import deciding
from scheduler_worker.service.state import moves
from tests.simulation import plan as plans
from tests.simulation.broker import Broker, Loop
from tests.simulation.history import History
from tests.simulation.machine import Machine, Process
from tests.simulation.plan import Deed, Plan, Setting
from tests.simulation.preemption import preempting
from tests.simulation.store import Store
from tests.simulation.tenants import Client, Hosts, Racks, Tenant
from tests.simulation.workers import ObservedQueue, Worker

QUIET_S = 32.0
"""After the plan's end: faults are repaired, casts are retried, reservations expire."""
REPORTED_S = 14.0
"""When all hosts report in the quiet time."""
CAUGHT_UP_S = 3.0
"""So long before the end all workers look at the store once more."""
STAGED = (
    "scheduler_worker.service.",
    "scheduler_worker.rpc.",
    "scheduler_worker.backends.redis.",
    "scheduler_worker.waiters",
    "tenacity",
)
MODULES = [module for name, module in sys.modules.items() if name.startswith(STAGED)]
"""The modules that get the machine's threads, time and random source."""


class Simulation:
    """Everything of one run."""

    def __init__(self, plan: Plan, machine: Machine, history: History) -> None:
        self.plan = plan
        self.machine = machine
        self.history = history
        self.setting = setting = plan.setting
        self.store = Store(machine, history, hold_timeout_s=setting.hold_timeout_s)
        self.broker = Broker(machine, history, counts=setting.counts)
        self.racks = Racks(machine, setting)
        self.client = Client(machine, self.broker, history)
        self.people = Process("client")
        self.workers = [
            Worker(f"w{number}", self.store, self.broker, history, setting)
            for number in range(1, setting.workers + 1)
        ]
        self._remembered: dict[Deed, Any] = {}
        self.hosts = Hosts(self.client, self.racks)

    def run(self) -> None:
        for worker in self.workers:
            worker.start()
        self.hosts.report_all()
        for deed in self.plan.deeds:
            self._prepare(deed)
            self.machine.at(deed.at_s, partial(self._await, deed))
        self.machine.at(plans.ENDS_S, self.history.await_nothing)
        self.machine.at(plans.ENDS_S + REPORTED_S, self.hosts.report_all)
        self.machine.run(plans.ENDS_S + QUIET_S - CAUGHT_UP_S)
        for worker in self.workers:
            worker.catch_up()
        self.machine.run(plans.ENDS_S + QUIET_S)

    def left(self) -> dict[str, list[Change]]:
        return {scope: self.store.held(scope) for scope in self.store.scopes()}

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
        self.history.add("plan", type(deed).__name__.lower(), deed=str(deed)[17:])
        getattr(self, f"_{type(deed).__name__.lower()}")(deed)

    def _ask(self, deed: plans.Ask) -> None:
        self.machine.spawn(self.people, Tenant(self.client, self.hosts, self.machine, deed).run)

    def _report(self, deed: plans.Report) -> None:
        self.hosts.report(deed.host, lists=deed.lists, is_cast=deed.is_cast)

    def _use(self, deed: plans.Use) -> None:
        self.racks.use(deed.host, deed.vcpus)

    def _delete(self, deed: plans.Delete) -> None:
        self.hosts.delete(deed.host)

    def _rename(self, deed: plans.Rename) -> None:
        self.racks.rename(deed.host)
        self.hosts.report(deed.host)

    def _move(self, deed: plans.Move) -> None:
        self.racks.clusters[deed.host] = deed.cluster
        self.hosts.report(deed.host)

    def _remove(self, deed: plans.Remove) -> None:
        self.hosts.remove(deed.host)

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

    def _unlink(self, deed: plans.Unlink) -> None:
        self.workers[deed.worker].unlink()

    def _block(self, deed: plans.Block) -> None:
        self.broker.block()
        self.machine.at(deed.for_s, self.broker.unblock)

    def _nack(self, deed: plans.Nack) -> None:
        self.broker.set_nacks(True)
        self.machine.at(deed.for_s, partial(self.broker.set_nacks, False))

    def _restart(self, deed: plans.Restart) -> None:
        self.broker.go_down()
        self.machine.at(deed.for_s, self.broker.come_up)

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


def play(plan: Plan) -> Simulation:
    machine = Machine(plan.seed)
    history = History(machine)
    with _staged(machine, history), _preempted(machine, plan.setting):
        simulation = Simulation(plan, machine, history)
        simulation.run()
    return simulation


def _preempted(machine: Machine, setting: Setting) -> AbstractContextManager[None]:
    if not setting.preempted:
        return nullcontext()
    where = setting.preempted_in
    return preempting(machine.give_way(setting.preempted, long=0.2 if where else 0.02), where)


@contextmanager
def _staged(machine: Machine, history: History) -> Iterator[None]:
    """The worker's modules see the machine's threads, clock and broker, and are silent."""
    numbers = itertools.count(1)
    stand_ins: list[tuple[Any, str, Any]] = [
        (server, "Loop", partial(Loop, machine)),
        (server, "TICK_S", 10.0),
        (deciding, "ClusterQueue", partial(ObservedQueue, history, machine)),
        (connection, "open_nodes", lambda *_, **__: None),
        (engine, "unique_hex", lambda: f"#{next(numbers)}"),
        (moves, "unique_hex", lambda: f"#{next(numbers)}"),
    ]
    silenced = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
            # A thread may be killed between making a coroutine and beginning it.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            for stand_in in stand_ins:
                patch.setattr(*stand_in)
            with machine.inside(*MODULES):
                yield
    finally:
        gc.enable()
        logging.disable(silenced)
