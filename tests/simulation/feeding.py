"""The scene in which workers read hosts from Nova's databases, one of them at a time.

Requests ask for refreshes. Each that is told that one has ended finds in the shared state what the
databases had when it asked.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from msgspec import structs

from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import Conflict, StateUnavailable
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.host_records import HostRecord, is_watched
from scheduler_worker.service.feed import feeder
from scheduler_worker.service.feed.feeder import Feeder
from scheduler_worker.service.feed.part import FeedState
from scheduler_worker.service.feed.readiness import FeedReadiness
from scheduler_worker.service.feed.refreshes import Looker, RefreshBarrier
from scheduler_worker.service.feed.settings import ClustersBy, FeedSettings
from scheduler_worker.service.state import records
from scheduler_worker.service.state.leadership import lapse_s
from scheduler_worker.waiters import complete, keep_slot
from tests.simulation import plan as plans
from tests.simulation.history import Blame, Event, Findings, History
from tests.simulation.machine import Machine
from tests.simulation.plan import Base, Clock, Deed, Fault, Plan
from tests.simulation.stage import Stage, StandIn, Worker
from tests.simulation.store import BEGINNING_S, CLOCK_SLACK_S, ROUNDING_S
from tests.support.feeds import CELL, OTHER_CELL, MemorySource

SETTINGS = FeedSettings(
    enabled=True,
    interval_s=1.0,
    services_interval_s=2.0,
    full_interval_s=8.0,
    overlap_s=2.0,
    look_timeout_s=15.0,
    ready_timeout_s=2.0,
)
SERVES_S = 30.0
"""How long the callers of requests wait; half of it is enough to take over and to read anew."""
API = "api"
NOTICED_S = 3.0
"""So long after a database can be read again a worker has noticed."""


class Change(Deed, frozen=True, kw_only=True):
    """A host's use changes."""

    host: str


class Force(Deed, frozen=True, kw_only=True):
    """A host's service is forced down, or not any more."""

    host: str


class Put(Deed, frozen=True, kw_only=True):
    """An instance is on a host now; None: it was deleted."""

    instance: str
    host: str | None


class Come(Deed, frozen=True, kw_only=True):
    """A host comes."""

    host: str


class Go(Deed, frozen=True, kw_only=True):
    """A host goes."""

    host: str


class Group(Deed, frozen=True, kw_only=True):
    """A host is in an aggregate that names this cluster; None: in none."""

    host: str
    cluster: str | None


class Refresh(Deed, frozen=True, kw_only=True):
    """A request that found no host asks for a refresh, perhaps just after a host has changed."""

    name: str
    changed: str | None = None


class Unreadable(Fault, frozen=True, kw_only=True):
    """A database cannot be read."""

    database: str
    for_s: float


class Setting(Base, frozen=True, kw_only=True):
    """Parameters of a run in which workers feed."""

    hosts: int = 3
    clusters: ClustersBy = "one"
    reads_in_s: float = 0.01
    """How long a database takes for an answer, at most."""

    @property
    def names(self) -> list[str]:
        return [f"h{number}" for number in range(1, self.hosts + 1)]


_MOMENTS: tuple[plans.When, ...] = ("writes", "writes", "reads", "reads", "begins")
_MODULES = (
    *("service.feed.feeder", "service.feed.part", "service.feed.refreshes"),
    *("service.inventory.reports", "service.state.writing", "service.state.waits"),
)


