"""A worker: all of its real code above the ports, between this store and this broker."""

from __future__ import annotations

from functools import partial
from typing import Any

from scheduler_worker.errors import BusUnavailable
from scheduler_worker.ports import Observer
from scheduler_worker.rpc.amqp.server import AmqpServer
from scheduler_worker.rpc.amqp.settings import AmqpSettings, DeliveryLimits, Place
from scheduler_worker.rpc.dispatcher import Dispatcher
from scheduler_worker.rpc.nova import NovaDoor
from scheduler_worker.rpc.wire_errors import to_wire
from scheduler_worker.rpc.worker import WorkerDoor
from scheduler_worker.service.replica import ClusterReplica
from tests.simulation.broker import Broker
from tests.simulation.history import History
from tests.simulation.machine import Machine, Process
from tests.simulation.store import BEGINNING_S, Faults, Line, Store
from tests.support.services import World

TOPIC = "scheduler"
STOPS_WITHIN_S = 3.0
NOTICED_S = 0.5
"""The broker notices at most so late that a worker is dead."""


class WorkerClock:
    """A clock that somebody sets; the monotonic one began when the machine did."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._booted_s = machine.random.uniform(-10_000.0, 10_000.0)
        self.ahead_s = 0.0

    def time_s(self) -> float:
        return BEGINNING_S + self._machine.now_s + self.ahead_s

    def monotonic_s(self) -> float:
        return self._machine.now_s - self._booted_s


class Worker:
    """One worker's machine: its process ends and begins anew, its name and clock stay."""

    def __init__(
        self,
        name: str,
        store: Store,
        broker: Broker,
        history: History,
        *,
        slots: int,
        **limits: Any,
    ) -> None:
        self.name = name
        self.faults = Faults()
        self.clock = WorkerClock(store.machine)
        self._machine = store.machine
        self._store = store
        self._broker = broker
        self._history = history
        self._slots = slots
        self._limits = limits
        self._process: Process | None = None
        self._server: AmqpServer | None = None
        self._world: World | None = None
        self.is_stopping = False

    @property
    def is_up(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        self._process = Process(self.name, is_preempted=True)
        self._machine.spawn(self._process, self._run)

    def crash(self) -> None:
        if self._process is not None:
            process, self._process, self._server = self._process, None, None
            self.is_stopping = False
            self._machine.kill(process)
            notices_s = self._machine.random.uniform(0.0, NOTICED_S)
            self._machine.at(notices_s, partial(self._hang_up, process))

    def pause(self, seconds: float) -> None:
        if self._process is not None:
            self._machine.pause(self._process, seconds)

    def unlink(self) -> None:
        """It loses its connection to the broker."""
        if self._process is not None:
            self._hang_up(self._process)

    def drain(self) -> None:
        """It stops as a daemon does that is told to."""
        if self._process is not None and self._server is not None and not self.is_stopping:
            self.is_stopping = True
            self._machine.spawn(self._process, self._stop)

    def catch_up(self) -> None:
        """It looks at all of the store."""
        if self._process is not None and self._world is not None:
            self._machine.spawn(self._process, self._catch_up, self._world)

    @staticmethod
    def _catch_up(world: World) -> None:
        world.fleet.refresh_globals()
        for replica in world.fleet.clusters():
            with replica.lock:
                replica.refresh(world.fleet.store)

    def in_hand(self) -> dict[str, int]:
        """What it has not finished, by kind."""
        if self._server is None or self._world is None:
            return {}
        told = self._server.describe()
        kinds = ("in_hand", "running", "waiting", "parked", "lanes")
        scheduler = self._world.scheduler
        return {kind: told[kind] for kind in kinds} | {
            "waiting for pending resources": scheduler.waiting,
            "unanswered": len(scheduler.unanswered()),
        }

    def replicas(self) -> dict[str, ClusterReplica]:
        """What it knows of each cluster."""
        world = self._world if self._server else None
        return {each.scope: each for each in world.fleet.clusters()} if world else {}

    def _hang_up(self, process: Process) -> None:
        for link in list(self._broker.links):
            if link.process is process:
                self._broker.lose(link)

    def _run(self) -> None:
        state = Line(self._store, self.name, self.clock, self.faults)
        self._world = world = World(state=state, clock=self.clock, **self._limits)
        publisher = Publisher(self._broker, self._history, self.name)
        self._server = AmqpServer(
            SETTINGS(self._broker),
            Place("nova", TOPIC, self.name),
            Dispatcher(
                [
                    NovaDoor(world.scheduler, world.inventory).endpoint(),
                    WorkerDoor(
                        world.scheduler, world.inventory, world.listing, publisher
                    ).endpoint(),
                ],
                to_wire,
            ),
            slots=self._slots,
            limits=DeliveryLimits(),
            observer=Observer(),
        )
        self._server.start()
        self._history.add(self.name, "serves")

    def _stop(self) -> None:
        """What ``app.Worker.stop`` does."""
        assert self._server is not None and self._world is not None
        self._world.scheduler.stop_waiting()
        finished = self._server.stop(STOPS_WITHIN_S)
        self._history.add(self.name, "has stopped", finished=finished)
        self._machine.at(0.0, self.crash)


class Publisher:
    """Casts answers; now and then it cannot tell whether the broker took one."""

    def __init__(self, broker: Broker, history: History, who: str) -> None:
        self._broker = broker
        self._history = history
        self._who = who

    def cast(self, *, topic: str, method: str, arguments: dict[str, Any], **_: Any) -> None:
        machine = self._broker.machine
        machine.sleep(machine.random.uniform(0.0, 0.002))
        failure = machine.random.choice(FAILURES) if machine.random.random() < 0.02 else None
        if failure != "lost":
            self._history.add(self._who, "tells", request=arguments["request_id"], answer=arguments)
            caller = self._broker.callers.get(topic)
            if caller is not None:
                caller(arguments)
        machine.sleep(machine.random.uniform(0.0, 0.002))
        if failure is not None:
            raise BusUnavailable("the broker does not confirm")


FAILURES = ("lost", "unconfirmed")


def SETTINGS(broker: Broker) -> AmqpSettings:
    return AmqpSettings(
        brokers=(broker,),  # type: ignore[arg-type]
        vhost="/",
        login_method="PLAIN",
        tls=None,
        heartbeat_s=0,
        retry_s=0.2,
        retry_backoff_s=0.2,
        longest_retry_s=2.0,
        durable=True,
        auto_delete=False,
        queue_arguments={},
        fanout_durable=True,
        fanout_arguments={},
        find_caller_s=1.0,
    )
