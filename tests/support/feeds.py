"""A source of hosts in memory, and a feeder on it whose parts are read in the caller's thread."""

from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from scheduler_worker.errors import SourceUnavailable
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.feed import (
    ChangedRow,
    HostReading,
    Listing,
    Outline,
    Part,
    RecentChanges,
    ServiceState,
    ServiceStates,
)
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.ports import HostSource
from scheduler_worker.service.feed.feeder import Feeder
from scheduler_worker.service.feed.readiness import FeedReadiness
from scheduler_worker.service.feed.refreshes import RefreshBarrier
from scheduler_worker.service.feed.settings import FeedSettings
from tests.support.observers import CountingObserver
from tests.support.services import World

CELL, OTHER_CELL = "cell-1", "cell-2"


class MemorySource:
    """Two cells, whose rows a test changes; ``calls`` counts what was asked of each."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.parts = [Part(CELL, "east"), Part(OTHER_CELL, "west")]
        self.aggregates: list[Aggregate] = []
        self.part_of: dict[str, str] = {}
        self.nodes: dict[str, tuple[str, HostReport, float]] = {}
        """Host -> its part, its report, and when it changed last."""
        self.services_of: dict[str, ServiceState] = {}
        self.instances: dict[str, tuple[str | None, float]] = {}
        """Uuid -> host, and when it changed last."""
        self.facts: dict[str, dict[str, Any]] = {}
        """Uuid -> further facts of the instance."""
        self.settled: set[str] = set()
        self.down: set[str] = set()
        self.calls: Counter[str] = Counter()

    # What a test does

    def put(self, host: str, *, part: str = CELL, **fields: Any) -> None:
        """A host with a running service; or changed fields of it."""
        plain: dict[str, Any] = {"vcpus": 8, "memory_mb": 8192, "local_gb": 100}
        if host in self.nodes:
            report = self.nodes[host][1]
            plain = {name: getattr(report, name) for name in report.__struct_fields__}
        else:
            plain["uuid"] = f"uuid-{host}"
        now_s = self._clock.time_s()
        report = HostReport(**plain | {"host": host, "updated_at": now_s} | fields)
        self.nodes[host] = part, report, now_s
        self.part_of[host] = part
        self.beat(host)

    def beat(self, host: str, **facts: Any) -> None:
        """A heartbeat of its service."""
        self.services_of[host] = ServiceState(self._clock.time_s(), **facts)

    def place(self, uuid: str, host: str | None, *, settled: bool = False, **facts: Any) -> None:
        """An instance is on a host now, or on none; ``settled``: nothing is under way with it."""
        self.facts[uuid] = facts
        self.instances[uuid] = host, self._clock.time_s()
        (self.settled.add if settled else self.settled.discard)(uuid)

    # HostSource

    def outline(self) -> Outline:
        self._ask("outline", "api")
        return Outline(
            parts=tuple(self.parts), part_of=dict(self.part_of), aggregates=tuple(self.aggregates)
        )

    def connect(self) -> None:
        self._ask("connect", "api")

    def services(self, part_id: str, hosts: Collection[str] | None = None) -> ServiceStates:
        self._ask("services" if hosts is None else "services of some", part_id)
        found = {
            host: state
            for host, state in self.services_of.items()
            if self.nodes.get(host, (part_id,))[0] == part_id
            if hosts is None or host in hosts
        }
        return ServiceStates(self._clock.time_s(), found)

    def listing(self, part_id: str) -> Listing:
        self._ask("listing", part_id)
        counts = Counter(host for host, _ in self.instances.values() if host)
        return Listing(self._clock.time_s(), self._nodes(part_id, 0.0), counts)

    def changes(
        self, part_id: str, *, nodes_since_s: float, instances_since_s: float
    ) -> RecentChanges:
        self._ask("changes", part_id)
        instances = [
            ChangedRow(uuid, host, at_s, uuid in self.settled)
            for uuid, (host, at_s) in self.instances.items()
            if at_s >= instances_since_s
        ]
        nodes = self._nodes(part_id, nodes_since_s)
        return RecentChanges(self._clock.time_s(), nodes, instances)

    def read(self, part_id: str, hosts: Sequence[str]) -> list[HostReading]:
        self._ask("read", part_id)
        found = []
        for host in hosts:
            if host in self.nodes and self.nodes[host][0] == part_id:
                listed = [
                    {"uuid": each, **self.facts.get(each, {})}
                    for each, (at, _) in self.instances.items()
                    if at == host
                ]
                report = self.nodes[host][1]
                fields = {name: getattr(report, name) for name in report.__struct_fields__}
                found.append(HostReading(host, (HostReport(**fields | {"instances": listed}),)))
        return found

    def close(self) -> None:
        self.calls["close"] += 1

    def _nodes(self, part_id: str, since_s: float) -> list[ChangedRow]:
        return [
            ChangedRow(str(report.uuid), host, at_s)
            for host, (part, report, at_s) in self.nodes.items()
            if part == part_id and at_s >= since_s
        ]

    def _ask(self, what: str, where: str) -> None:
        self.calls[what] += 1
        if where in self.down:
            raise SourceUnavailable(f"{where}: connection refused")


class SameThread(Executor):
    """Runs what is submitted at once."""

    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work(*args, **kwargs))
        return future


class HangingOutline(SameThread):
    """Like it, but while ``hangs`` is set a look at the outline never ends."""

    def __init__(self) -> None:
        self.hangs = False

    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        is_outline = getattr(work, "__func__", None) is Feeder._read_outline
        return Future() if self.hangs and is_outline else super().submit(work, *args, **kwargs)


def barrier(
    world: World, fed: Feeder, *, ready_timeout_s: float = 0.0, look_timeout_s: float = 0.0
) -> RefreshBarrier:
    """What the decisions of this world ask of a feeder; they wait for nothing unless told to."""
    settings = FeedSettings(ready_timeout_s=ready_timeout_s, look_timeout_s=look_timeout_s)
    return RefreshBarrier(fed.readiness, world.clock, settings)


def feeder(
    world: World,
    source: HostSource,
    name: str = "w",
    threads: Executor | None = None,
    **settings: Any,
) -> Feeder:
    read = FeedSettings(**settings)
    return Feeder(
        source,
        world.inventory,
        world.fleet,
        world.clock,
        readiness=FeedReadiness(world.state, world.clock, silent_after_s=read.silent_after_s),
        settings=read,
        observer=CountingObserver(),
        name=name,
        threads=threads or SameThread(),
    )


SECOND_S = 1.0
INTERVAL_S, FULL_S, SILENT_S = 2.0, 60.0, 60.0


def look(fed: Feeder, after_s: float = INTERVAL_S, *, world: World, source=None) -> None:
    """The next round; with ``source``, all services beat until then."""
    world.clock.advance(after_s)
    if source is not None:
        for host in source.services_of:
            source.beat(host)
    fed.run_due()


def records(world: World):
    return {each.host: each for replica in world.fleet.clusters() for each in replica.table.records}


def on_host(world: World, name: str) -> set[str]:
    return {uuid for replica in world.fleet.clusters()
            for uuid in replica.table.reported_instances(name)}  # fmt: skip
