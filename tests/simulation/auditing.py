"""The scene in which administrators edit, and processes copy the book and its audit into SQL.

Every process edits, as all that serve RPC or REST do; some have the archive, the others not. After
all faults the book, the archive, and what clusters have in force are the same, and the audit has
every change, whatever has happened to the processes.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from scheduler_worker.archive import ArchiveState
from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import ArchiveUnavailable, SchedulerWorkerError
from scheduler_worker.model.audit import AuditEntry, AuditFilter
from scheduler_worker.model.documents import Documents
from scheduler_worker.model.policies import ClusterPolicy, read_policy
from scheduler_worker.operations.tuning import set_tuning_policy, withdraw_tuning_policy
from scheduler_worker.ports import Change, Changes
from scheduler_worker.service.documents.administration import PolicyAdministration
from scheduler_worker.service.documents.audit import Actor
from scheduler_worker.service.documents.book import SCOPE, Book
from scheduler_worker.service.state.records import POLICY_IN_FORCE
from scheduler_worker.service.tuning import records
from tests.simulation import plan as plans
from tests.simulation.history import Blame, Event, Findings, History
from tests.simulation.machine import Machine
from tests.simulation.plan import Base, Deed, Fault, Plan
from tests.simulation.stage import Stage, Worker
from tests.support.services import Desk
from tests.support.tuning import rule

LOOKED_AFTER_EACH_S = 1.0
WORKERS = 2
"""Of all processes; the others have the archive."""
CLUSTERS, NAMES = ("east", "west"), ("one", "two", "Two")
ANNA = Actor("anna")


class Set(Deed, frozen=True, kw_only=True):
    """An administrator sets a tuning policy."""

    name: str


class Withdraw(Deed, frozen=True, kw_only=True):
    """An administrator withdraws a tuning policy."""

    name: str


class Put(Deed, frozen=True, kw_only=True):
    """An administrator stores a cluster policy, or changes the one of this id."""

    id: str
    name: str


class Remove(Deed, frozen=True, kw_only=True):
    """An administrator removes a cluster policy."""

    id: str


class Attach(Deed, frozen=True, kw_only=True):
    """An administrator attaches a cluster to a policy."""

    cluster: str
    id: str


class Away(Fault, frozen=True, kw_only=True):
    """The SQL database is away, or stores and does not say so."""

    for_s: float
    stores: bool


class Setting(Base, frozen=True, kw_only=True):
    """Parameters of a run with an audit."""


_MOMENTS: tuple[plans.When, ...] = ("writes", "writes", "stores", "stores")
_MODULES = (
    "service.documents.book", "service.documents.copies", "service.documents.in_force",
    "service.tuning.policies", "service.state.replica",
)  # fmt: skip


def make(seed: str) -> Plan:
    rng = random.Random(f"{seed}: auditing")
    faults = rng.choice((0, 1, 2, 3))
    setting = Setting(
        workers=WORKERS + rng.choice((1, 2, 2)),
        slowness=rng.choice((0.0, 0.1)) if faults else 0.0,
        **plans.preempted(rng, _MODULES),
    )
    deeds: list[Deed] = [_edit(rng) for _ in range(rng.randint(5, 25))]
    for _ in range(rng.choice((0, 1, 2))):
        for_s, stores = rng.choice((0.1, 0.5, 2.0)), rng.random() < 0.5
        when: plans.When | None = rng.choice((None, "stores"))
        deeds.append(Away(at_s=plans.time_of(rng), when=when, for_s=for_s, stores=stores))
    deeds += plans.broken(rng, setting, faults, _MOMENTS)
    if rng.random() < 0.25:
        loses_s = rng.choice((0.3, 2.0, plans.EVERYTHING))
        deeds.append(plans.Down(at_s=plans.time_of(rng), for_s=0.1, loses_s=loses_s))
    return plans.ordered(seed, setting, deeds)


def _edit(rng: random.Random) -> Deed:
    at_s, id = plans.time_of(rng), rng.choice(("p", "q"))
    edits: tuple[Callable[[], Deed], ...] = (
        lambda: Set(at_s=at_s, name=id),
        lambda: Withdraw(at_s=at_s, name=id),
        lambda: Put(at_s=at_s, id=id, name=rng.choice(NAMES)),
        lambda: Put(at_s=at_s, id=id, name=rng.choice(NAMES)),
        lambda: Attach(at_s=at_s, cluster=rng.choice(CLUSTERS), id=rng.choice((id, id, "nova"))),
        lambda: Attach(at_s=at_s, cluster=rng.choice(CLUSTERS), id=id),
        lambda: Remove(at_s=at_s, id=id),
    )
    return rng.choice(edits)()


class Archive:
    """The SQL database."""

    def __init__(self, machine: Machine, history: History) -> None:
        self._machine = machine
        self._history = history
        self.number: int | None = None
        self.kept = Documents()
        self.stored: list[AuditEntry] = []
        self.away: Away | None = None

    def state(self) -> ArchiveState:
        self._answer()
        last = self.stored[-1] if self.stored else None
        return ArchiveState("archive", self.number or 0, last)

    def documents(self) -> Documents:
        self._answer()
        return self.kept

    def keep(self, documents: Documents, entries: Sequence[AuditEntry], number: int) -> bool:
        self._answer(is_write=True)
        kept = self.number or 0
        if number > kept:
            self.stored += (entry for entry in entries if int(entry.id) > kept)
            self.kept, self.number = documents, number
            process = self._machine.runner
            self._history.add(process.name if process else "", "stores", number=number)
        self._answer()
        return number > kept

    def audit(
        self, criteria: AuditFilter, *, after: str | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        self._answer()
        first = int(after or 0)
        found = [entry for entry in self.stored if int(entry.id) > first]
        return [entry for entry in found if criteria.admits(entry)][:limit]

    def _answer(self, *, is_write: bool = False) -> None:
        self._machine.sleep(self._machine.random.uniform(0.0, 0.02))
        if self.away is not None and not (is_write and self.away.stores):
            raise ArchiveUnavailable("the database is away")


class Auditing(Stage):
    """A run in which administrators change something that is kept in an audit."""

    quiet_s = 8.0
    """Everything gets into SQL, and is in force."""

    def __init__(self, plan: Plan, machine: Machine, history: History) -> None:
        super().__init__(plan, machine, history)
        self.archive = Archive(machine, history)
        self.workers = [Editor(f"w{number}", self, None) for number in range(1, WORKERS + 1)]
        numbers = range(1, self.setting.workers - WORKERS + 1)
        self.workers += [Editor(f"api{number}", self, self.archive) for number in numbers]
        self._texts = (f"# {number}\n{rule('target: 1')}" for number in itertools.count(1))

    def _set(self, deed: Set) -> None:
        text = next(self._texts)
        self.serve(lambda worker: worker.ask(set_tuning_policy, name=deed.name, text=text))

    def _withdraw(self, deed: Withdraw) -> None:
        self.serve(lambda worker: worker.ask(withdraw_tuning_policy, name=deed.name))

    def _put(self, deed: Put) -> None:
        document = ClusterPolicy(id=deed.id, name=deed.name, version=1, description=str(deed.at_s))

        def put(administration: PolicyAdministration) -> None:
            is_known = administration.library().find(deed.id) is not None
            (administration.put if is_known else administration.add)(document, ANNA)

        self.serve(lambda worker: worker.edit("put", put))

    def _remove(self, deed: Remove) -> None:
        self.serve(lambda worker: worker.edit("remove", lambda desk: desk.remove(deed.id, ANNA)))

    def _attach(self, deed: Attach) -> None:
        def attach(administration: PolicyAdministration) -> None:
            administration.attach(deed.cluster, ANNA, policy=deed.id, is_new=True)

        self.serve(lambda worker: worker.edit("attach", attach))

    def _away(self, deed: Away) -> None:
        self.archive.away = deed
        self.machine.at(deed.for_s, partial(setattr, self.archive, "away", None))


class Editor(Worker):
    """A process whose administrators edit, with an archive or without."""

    def __init__(self, name: str, stage: Auditing, archive: Archive | None) -> None:
        super().__init__(name, stage.store, stage.history, stage.setting)
        self._archive: Any = archive

    def run(self) -> None:
        self._world = self.use_cases()
        if self._archive is not None:
            self._world.use(Desk(self._world, self._archive))
        self.is_serving = True
        self._world.desk.upkeep(interval_s=LOOKED_AFTER_EACH_S).start()

    def ask(self, operation: Any, **parameters: Any) -> None:
        self._do(operation.name, lambda: self._world.call(operation, **parameters))

    def edit(self, doing: str, change: Callable[[PolicyAdministration], object]) -> None:
        self._do(doing, lambda: change(self._world.desk.administration))

    def _do(self, doing: str, work: Callable[[], object]) -> None:
        try:
            work()
        except SchedulerWorkerError as error:
            self.history.add(self.name, "fails", doing=doing, why=str(error))


def judge(run: Auditing, found: Findings) -> None:
    entries, left = Entries(found.blame), run.left()
    if not any(isinstance(deed, plans.Down) and deed.loses_s for deed in run.plan.deeds):
        found.read(run.history.events, entries.see)
        _judge_entries(run.archive, entries.written.values(), found.blame)
        _judge_edits(run.archive, found.blame)
    _judge_archive(run.archive, left.get(SCOPE, []), found.blame)
    _judge_force(run.archive.kept, left, found.blame)


def _judge_archive(archive: Archive, left: Sequence[Change], blame: Blame) -> None:
    """Whether the archive is a copy of what is left of the book, and keeps its rules."""
    book: Any = Book(Held(left))  # type: ignore[arg-type]
    documents = book.documents()
    if book.head is None:
        return
    if (archive.number or 0) != book.head.number or archive.kept != documents:
        blame(f"the archive ends at {archive.number}, and the book at {book.head.number}")
    numbers = [int(entry.id) for entry in archive.stored]
    if numbers != sorted(set(numbers)):
        blame("the archive has an entry twice")
    names = [policy.document.name.casefold() for policy in documents.policies.values()]
    if len(names) != len({*names}):
        blame(f"policies have one name: {names}")
    for attachment in documents.attachments.values():
        if not attachment.is_built_in and attachment.policy_id not in documents.policies:
            blame(f"{attachment.cluster} is attached to a policy that is gone")


def _judge_entries(archive: Archive, written: Iterable[AuditEntry], blame: Blame) -> None:
    """Whether the archive has every entry that was written while the state lost nothing."""
    kept = set(map(_unnumbered, archive.stored))
    for entry in written:
        if _unnumbered(entry) not in kept:
            blame(f"{_named(entry)} never got into SQL")


def _judge_edits(archive: Archive, blame: Blame) -> None:
    """Whether each edit saw the one before it, and the last ones made what there is."""
    documents = archive.kept
    seen: dict[tuple[str, str], str | None] = {}
    for entry in archive.stored:
        kind = entry.action.partition(".")[0]
        if kind not in {"policy", "cluster"} or entry.result != "done":
            continue
        if seen.get((kind, entry.subject)) != entry.before:
            blame(f"{_named(entry)} did not see the edit before it")
        seen[kind, entry.subject] = entry.after
    here: dict[tuple[str, str], Any] = {
        ("policy", key): policy.document for key, policy in documents.policies.items()
    }
    here |= {("cluster", key): attached for key, attached in documents.attachments.items()}
    wanted = {key: msgspec.json.decode(text) for key, text in seen.items() if text}
    found = {key: msgspec.json.decode(msgspec.json.encode(each)) for key, each in here.items()}
    if wanted != found:
        blame("the audit says something else than the book")


def _judge_force(documents: Documents, left: Mapping[str, Sequence[Change]], blame: Blame) -> None:
    for cluster, attachment in documents.attachments.items():
        wanted = documents.policies.get(attachment.policy_id)
        values = {change.key: change.value for change in left.get(cluster, ())}
        text = values.get(POLICY_IN_FORCE)
        found = None if text is None else read_policy(text)
        if found != (None if wanted is None else wanted.document):
            blame(f"cluster {cluster} has another policy in force than the book says")


class Held:
    """A store of what is left."""

    def __init__(self, left: Sequence[Change]) -> None:
        self._left = left

    def changes(self, *_: object) -> Any:
        entries = list(self._left)
        return Changes(epoch="left", version=1, now_s=0.0, entries=entries, reset=True)


class Entries:
    """The entries of the audit, and what they must account for."""

    def __init__(self, blame: Blame) -> None:
        self._blame = blame
        self.written: dict[str, AuditEntry] = {}
        """By key, and how often it was written again."""
        self._withdrawn: Counter[str] = Counter()

    def see(self, event: Event) -> None:
        for change in event.facts.get("changed") or ():
            self._see_change(event.facts.get("scope", ""), change)

    def _see_change(self, scope: str, change: Change) -> None:
        if scope == SCOPE and change.key.startswith("o:") and change.value is not None:
            entry = json_reader(AuditEntry)(change.value)
            self.written[f"{change.key} {change.version}"] = entry
        elif scope == records.SCOPE and change.key.startswith(records.POLICY):
            self._see_policy(change)

    def _see_policy(self, change: Change) -> None:
        name = change.key.removeprefix(records.POLICY)
        known = [
            entry for entry in {*map(_unnumbered, self.written.values())}
            if entry.subject == name and entry.result == "done" and "tuning" in entry.action
        ]  # fmt: skip
        if change.value is None:
            self._withdrawn[name] += 1
            if sum(entry.after is None for entry in known) < self._withdrawn[name]:
                self._blame(f"{name} was withdrawn, and the audit does not have it")
            return
        text = _text(change.value.decode())
        if text not in {_text(entry.after or "") for entry in known}:
            self._blame(f"{name} was set to text {text}, and the audit does not have it")


def _unnumbered(entry: AuditEntry) -> AuditEntry:
    return msgspec.structs.replace(entry, id="")


def _text(document: str) -> str:
    """The number of the text in it."""
    return document.partition("# ")[2].partition("\\n")[0]


def _named(entry: AuditEntry) -> str:
    return f"{entry.action} of {entry.subject} at {entry.at_s:.3f}"
