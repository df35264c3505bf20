"""Workers that place: all of their real code above the ports, on this store and this broker."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from scheduler_worker.errors import BusUnavailable
from scheduler_worker.events import DROPPED, Count
from scheduler_worker.model.decisions import Decision
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.observer import Observer, Outcome
from scheduler_worker.rpc.dispatcher import Dispatcher
from scheduler_worker.rpc.nova import NovaEndpoint, baseapi
from scheduler_worker.rpc.serving.server import QueueServer
from scheduler_worker.rpc.serving.settings import BusSettings, DeliveryLimits, QueueNames
from scheduler_worker.rpc.worker import WorkerEndpoint
from scheduler_worker.scheduling.filters.numa_topology import NUMATopologyFilter
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.requests.queue import ClusterQueue, QueuedRequest
from scheduler_worker.service.state.replica import ClusterReplica
from tests.simulation.broker import Broker, BrokerConnection
from tests.simulation.history import History
from tests.simulation.machine import Machine, Process
from tests.simulation.plan import Setting
from tests.simulation.stage import Worker
from tests.simulation.store import Store
from tests.support.services import FILTERS, World

TOPIC = "scheduler"
SETTINGS = BusSettings(
    kind="simulated", retry_s=0.2, retry_backoff_s=0.2, longest_retry_s=2.0, find_caller_s=30.0
)
NOBODY: Any = None
"""Nothing is balanced here."""
STOPS_WITHIN_S = 1.5
NOTICED_S = 0.5
"""The broker notices at most so late that a worker is dead."""


class Scheduling(Worker):
    """A worker that serves requests of the bus."""

    def __init__(
        self, name: str, store: Store, broker: Broker, history: History, setting: Setting
    ) -> None:
        super().__init__(name, store, history, setting)
        self.outcomes: list[Outcome] = []
        """How requests ended that it decided, by its own account."""
        self._broker = broker
        self._setting = setting
        self._server: QueueServer | None = None
        self._world: World | None = None

    def has_ended(self, process: Process) -> None:
        self._server = None
        notices_s = self.machine.random.uniform(0.0, NOTICED_S)
        self.machine.at(notices_s, partial(self._hang_up, process))

    def unlink(self) -> None:
        if self.process is not None:
            self._hang_up(self.process)

    def drain(self) -> None:
        if self.process is not None and self._server is not None and not self.is_stopping:
            self.is_stopping = True
            self.spawn(self._stop)

    def catch_up(self) -> None:
        """Read all scopes of the store."""
        if self._world is not None:
            self.spawn(self._catch_up, self._world)

    @staticmethod
    def _catch_up(world: World) -> None:
        world.fleet.refresh_globals()
        for replica in world.fleet.clusters():
            with replica.lock:
                replica.refresh(world.fleet.store)

    def in_hand(self) -> dict[str, int]:
        if self._server is None or self._world is None:
            return {}
        described = self._server.describe()
        kinds = ("in_hand", "running", "waiting", "parked", "extra_consumers")
        scheduler = self._world.scheduler
        return {kind: described[kind] for kind in kinds} | {
            "waiting for pending resources": scheduler.waiting,
            "unanswered": len(scheduler.unanswered()),
        }

    def replicas(self) -> dict[str, ClusterReplica]:
        world = self._world if self._server else None
        return {each.scope: each for each in world.fleet.clusters()} if world else {}

    def _hang_up(self, process: Process) -> None:
        for link in list(self._broker.links):
            if link.process is process:
                self._broker.lose(link)

    def run(self) -> None:
        self._world = world = self._made_world()
        publisher = Publisher(self._broker, self.history, self.name)
        names = QueueNames("nova", TOPIC, self.name)
        opener: Any = partial(BrokerConnection, self._broker, names)
        self._server = QueueServer(
            [opener],
            SETTINGS,
            names,
            Dispatcher(
                [
                    NovaEndpoint(world.scheduler, world.inventory).endpoint(),
                    WorkerEndpoint(world.scheduler, world.inventory, NOBODY, publisher).endpoint(),
                    baseapi(),
                ],
                Witness(self.history, self.name),
            ),
            slots=self._setting.slots,
            limits=DeliveryLimits(),
            observer=Witness(self.history, self.name),
            reach=world.state.reach,
        )
        self._server.start()
        self.history.add(self.name, "serves")

    def _made_world(self) -> World:
        setting = self._setting
        kept = {"max_changes": setting.max_changes, "max_tombstones": setting.max_tombstones}
        world = self.use_cases(
            kept=kept,
            filters=(*FILTERS, NUMATopologyFilter),
            max_batch=setting.max_batch,
            ordering=setting.ordering,
            hold_timeout_s=setting.hold_timeout_s,
            acquire_timeout_s=setting.acquire_timeout_s,
            reservation_ttl_s=setting.reservation_ttl_s,
            wait_timeout_s=setting.wait_timeout_s,
            max_waiting=setting.max_waiting,
            remember_answers_s=setting.remember_answers_s,
            # A worker that does not know yet that there are several clusters declares no intents.
            globals_max_age_s=0.0,
        )
        world.observed.outcomes = self.outcomes
        decide = world.pipeline.decide

        def decide_slowly(table: HostTable, request: Request, *rest: Any) -> Decision:
            self.history.add(self.name, "decides", request=request.request_id)
            if setting.decides_in_s:
                self.machine.sleep(setting.decides_in_s)
            return decide(table, request, *rest)

        world.pipeline.decide = decide_slowly  # type: ignore[assignment]
        return world

    def _stop(self) -> None:
        """Does what ``Worker.stop`` does."""
        assert self._server is not None and self._world is not None
        self.history.add(self.name, "stops")
        self._world.scheduler.stop_waiting()
        finished = self._server.stop(STOPS_WITHIN_S)
        self.history.add(self.name, "has stopped", finished=finished)
        self.machine.at(0.0, self.crash)


class Witness(Observer):
    """Records the calls that a worker drops because it cannot answer them in time."""

    def __init__(self, history: History, who: str) -> None:
        self._history = history
        self._who = who

    def count(self, event: Count, *labels: str, by: float = 1) -> None:
        if event is DROPPED and labels == ("expired",):
            self._history.add(self._who, "gives up")


class ObservedQueue(ClusterQueue):
    """A cluster queue that records which requests a leader takes, and which it leaves."""

    def __init__(self, history: History, machine: Machine, *args: Any) -> None:
        super().__init__(*args)
        self._history = history
        self._machine = machine

    def _taken(self) -> Sequence[QueuedRequest]:
        taken = super()._taken()
        who = self._machine.running.process.name
        self._history.add(who, "takes", taken=_ranked(taken), left=_ranked(self._waiting))
        return taken


def _ranked(requests: Iterable[QueuedRequest]) -> list[tuple[str, float]]:
    return [
        (
            each.attempt.request.request_id,
            each.rank_s if each.is_slow else each.attempt.arrived_s - each.priority_boost_s,
        )
        for each in requests
    ]


class Publisher:
    """Casts answers; sometimes it does not know whether the broker took one."""

    def __init__(self, broker: Broker, history: History, who: str) -> None:
        self._broker = broker
        self._history = history
        self._who = who

    def cast(self, *, topic: str, method: str, arguments: dict[str, Any], **_: Any) -> None:
        machine = self._broker.machine
        machine.sleep(machine.random.uniform(0.0, 0.002))
        failure = machine.random.choice(FAILURES) if machine.random.random() < 0.02 else None
        if failure != "lost":
            self._history.add(
                self._who, "answers", request=arguments["request_id"], answer=arguments
            )
            caller = self._broker.callers.get(topic)
            if caller is not None:
                caller(arguments)
        machine.sleep(machine.random.uniform(0.0, 0.002))
        if failure is not None:
            self._history.add(self._who, "is unsure", request=arguments["request_id"])
            raise BusUnavailable("the broker does not confirm")


FAILURES = ("lost", "unconfirmed")
