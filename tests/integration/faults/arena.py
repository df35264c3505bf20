"""Eight workers, one RabbitMQ, one Redis and sixteen tenants, to break things between them."""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from scheduler_worker import conf
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import BackendError
from scheduler_worker.rpc import versions
from scheduler_worker.rpc.dispatcher import Endpoint
from scheduler_worker.rpc.transport import Bus, Client
from tests.integration.faults.books import Auditor, Books
from tests.integration.faults.tenants import Mailbox, Racks, Reporter, Served, Tenant
from tests.support.patience import NEVER_S, SOON_S, eventually
from tests.support.proxy import Proxy
from tests.support.servers import RabbitServer, RedisServer
from tests.support.workers import WorkerProcess, write_config

CLUSTERS = {"east": ("e1", "e2", "e3", "e4"), "west": ("w1", "w2", "w3", "w4")}
VCPUS = 5
TENANTS = 16
WORKERS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
"""The first is behind proxies. With the slots below four of them are busy."""
STOOD_STILL_S = 2.5
"""After which a worker lets all others go first."""
STEADY = 80
"""So many requests are served before a fault, and after it, before its figures are taken."""
TTL_S = 40.0
LEASE_S = 1.0

SETTINGS: dict[str, dict[str, object]] = {
    "rpc": {"slots": 4},
    "cluster_lock": {"hold_timeout": LEASE_S, "max_batch": 16, "acquire_timeout": 8},
    "pending": {"ttl": TTL_S, "wait_timeout": 0.5},
}
RABBIT: dict[str, object] = {
    "amqp_durable_queues": True,
    "heartbeat_timeout_threshold": 2,
    "rabbit_interval_max": 2,
}


class Figures(NamedTuple):
    """The cost of a fault; times in seconds."""

    fault: str
    first_s: float
    """From its end until a request that was made after it was served."""
    all_s: float
    """From its end until each tenant had such a request served."""
    outage_s: float
    """The longest time, from its beginning on, without any request served."""
    largest_mb: float
    """The resident set of the largest worker, at its peak since it was started."""
    errors: dict[str, int]
    """The errors after which tenants repeated their requests."""


