"""The scene in which workers record what administrators change, and API processes keep it in SQL.

Entries are read from the shared state, so a change without one, or an entry that is lost on its way
to SQL, is found whatever has happened to the processes.
"""

import itertools
import random
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

from scheduler_worker.components import Periodic
from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import PolicyStoreUnavailable, SchedulerWorkerError
from scheduler_worker.operations.tuning import set_tuning_policy, withdraw_tuning_policy
from scheduler_worker.policy_store import AuditEntry
from scheduler_worker.ports import Change
from scheduler_worker.service.policies.audit import SCOPE, SharedAudit
from scheduler_worker.service.policies.reconciler import Reconciler
from scheduler_worker.service.tuning import records
from tests.simulation import plan as plans
from tests.simulation.history import Blame, Event, Findings, History
from tests.simulation.machine import Machine
from tests.simulation.plan import Base, Deed, Fault, Plan
from tests.simulation.stage import Stage, Worker
from tests.support.tuning import rule

COLLECTED_EACH_S = 1.0
WORKERS = 2
"""Of all processes; the others are API processes."""


class Set(Deed, frozen=True, kw_only=True):
    """An administrator sets a tuning policy."""

    name: str


class Withdraw(Deed, frozen=True, kw_only=True):
    """An administrator withdraws a tuning policy."""

    name: str


class Away(Fault, frozen=True, kw_only=True):
    """The SQL database is away, or stores and does not say so."""

    for_s: float
    stores: bool


class Setting(Base, frozen=True, kw_only=True):
    """Parameters of a run with an audit."""


_MOMENTS: tuple[plans.When, ...] = ("writes", "writes", "stores", "stores")
_MODULES = ("service.policies.audit", "service.tuning.policies", "service.state.replica")


def make(seed: str) -> Plan:
    rng = random.Random(f"{seed}: auditing")
    faults = rng.choice((0, 1, 2, 3))
    setting = Setting(
        workers=WORKERS + rng.choice((1, 2, 2)),
        slowness=rng.choice((0.0, 0.1)) if faults else 0.0,
        **plans.preempted(rng, _MODULES),
    )
    deeds: list[Deed] = []
    for _ in range(rng.randint(5, 20)):
        kind: type[Set] | type[Withdraw] = rng.choice((Set, Set, Withdraw))
        deeds.append(kind(at_s=plans.time_of(rng), name=rng.choice("pq")))
    for _ in range(rng.choice((0, 1, 2))):
        for_s, stores = rng.choice((0.1, 0.5, 2.0)), rng.random() < 0.5
        when: plans.When | None = rng.choice((None, "stores"))
        deeds.append(Away(at_s=plans.time_of(rng), when=when, for_s=for_s, stores=stores))
    deeds += plans.broken(rng, setting, faults, _MOMENTS)
    return plans.ordered(seed, setting, deeds)


class Archive:
    """The audit in the SQL database."""

    def __init__(self, machine: Machine, history: History) -> None:
        self._machine = machine
        self._history = history
        self.entries: Counter[AuditEntry] = Counter()
        """How often each was stored."""
        self.away: Away | None = None

    def record(self, entry: AuditEntry) -> None:
        machine = self._machine
        machine.sleep(machine.random.uniform(0.0, 0.02))
        if self.away is None or self.away.stores:
            self.entries[entry] += 1
            process = machine.runner
            self._history.add(process.name if process else "", "stores", entry=entry)
        if self.away is not None:
            raise PolicyStoreUnavailable("the database is away")
        machine.sleep(machine.random.uniform(0.0, 0.02))


