"""One run: a plan acted out, and what was seen."""

from __future__ import annotations

import gc
import inspect
import itertools
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from scheduler_worker.backends import memory
from scheduler_worker.ports import Change, Seen
from scheduler_worker.rpc import dispatcher
from scheduler_worker.rpc.amqp import server
from tests.simulation import plan as plans
from tests.simulation.broker import Broker, Link, Loop
from tests.simulation.history import History
from tests.simulation.machine import Machine, Process
from tests.simulation.plan import Deed, Plan
from tests.simulation.store import Store
from tests.simulation.tenants import Client, Hosts, Racks, Tenant
from tests.simulation.workers import Worker

QUIET_S = 32.0
"""After the plan's end: what breaks is whole again, casts are tried again, promises run out."""
REPORTED_S = 14.0
"""When all hosts report in the quiet time."""
CAUGHT_UP_S = 3.0
"""So long before the end all workers look at the store once more."""
STAGED = (
    "scheduler_worker.service.",
    "scheduler_worker.rpc.",
    "scheduler_worker.backends.memory",
    "scheduler_worker.pauses",
)
MODULES = [module for name, module in sys.modules.items() if name.startswith(STAGED)]
"""Whoever of them uses threads, time or dice uses the machine's."""


class Simulation:
    """Everything of one run."""

    def __init__(self, plan: Plan, machine: Machine) -> None:
        self.plan = plan
        self.machine = machine
        self.history = history = History(machine)
        self.setting = setting = plan.setting
        self.store = Store(machine, history, hold_timeout_s=setting.hold_timeout_s)
        self.broker = Broker(machine, history, counts=setting.counts)
        self.racks = Racks(machine, setting)
        self.client = Client(machine, self.broker, history)
        self.people = Process("client")
        self.workers = [
            Worker(
                f"w{number}",
                self.store,
                self.broker,
                history,
                slots=setting.slots,
                max_batch=setting.max_batch,
                hold_timeout_s=setting.hold_timeout_s,
                acquire_timeout_s=setting.acquire_timeout_s,
                promise_ttl_s=setting.promise_ttl_s,
                wait_timeout_s=setting.wait_timeout_s,
                max_waiting=setting.max_waiting,
                remember_answers_s=setting.remember_answers_s,
            )
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
        """What the store holds at last."""
        state = self.store.state
        return {scope: state.changes(scope, Seen()).entries for scope in sorted(state._scopes)}

    # Deeds

    def _prepare(self, deed: Deed) -> None:
        """What a store shall fall back to is kept in time."""
        if isinstance(deed, plans.Down) and 0 < deed.loses_s < plans.EVERYTHING:
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
        self.machine.spawn(self.people, Tenant(self.client, self.racks, self.machine, deed).run)

    def _report(self, deed: plans.Report) -> None:
        self.hosts.report(deed.host, lists=deed.lists, is_cast=deed.is_cast)

    def _use(self, deed: plans.Use) -> None:
        others = self.racks.others
        others[deed.host] = max(0, others[deed.host] + deed.vcpus)

    def _delete(self, deed: plans.Delete) -> None:
        self.hosts.delete(deed.host)

    def _crash(self, deed: plans.Crash) -> None:
        worker = self.workers[deed.worker]
        worker.crash()
        self.machine.at(deed.for_s, partial(self._revive, worker))

    def _drain(self, deed: plans.Drain) -> None:
        worker = self.workers[deed.worker]
        worker.drain()
        self.machine.at(deed.for_s, partial(self._revive, worker))

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
        self.broker.is_blocked = True
        self.machine.at(deed.for_s, self._unblock)

    def _unblock(self) -> None:
        self.broker.unblock()

    def _restart(self, deed: plans.Restart) -> None:
        self.broker.go_down()
        self.machine.at(deed.for_s, self.broker.come_up)

    def _down(self, deed: plans.Down) -> None:
        if not self.store.is_up:
            return
        self.store.go_down()
        kept: Any = None
        if deed.loses_s:
            kept = {} if deed.loses_s == plans.EVERYTHING else self._remembered[deed]
        self.machine.at(deed.for_s, partial(self.store.come_up, kept))


def play(plan: Plan) -> Simulation:
    """Act out a plan."""
    machine = Machine(plan.seed)
    with _staged(machine):
        simulation = Simulation(plan, machine)
        simulation.run()
    return simulation


@contextmanager
def _staged(machine: Machine) -> Iterator[None]:
    """The worker's modules see the machine's threads, clock and broker, and are silent."""
    numbers = itertools.count(1)
    stand_ins: list[tuple[Any, str, Any]] = [
        (server, "Link", Link),
        (server, "Loop", partial(Loop, machine)),
        (server, "TICK_S", 10.0),
        (dispatcher, "inspect", INSPECT),
        (memory, "LOOK_AGAIN_S", 0.5),
        (memory, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"#{next(numbers)}"))),
    ]
    kept = [(module, name, getattr(module, name)) for module, name, _ in stand_ins]
    silenced = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        for module, name, stand_in in stand_ins:
            setattr(module, name, stand_in)
        with machine.inside(*MODULES):
            yield
    finally:
        for module, name, original in kept:
            setattr(module, name, original)
        gc.enable()
        logging.disable(silenced)


_SIGNATURES: dict[object, inspect.Signature] = {}


def _signature(handler: Any) -> inspect.Signature:
    """Each worker that starts asks anew, and that takes long."""
    known = _SIGNATURES.get(handler.__func__)
    if known is None:
        known = _SIGNATURES[handler.__func__] = inspect.signature(handler)
    return known


INSPECT = SimpleNamespace(signature=_signature, iscoroutine=inspect.iscoroutine)