class Arena:
    """Everything runs between ``start`` and ``stop``; faults come one after another."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.rabbit = RabbitServer(directory / "rabbit")
        self.redis = RedisServer(directory / "redis")
        self.workers: dict[str, WorkerProcess] = {}
        """In the order in which they take requests."""
        self.figures: list[Figures] = []
        self._starts = 0
        self._open = contextlib.ExitStack()

    def start(self) -> None:
        """Servers, workers, hosts, tenants, an auditor."""
        open_ = self._open
        for server in (self.rabbit, self.redis):
            open_.enter_context(server)
        self.bus_proxy = open_.enter_context(Proxy(self.rabbit.port))
        self.state_proxy = open_.enter_context(Proxy(self.redis.port))
        open_.callback(self._end_workers)
        for name in WORKERS:
            self.start_worker(name).ready()  # one by one: the oldest comes first
        self._start_tenants()
        self.auditor = Auditor(Books(self.redis.url, "faults", tuple(CLUSTERS)))
        self.auditor.start()
        open_.callback(self.auditor.stop)

    def start_worker(
        self, name: str, *, module: str = "scheduler_worker", **more: Any
    ) -> WorkerProcess:
        """Not yet ready; ``more`` are groups of options, ``module`` is what runs the worker."""
        self.workers.pop(name, None)
        self._starts += 1
        rabbit, redis = self.rabbit.url, self.redis.url
        if name == WORKERS[0]:
            rabbit = rabbit.replace(f":{self.rabbit.port}/", f":{self.bus_proxy.port}/")
            redis = redis.replace(f":{self.redis.port}/", f":{self.state_proxy.port}/")
        groups: dict[str, Any] = {
            "DEFAULT": {"transport_url": rabbit, "host": name, "service_down_time": 600},
            "state": {"url": redis, "prefix": "faults"},
            "oslo_messaging_rabbit": RABBIT,
            **SETTINGS,
            **more,
        }
        label = f"{name}-{self._starts}"
        config = write_config(self.directory / f"{label}.conf", **groups)
        self.workers[name] = WorkerProcess(config, name=label, module=module)
        return self.workers[name]

    def replace_workers(self, module: str = "scheduler_worker") -> None:
        """One after the other, so that the others serve all the time."""
        for name in WORKERS:
            self.workers[name].stop()
            self.start_worker(name, module=module).ready()

    def put_first(self, name: str) -> None:
        """Let all workers that come before it stand still for a moment, so that it comes first."""
        older = list(itertools.takewhile(lambda each: each != name, self.workers))
        with contextlib.ExitStack() as paused:
            for each in older:
                paused.enter_context(self.workers[each].paused())
            if older:
                self.wait(STOOD_STILL_S)
        for each in older:
            self.workers[each] = self.workers.pop(each)

    def _end_workers(self) -> None:
        for each in self.workers.values():
            each.__exit__()

    def _start_tenants(self) -> None:
        self.served, self._mailbox = Served(), Mailbox()
        self.racks = Racks(CLUSTERS, VCPUS)
        path = write_config(self.directory / "client.conf", oslo_messaging_rabbit=RABBIT)
        self._bus = bus = Bus(conf.load(["--config-file", str(path)]), url=self.rabbit.url)
        self._open.enter_context(bus)
        answers = bus.server(
            "tenants",
            "arena",
            [Endpoint(None, "1.0", {"destinations_selected": self._mailbox.take})],
        )
        answers.start()
        self._open.callback(answers.stop, 1.0)
        self.client = SchedulerClient(bus, timeout_s=SOON_S)
        for cluster in CLUSTERS:
            self.client.update_hosts(self.racks.reports(cluster))
        cast = bus.client("scheduler", namespace=versions.NAMESPACE, version=versions.WORKER).cast
        self._reporters = [Reporter(cluster, self.racks, cast) for cluster in CLUSTERS]
        hasty = SchedulerClient(bus, timeout_s=5.0)  # they ask again
        self._tenants = [
            Tenant(f"tenant-{number}", hasty, self.racks, self._mailbox, self.served)
            for number in range(TENANTS)
        ]
        clients: list[Tenant | Reporter] = [*self._reporters, *self._tenants]
        for each in clients:
            each.start()

    # Faults

    @contextlib.contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """A fault inside; afterwards all tenants are served again, and the invariants hold."""
        self.serve_some()
        begun_s, served = time.monotonic(), self.served
        served.errors.clear()
        before = len(served.ends_s)
        yield
        ended_s = time.monotonic()
        all_s = self.until_all_are_served(ended_s)
        self.until_all_workers_answer()
        self.serve_some()
        ends_s = [begun_s, *served.ends_s[before:]]
        self.figures.append(
            Figures(
                name,
                first_s=min(served.begun_after(ended_s)) - ended_s,
                all_s=all_s,
                outage_s=max(after - end for end, after in itertools.pairwise(ends_s)),
                largest_mb=max(each.peak_mb() for each in self.workers.values()),
                errors=dict(served.errors),
            )
        )
        self.check()

    def serve_some(self, number: int = STEADY) -> None:
        """Until so many more requests were served."""
        goal = len(self.served.ends_s) + number
        assert self.served.wait_for(lambda: len(self.served.ends_s) >= goal, SOON_S), "stuck"

    def until_all_are_served(self, since_s: float) -> float:
        """Seconds until every tenant was served with something that it asked for since then."""

        def is_so() -> bool:
            last = self.served.last_begun_s
            return sum(begun_s > since_s for begun_s in last.values()) == TENANTS

        late = "not every tenant is served again"
        assert self.served.wait_for(is_so, SOON_S), f"{late}: {self.served.errors}"
        return time.monotonic() - since_s

    def until_all_workers_answer(self) -> None:
        """Until each worker answered that was asked by its name."""
        for name in self.workers:
            asked = self._bus.client("scheduler", server=name, namespace="baseapi", timeout_s=1.0)
            eventually(lambda asked=asked: _answers(asked), SOON_S)

    def is_in(self, name: str, cluster: str) -> bool:
        """Whether the store has a host in this cluster, and in no other."""
        hosts = self.auditor.look().hosts
        return [each["cluster"] for each in hosts if each["host"] == name] == [cluster]

    def wait(self, seconds: float) -> None:
        """How long a fault lasts."""
        threading.Event().wait(seconds)

    def check(self) -> None:
        """The auditor looks still, and saw nothing that must not be; nothing is left behind."""
        self.auditor.until_it_looked()
        assert not self.auditor.violations, sorted(self.auditor.violations)
        assert not self.served.broken, self.served.broken
        now_s = self.auditor.look().now_s
        eventually(self._ends_reservations)
        assert not self.auditor.look().left_behind(now_s)

    def _ends_reservations(self) -> bool:
        """Every read deletes expired records, at most a hundred."""
        with contextlib.suppress(BackendError):
            self._reserved()
            return True
        return False

    # The end

    def stop(self) -> None:
        """Stop the tenants; then every cast is answered, and every reservation ends in time."""
        try:
            for each in self._tenants:
                each.stop()
            for each in self._tenants:
                each.join(NEVER_S)
                assert not each.is_alive(), f"{each.name} is stuck"
            for reporter in self._reporters:
                reporter.stop()
            self.check()
            eventually(self._has_reported)
            look = self.auditor.look
            self.client.update_instance_info("e1", [{"uuid": "announced", "host": "e1"}])
            eventually(lambda: "announced" in look().instances["e1"])
            eventually(lambda: not self._lasting(), TTL_S + SOON_S)
        finally:
            self._open.close()

    def _has_reported(self) -> bool:
        """Whether the store knows the true instances once all hosts have reported.

        An announcement that failed is tried again for some seconds. When it is made, its instance
        may be gone: it is known until the next report.
        """
        for cluster in CLUSTERS:
            self.client.update_hosts(self.racks.reports(cluster))
        found = self.auditor.look()
        known, true = found.instances, self.racks.instances
        differing = {name: known.get(name, set()) ^ true[name] for name in true}
        if any(differing.values()):  # shown with a failure
            print("Instances that are known or true, not both:", differing, sorted(found.lists))
        return known == true

    def _lasting(self) -> list[Any]:
        """Reservations that should have ended; those made before the clock went back may last."""
        self._reserved()
        found = self.auditor.look()
        return [each for each in found.reservations if each["created_at_s"] <= found.now_s]

    def _reserved(self) -> list[Any]:
        """The workers' listings, each of which deletes expired records."""
        return self.client.list_reservations(limit=1000)["reservations"]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.callback(self._open.close)
            self.start()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _answers(asked: Client) -> bool:
    try:
        asked.call("ping", {}, arg=None)
    except BackendError:
        return False
    return True