class Auditing(Stage):
    """A run in which administrators change something that is kept in an audit."""

    quiet_s = 8.0
    """All entries get into SQL."""

    def __init__(self, plan: Plan, machine: Machine, history: History) -> None:
        super().__init__(plan, machine, history)
        self.archive = Archive(machine, history)
        self.workers = [Editor(f"w{number}", self) for number in range(1, WORKERS + 1)]
        numbers = range(1, self.setting.workers - WORKERS + 1)
        self.workers += [Collector(f"api{number}", self) for number in numbers]
        self._texts = (f"# {number}\n{rule('target: 1')}" for number in itertools.count(1))

    def _set(self, deed: Set) -> None:
        text = next(self._texts)
        self.serve(lambda worker: worker.edit(set_tuning_policy, name=deed.name, text=text))

    def _withdraw(self, deed: Withdraw) -> None:
        self.serve(lambda worker: worker.edit(withdraw_tuning_policy, name=deed.name))

    def _away(self, deed: Away) -> None:
        self.archive.away = deed
        self.machine.at(deed.for_s, partial(setattr, self.archive, "away", None))


class Editor(Worker):
    """A worker whose administrators set tuning policies over RPC."""

    def __init__(self, name: str, stage: Auditing) -> None:
        super().__init__(name, stage.store, stage.history, stage.setting)

    def run(self) -> None:
        self._world = self.use_cases()
        self.is_serving = True

    def edit(self, operation: Any, **parameters: Any) -> None:
        try:
            self._world.call(operation, **parameters)
        except SchedulerWorkerError as error:
            self.history.add(self.name, "fails", doing=operation.name, why=str(error))


class Collector(Worker):
    """An API process that moves entries into SQL."""

    def __init__(self, name: str, stage: Auditing) -> None:
        super().__init__(name, stage.store, stage.history, stage.setting)
        self._archive = stage.archive

    def run(self) -> None:
        administration: Any = SimpleNamespace(audit_log=self._archive)
        reconciler = Reconciler(
            administration,
            report=lambda _: None,
            shared_entries=SharedAudit(self.use_cases().state, self.clock),
        )

        def collect() -> float:
            reconciler.collect()
            return COLLECTED_EACH_S

        Periodic("collect", collect, COLLECTED_EACH_S).start()


def judge(run: Auditing, found: Findings) -> None:
    entries = Entries(found.blame)
    found.read(run.history.events, entries.see)
    for entry in entries.shared.values():
        found.blame(f"{_named(entry)} never got into SQL")
    if run.plan.is_calm and run.setting.workers == WORKERS + 1:
        for entry, copies in run.archive.entries.items():
            if copies > 1:
                found.blame(f"{_named(entry)} is {copies} times in SQL")


class Entries:
    """The entries of the audit, and what they must account for."""

    def __init__(self, blame: Blame) -> None:
        self._blame = blame
        self.shared: dict[str, AuditEntry] = {}
        """Those in the shared state, by key."""
        self._archived: set[AuditEntry] = set()
        self._withdrawn: Counter[str] = Counter()

    def see(self, event: Event) -> None:
        if event.what == "stores":
            self._archived.add(event.facts["entry"])
        for change in event.facts.get("changed") or ():
            self._see_change(event.facts.get("scope", ""), change)

    def _see_change(self, scope: str, change: Change) -> None:
        if scope == SCOPE and change.value is not None:
            self.shared[change.key] = json_reader(AuditEntry)(change.value)
        elif scope == SCOPE:
            entry = self.shared.pop(change.key)
            if entry not in self._archived:
                self._blame(f"{_named(entry)} was deleted and is not in SQL")
        elif scope == records.SCOPE and change.key.startswith(records.POLICY):
            self._see_policy(change)

    def _see_policy(self, change: Change) -> None:
        name = change.key.removeprefix(records.POLICY)
        known = [
            entry for entry in {*self.shared.values(), *self._archived}
            if entry.subject == name and entry.result == "done"
        ]  # fmt: skip
        if change.value is None:
            self._withdrawn[name] += 1
            if sum(entry.after is None for entry in known) < self._withdrawn[name]:
                self._blame(f"{name} was withdrawn, and the audit does not have it")
            return
        text = _text(change.value.decode())
        if text not in {_text(entry.after or "") for entry in known}:
            self._blame(f"{name} was set to text {text}, and the audit does not have it")


def _text(document: str) -> str:
    """The number of the text in it."""
    return document.partition("# ")[2].partition("\\n")[0]


def _named(entry: AuditEntry) -> str:
    return f"{entry.action} of {entry.subject} at {entry.at_s:.3f}"