def make(seed: str) -> Plan:
    rng = random.Random(f"{seed}: feeding")
    faults = rng.choice((0, 1, 2, 3, 4))
    clusters: tuple[ClustersBy, ...] = ("one", "one", "cell", "aggregate")
    setting = Setting(
        workers=rng.choice((2, 2, 3)),
        hosts=rng.choice((2, 3, 4)),
        clusters=rng.choice(clusters),
        reads_in_s=rng.choice((0.01, 0.2)),
        slowness=rng.choice((0.0, 0.1)) if faults else 0.0,
        **plans.preempted(rng, _MODULES),
    )
    deeds: list[Deed] = []
    for _ in range(rng.randint(6, 16)):
        at_s, host = plans.time_of(rng), rng.choice(setting.names)
        instance, cluster = rng.choice("xyz"), rng.choice(("a", "b", None))
        changes: tuple[Deed, ...] = (
            *(Change(at_s=at_s, host=host), Change(at_s=at_s, host=host)),
            *(Put(at_s=at_s, instance=instance, host=host),) * 2,
            Put(at_s=at_s, instance=instance, host=None),
            *(Force(at_s=at_s, host=host), Group(at_s=at_s, host=host, cluster=cluster)),
            *(Come(at_s=at_s, host=host), Go(at_s=at_s, host=host)),
        )
        deeds.append(rng.choice(changes))
    for number in range(rng.randint(3, 8)):
        when: plans.When | None = rng.choice((None, "reads", "reads"))
        changed = rng.choice((None, *setting.names))
        at_s = rng.choice((plans.time_of(rng), rng.choice(deeds).at_s))
        first = Refresh(at_s=at_s, when=when, name=f"r{number}", changed=changed)
        deeds.append(first)
        if rng.random() < 0.5:
            facts = {"when": "reads", "name": f"r{number}'", "changed": rng.choice(setting.names)}
            deeds.append(structs.replace(first, at_s=at_s + 0.005, **facts))
    for _ in range(rng.choice((0, 0, 1, 2))):
        database, for_s = rng.choice((CELL, OTHER_CELL, API)), rng.choice((0.1, 0.5, 1.5))
        deeds.append(Unreadable(at_s=plans.time_of(rng), database=database, for_s=for_s))
    deeds += plans.broken(rng, setting, faults, _MOMENTS)
    return plans.ordered(seed, setting, deeds)


class Database(MemorySource):
    """Nova's databases. An answer is from one moment between the question and its arrival."""

    def __init__(self, stage: "Feeding") -> None:
        super().__init__(stage)
        self._stage = stage
        self._machine = stage.machine
        self.versions: dict[str, int] = {}
        """Host -> how often it has changed; its record shows that as use of memory."""
        self.behind_s = 0.0
        """By how much the clock of the conductor is behind that writes a row now."""
        self.changes_made = 0
        """The number of the last change."""
        self.last: dict[str, int] = {}
        """Host or instance -> the number of its last change."""

    def note(self, what: str) -> None:
        """It changes now."""
        self.changes_made += 1
        self.last[what] = self.changes_made

    def change(self, host: str) -> None:
        self.versions[host] = version = self.versions.get(host, 0) + 1
        self.note(host)
        part = CELL if host < "h3" else OTHER_CELL
        with self._written():
            self.put(host, part=part, memory_mb_used=version)

    def go(self, host: str) -> None:
        self.note(host)
        for known in (self.nodes, self.part_of, self.services_of):
            known.pop(host, None)
        for instance in [each for each, (at, _) in self.instances.items() if at == host]:
            self.move(instance, None)

    def move(self, instance: str, host: str | None) -> None:
        self.note(instance)
        with self._written():
            self.place(instance, host, settled=True)

    @contextmanager
    def _written(self) -> Iterator[None]:
        """A conductor writes rows by its own clock."""
        self.behind_s = self._machine.random.choice((0.0, 0.0, 1.0))
        yield
        self.behind_s = 0.0

    def _ask(self, what: str, where: str) -> None:
        self._wait()
        super()._ask(what, where)

    def _wait(self) -> None:
        longest_s = self._stage.setting.reads_in_s
        self._machine.sleep(self._machine.random.uniform(0.0, longest_s))


def _answered(name: str) -> Callable[..., Any]:
    """The method of the database, whose answer takes its time."""

    def ask(self: Database, *arguments: Any, **named: Any) -> Any:
        answer = getattr(super(Database, self), name)(*arguments, **named)
        process = self._machine.runner
        what = "reads" if name in {"changes", "read"} else "looks"
        self._stage.history.add(process.name if process else "", what, rows=name)
        self._wait()
        return answer

    return ask


for _name in ("outline", "services", "listing", "changes", "read"):
    setattr(Database, _name, _answered(_name))


class Known(NamedTuple):
    """What the databases, or the shared state, have."""

    hosts: dict[str, tuple[int, bool]]
    """Host -> its version, and whether its service is up."""
    instances: dict[str, str]
    """Instance -> its host."""
    clusters: dict[str, str]


class Asked(NamedTuple):
    """A request for a refresh."""

    at_s: float
    changes: int
    """The number of the last change before it."""
    known: Known
    """What the databases had."""


