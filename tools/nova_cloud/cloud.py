"""The cloud: its servers and services, started in order, as much as possible at once."""

import contextlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nova_cloud import schemas
from nova_cloud.books import Books
from nova_cloud.client import ComputeClient, PlacementClient
from nova_cloud.configuration import Endpoints, Files, Groups
from nova_cloud.errors import CloudFailed
from nova_cloud.fleet import Fleet
from nova_cloud.installation import Installation
from nova_cloud.services import (
    Compute,
    ComputeApi,
    Conductor,
    Database,
    DryRun,
    NovaScheduler,
    Placement,
    Stub,
    Worker,
    consumers,
)
from nova_cloud.waiting import POLL_S, until
from scheduler_worker import conf
from tests.support.servers import RabbitServer, RedisServer, Server

SCHEDULERS = ("nova", "ours", "none")
AGREEMENT_S = 30.0
OUR_GROUPS = ("nova_feed", "nova_claims")
"""The groups of options by which the worker serves a real cloud."""


class Cloud:
    """A control plane in ``directory``, which is its alone; nothing runs until :meth:`up`.

    ``options`` are for its nova.conf, beside those that it needs.
    """

    def __init__(
        self,
        directory: Path,
        installation: Installation,
        fleet: Fleet,
        options: Groups | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self.fleet = fleet
        self._installation = installation
        self._files = Files(self.directory / "etc", options)
        self._faults = self.directory / "faults.json"
        at = self.directory.joinpath
        self.database = Database(at("mariadb"))
        self.broker = RabbitServer(at("rabbitmq"))
        self.redis = RedisServer(at("redis"))
        self.stub = Stub(at("stub"))
        self.placement_service = Placement(at("placement"), installation, self._files, self._faults)
        self.api = ComputeApi(at("nova-api"), installation, self._files)
        self.conductor = Conductor(at("nova-conductor"), installation, self._files, self.broker)
        self.nova_scheduler = NovaScheduler(
            at("nova-scheduler"), installation, self._files, self.broker
        )
        self.computes = {
            name: Compute(at(name), installation, self._files, self.broker, fleet, self._faults)
            for name in fleet.names
        }
        self.dry_run = DryRun(at("dry-run"), self._files, self.redis)
        self.workers = [
            Worker(each, self._files, self.redis)
            for each in sorted(self.directory.glob("worker-*"))
        ]

    @classmethod
    def opened(cls, directory: Path, installation: Installation) -> "Cloud":
        """That which was made in a directory. Raises CloudFailed."""
        fleet = directory / "fleet.json"
        if not fleet.exists():
            raise CloudFailed(f"There is no cloud in {directory}: bring one up.")
        return cls(directory, installation, Fleet.load(fleet))

    @property
    def services(self) -> list[Server]:
        """All that may run, in an order in which they can be started."""
        return [
            *(self.database, self.broker, self.redis, self.stub),
            *(self.placement_service, self.conductor, self.api),
            *(*self.computes.values(), self.nova_scheduler, self.dry_run, *self.workers),
        ]

    @property
    def compute(self) -> ComputeClient:
        return ComputeClient(self.api.url)

    @property
    def placement(self) -> PlacementClient:
        return PlacementClient(self.placement_service.url)

    def up(self) -> None:
        """Start what does not run, but for a scheduler; when it fails, what runs is ended again."""
        self.prepare()
        with self._ended_on_failure():
            _start(self.conductor, self.api)
            _start(*self.computes.values())
            self._map_hosts()
            self.compute.make_flavors()

    def prepare(self) -> None:
        """Start what a scheduler needs, likewise: databases, broker and Placement."""
        self._installation.ensure()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.fleet.save(self.directory / "fleet.json")
        with self._ended_on_failure():
            _start(self.database, self.broker, self.stub)
            self._prepare()
            _start(self.placement_service)

    def down(self, *, wipe: bool = False) -> None:
        """End everything, the data's keepers last. ``wipe`` removes the directory as well."""
        keepers = self.database, self.broker, self.redis
        _stop(*(service for service in self.services if service not in keepers))
        _stop(*keepers)
        if wipe and (self.directory / "fleet.json").exists():  # it is a cloud's
            shutil.rmtree(self.directory)

    def schedule_with(
        self, scheduler: str, *, replicas: int = 1, options: Groups | None = None
    ) -> None:
        """Let nova-scheduler, workers of ours or nobody consume the topic; the others are ended.

        The new ones serve before the old ones end: the exchange of what is cast to all schedulers
        goes with the last of them, and computes that find none fail their builds. ``options`` are
        for workers that do not run yet, beside those that all of them have.
        """
        if scheduler == "nova":
            _start(self.nova_scheduler)
            _stop(*self.workers)
        elif scheduler == "ours":
            self._start_workers(replicas, options or {})
            _stop(self.nova_scheduler, *self.workers[replicas:])
        else:
            _stop(self.nova_scheduler, *self.workers)
            until(lambda: not consumers(self.broker, "scheduler"), "the topic has no consumer")

    def books(self) -> Books:
        """Placement's and Nova's, as they are now."""
        return Books(self.compute, self.placement)

    def agreed_books(self) -> Books:
        """The books once they agree: allocations end a moment after servers. Raises CloudFailed."""
        deadline_s = time.monotonic() + AGREEMENT_S
        while True:
            books = self.books()
            found = books.disagreements()
            if not found:
                return books
            if time.monotonic() > deadline_s:
                raise CloudFailed("\n".join(found))
            time.sleep(POLL_S)

    def set_faults(self, faults: Mapping[str, str | float]) -> None:
        """By host what its next spawns meet: ``fail``, ``abort``, or seconds that they take.

        ``placement``: how many of the first writes for each consumer meet a faster writer.
        """
        draft = self._faults.with_suffix(".draft")
        draft.write_text(json.dumps(dict(faults)))
        draft.replace(self._faults)

    def await_computes(self, *names: str) -> None:
        """Until these hosts, or all, are up as Nova sees it."""
        wanted = set(names or self.fleet.names)

        def are_up() -> bool:
            services = self.compute.services()
            return wanted <= {service["host"] for service in services if service["state"] == "up"}

        until(are_up, f"the computes of {', '.join(sorted(wanted))} are up")

    @contextlib.contextmanager
    def _ended_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.down()
            raise

    def _prepare(self) -> None:
        """Configurations, and the databases if these are their first."""
        self.placement_service.take_ports()  # named in the files of those that start before it
        urls = Endpoints(
            broker=self.broker.url,
            database=self.database.url,
            placement=self.placement_service.url,
            stub=self.stub.url,
        )
        self._files.write(urls)
        done = self.directory / "schemas-are-made"
        if not done.exists():
            schemas.create(self.database, self._installation, self._files)
            done.touch()

    def _map_hosts(self) -> None:
        """Tell the cell's hosts to the API, as an operator does who adds some."""
        self.await_computes()
        mapped = self.directory / "mapped-hosts"
        names = " ".join(self.fleet.names)
        if not mapped.exists() or mapped.read_text() != names:
            schemas.nova_manage(self._installation, self._files, "cell_v2", "discover_hosts")
            mapped.write_text(names)

    def _start_workers(self, replicas: int, options: Groups) -> None:
        unknown = missing_groups()
        if unknown:
            raise CloudFailed(
                f"This worker cannot serve a cloud: it does not know {' and '.join(unknown)}."
            )
        for number in range(len(self.workers), replicas):
            directory = self.directory / f"worker-{number + 1}"
            self.workers.append(Worker(directory, self._files, self.redis))
        for worker in self.workers[:replicas]:
            worker.options = options
        _start(self.redis)
        _start(*self.workers[:replicas])


def missing_groups() -> list[str]:
    """The groups of options that a worker needs for a cloud, and ours does not know."""
    known = {group for group, _ in conf.list_opts()}
    return [f"[{each}]" for each in OUR_GROUPS if each not in known]


def _start(*servers: Server) -> None:
    """Start those that do not run, all at once."""
    missing = [server for server in servers if not server.is_running]
    with ThreadPoolExecutor(max(1, len(missing))) as pool:
        list(pool.map(lambda each: each.start(), missing))


def _stop(*servers: Server) -> None:
    with ThreadPoolExecutor(max(1, len(servers))) as pool:
        list(pool.map(lambda each: each.stop(), servers))