class Feeding(Stage):
    """A run in which workers feed."""

    quiet_s = 13.0
    """Everything is read once more, whatever was missed."""

    def __init__(self, plan: Plan, machine: Machine, history: History) -> None:
        super().__init__(plan, machine, history)
        self.found = Findings()
        """What requests find while they run."""
        self._readable_since_s = float("-inf")
        """Since when no database has become readable."""
        self.database = Database(self)
        for host in self.setting.names:
            self.database.change(host)
        self.workers = [
            FeedingWorker(f"w{number}", self) for number in range(1, self.setting.workers + 1)
        ]

    @classmethod
    def stand_ins(cls, machine: Machine, history: History) -> list[StandIn]:
        return [(feeder, "wait", partial(_wait, machine))]

    def time_s(self) -> float:
        """The databases' clock; rows have whole seconds."""
        return float(int(BEGINNING_S + self.machine.now_s)) - self.database.behind_s

    @property
    def should_serve(self) -> bool:
        """Whether the wait of a request suffices, whatever breaks."""
        faults = [deed for deed in self.plan.deeds if isinstance(deed, Fault)]
        is_survived = len(faults) < 3 and self.plan.breaks() == {plans.Crash}
        return self.plan.is_calm or (is_survived and not self.setting.preempted_in)

    def blame(self, what: str) -> None:
        self.found.now_s = self.machine.now_s
        self.found.blame(what)

    # What is known

    def truth(self) -> Known:
        database = self.database
        hosts = {
            host: (database.versions[host], not database.services_of[host].forced_down)
            for host in database.nodes
        }
        instances = {each: at for each, (at, _) in database.instances.items() if at}
        return Known(hosts, instances, {host: self._cluster_of(host) for host in hosts})

    def _cluster_of(self, host: str) -> str:
        if self.setting.clusters == "cell":
            return {CELL: "east", OTHER_CELL: "west"}[self.database.part_of[host]]
        if self.setting.clusters == "aggregate":
            for each in self.database.aggregates:
                if host in each.hosts:
                    return str(each.metadata["cluster"])
        return "default"

    def stored(self) -> Known:
        known = Known({}, {}, {})
        for scope in self.store.scopes():
            held = {change.key: change.value or b"" for change in self.store.held(scope)}
            for key, value in held.items():
                if key.startswith(records.HOST) and not scope.startswith("@"):
                    record = records.read_host(value)
                    known.hosts[record.host] = record.memory_mb_used, _is_up(record)
                    known.clusters[record.host] = scope
                elif key.startswith(records.INSTANCES) and not scope.startswith("@"):
                    host = key.removeprefix(records.INSTANCES)
                    known.instances.update(dict.fromkeys(records.read_instances(value), host))
        return known

    def check_refreshed(self, name: str, asked: Asked) -> None:
        """What was there when a refresh was asked for, and has not changed since, is known."""
        if self.database.down or self._readable_since_s + NOTICED_S >= asked.at_s:
            return  # what cannot be read is left out
        stored, last = self.stored(), self.database.last
        for what, were, are in (
            ("host", asked.known.hosts, stored.hosts),
            ("instance", asked.known.instances, stored.instances),
            ("the cluster of host", asked.known.clusters, stored.clusters),
        ):
            for key in {*were, *are}:
                is_old = last.get(key, 0) <= asked.changes
                if is_old and were.get(key) != are.get(key):
                    self.blame(
                        f"{name} asked for a refresh, and {what} {key} is known as {are.get(key)} "
                        f"after it, not as {were.get(key)}"
                    )

    # Deeds

    def _change(self, deed: Change) -> None:
        if deed.host in self.database.nodes:
            self.database.change(deed.host)

    def _come(self, deed: Come) -> None:
        self.database.change(deed.host)

    def _force(self, deed: Force) -> None:
        if deed.host in self.database.nodes:
            is_down = self.database.services_of[deed.host].forced_down
            self.database.note(deed.host)
            self.database.beat(deed.host, forced_down=not is_down)

    def _put(self, deed: Put) -> None:
        if deed.host is None or deed.host in self.database.nodes:
            self.database.move(deed.instance, deed.host)

    def _go(self, deed: Go) -> None:
        self.database.go(deed.host)

    def _group(self, deed: Group) -> None:
        self.database.note(deed.host)
        others = [each for each in self.database.aggregates if deed.host not in each.hosts]
        if deed.cluster is not None:
            number = 1 + self.setting.names.index(deed.host)
            metadata = {"cluster": deed.cluster}
            grouped = Aggregate(id=number, name=deed.host, hosts=(deed.host,), metadata=metadata)
            others.append(grouped)
        self.database.aggregates = others

    def _refresh(self, deed: Refresh) -> None:
        if deed.changed in self.database.nodes:
            self.database.change(deed.changed)
        asked = Asked(self.machine.now_s, self.database.changes_made, self.truth())
        self.serve(lambda worker: worker.refresh(deed.name, asked))

    def _unreadable(self, deed: Unreadable) -> None:
        def repair() -> None:
            self.database.down.discard(deed.database)
            self._readable_since_s = self.machine.now_s

        self.database.down.add(deed.database)
        self.machine.at(deed.for_s, repair)


class FeedingWorker(Worker):
    """A worker that feeds if it leads, and whose requests ask for refreshes."""

    def __init__(self, name: str, stage: Feeding) -> None:
        super().__init__(name, stage.store, stage.history, stage.setting)
        self._stage = stage
        self._components: list[Any] = []

    def run(self) -> None:
        world = self.use_cases()
        settings = structs.replace(SETTINGS, clusters=self._stage.setting.clusters)
        silent_after_s = settings.silent_after_s
        readiness = FeedReadiness(world.state, self.clock, silent_after_s=silent_after_s)
        feed = Feeder(
            self._stage.database,
            world.inventory,
            world.fleet,
            self.clock,
            readiness=readiness,
            settings=settings,
            name=self.name,
            threads=Threads(self.machine),
        )
        self._barrier = RefreshBarrier(readiness, self.clock, settings)
        self._components = [feed, Looker(feed, None, world.state, self.clock)]
        for component in self._components:
            component.start()
        self.is_serving = True

    def drain(self) -> None:
        if self.process is not None and self.is_serving and not self.is_stopping:
            self.is_stopping, self.is_serving = True, False
            self.spawn(self._stop)

    def _stop(self) -> None:
        for component in reversed(self._components):
            component.stop()
        self.machine.at(0.0, self.crash)

    def refresh(self, name: str, asked: Asked) -> None:
        self.history.add(self.name, "begins", request=name)
        deadline_s = self.clock.monotonic_s() + SERVES_S
        try:
            came = complete(self._barrier.refresh([], deadline_s, keep_slot))
        except (Conflict, StateUnavailable) as error:
            self.history.add(self.name, "fails", doing="refresh", why=str(error))
            return
        self.history.add(self.name, "refreshed" if came else "gives up", request=name)
        if not came and self._stage.should_serve:
            self._stage.blame(f"{name} gave up, though workers were up")
        if came:
            self._stage.check_refreshed(name, asked)


class Threads(Executor):
    """Runs what is submitted in threads of the process that submits it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        process = self._machine.running.process
        self._machine.spawn(process, lambda: future.set_result(work(*args, **kwargs)))
        return future


def _wait(machine: Machine, futures: Iterable[Future[Any]], timeout: float) -> tuple[Any, Any]:
    """``concurrent.futures.wait``."""
    thread, ends_s = machine.running, machine.now_s + timeout
    futures = list(futures)
    for each in futures:
        each.add_done_callback(lambda _: machine.wake(thread))
    while machine.now_s < ends_s and not all(each.done() for each in futures):
        machine.park(ends_s - machine.now_s)
    in_time = [each for each in futures if each.done()]
    return in_time, [each for each in futures if each not in in_time]


def _is_up(record: HostRecord) -> bool:
    return is_watched(record) and not record.service.get("forced_down")


def judge(run: Feeding, found: Findings) -> None:
    found.violations += run.found.violations
    found.read(run.history.events, Lead(run, found.blame).see)
    for what, are, should in zip(Known._fields, run.stored(), run.truth(), strict=True):
        if are != should:
            found.blame(f"the {what} are known as {are}, not as {should}")


class Lead:
    """One worker feeds at a time."""

    def __init__(self, run: Feeding, blame: Blame) -> None:
        self._blame = blame
        self._slack_s = CLOCK_SLACK_S if Clock in run.plan.breaks() else 0.0
        self._ahead_s = 0.0
        self._state: FeedState | None = None

    def see(self, event: Event) -> None:
        if event.what == "is set":
            self._ahead_s += event.facts["by_s"]
        if event.facts.get("scope") == "@feed":
            for change in event.facts.get("changed") or ():
                if change.value is not None:
                    self._see_state(json_reader(FeedState)(change.value), event.time_s)

    def _see_state(self, new: FeedState, now_s: float) -> None:
        old, self._state = self._state, new
        if old is None or "" in {old.worker, new.worker} or old.worker == new.worker:
            return
        is_void = old.at_s > BEGINNING_S + now_s + self._ahead_s
        passed_s = new.at_s - old.at_s
        if not is_void and passed_s < lapse_s(SETTINGS.interval_s) - self._slack_s - ROUNDING_S:
            self._blame(
                f"{new.worker} began to feed {passed_s:.2f} s after {old.worker} had said so"
            )
