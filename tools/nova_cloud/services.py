"""The processes of a control plane, each in a directory of its own with its log."""

import contextlib
import getpass
import os
import re
import signal
import sys
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from nova_cloud.client import ComputeClient, PlacementClient
from nova_cloud.configuration import Files, Groups, dry_run_groups, worker_groups
from nova_cloud.fleet import Fleet
from nova_cloud.installation import PROJECT, Installation
from nova_cloud.waiting import until
from tests.support.databases import MariaServer
from tests.support.servers import LOOPBACK, RabbitServer, RedisServer, Server, ServerFailed
from tests.support.workers import write_config

INSIDE = Path(__file__).with_name("inside")
MODULE = "scheduler_worker"
"""What runs the worker."""


class Service(Server):
    """A server whose children end with it."""

    def _end(self, pid_file: str, how: signal.Signals) -> None:
        group = self.pid if self.is_running else None
        super()._end(pid_file, how)
        if group is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)  # whatever it has forked
            until(lambda: not _lives(group), f"the children of {self.name} have ended")


def _lives(group: int) -> bool:
    """Whether some process of the group still holds its ports."""
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state, _parent, its_group = each.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


class Database(MariaServer):
    """A MariaDB run by whoever runs the cloud, be it root: others may not reach its directory."""

    def _as_user(self, command: Sequence[str]) -> list[str]:
        return [*command, f"--user={getpass.getuser()}"]

    def _give_away(self, path: Path) -> None:
        """It is its user's already."""


class HttpService(Service):
    """A service that is ready when a page of it is answered."""

    page = "/"

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def check_ready(self) -> None:
        with urllib.request.urlopen(self.url + self.page, timeout=10) as answer:  # noqa: S310
            answer.read()


class Stub(HttpService):
    """Glance and Neutron, as far as they are asked."""

    name = "the stub of Glance and Neutron"

    def command(self) -> list[str]:
        return [sys.executable, str(INSIDE / "stub.py"), str(self.port)]


class WsgiService(HttpService):
    """An application of Nova or Placement under uWSGI."""

    module: str

    def __init__(self, directory: Path, installation: Installation, files: Files) -> None:
        super().__init__(directory)
        self._installation = installation
        self._files = files

    def command(self) -> list[str]:
        return [
            str(self._installation.program("uwsgi")),
            *("--virtualenv", str(self._installation.venv)),
            *("--http-socket", f"{LOOPBACK}:{self.port}", "--module", self.module),
            *("--pythonpath", str(INSIDE)),
            *("--master", "--processes", "2", "--threads", "4", "--enable-threads"),
            *("--lazy-apps", "--need-app", "--die-on-term", "--no-orphans", "--thunder-lock"),
            *("--buffer-size", "65535", "--log-format", "%(method) %(uri) %(status) %(msecs) ms"),
            # Or else clients meet connections that were closed while they were idle.
            *("--add-header", "Connection: close"),
        ]  # fmt: skip


class Placement(WsgiService):
    """Placement's API; its log has each request."""

    name = "Placement"
    module = "busy_placement:application"

    def __init__(
        self, directory: Path, installation: Installation, files: Files, faults: Path
    ) -> None:
        super().__init__(directory, installation, files)
        self._faults = faults

    def check_ready(self) -> None:
        PlacementClient(self.url).providers()

    def environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "OS_PLACEMENT_CONFIG_DIR": str(self._files.directory),
            "NOVA_CLOUD_FAULTS": str(self._faults),
        }


class ComputeApi(WsgiService):
    """nova-api."""

    name = "nova-api"
    module = "nova.wsgi.osapi_compute:application"

    def check_ready(self) -> None:
        ComputeClient(self.url).flavors()

    def environment(self) -> Mapping[str, str]:
        # The paste file must come first.
        files = f"{self._files.paste.name};{self._files.nova.name}"
        directory = str(self._files.directory)
        return {
            **os.environ,
            "OS_NOVA_CONFIG_DIR": directory,
            "OS_NOVA_CONFIG_FILES": files,
        }


class RpcService(Service):
    """A service that is ready when it consumes ``queue``."""

    ports = ()
    queue: str

    def __init__(
        self, directory: Path, installation: Installation, files: Files, broker: RabbitServer
    ) -> None:
        super().__init__(directory)
        self._installation = installation
        self._files = files
        self._broker = broker

    def check_ready(self) -> None:
        if not consumers(self._broker, self.queue):
            raise ServerFailed(f"nobody consumes the queue {self.queue}")


class Conductor(RpcService):
    """nova-conductor of the API and of the cell."""

    name = "nova-conductor"
    queue = "conductor"

    def command(self) -> list[str]:
        program = self._installation.program("nova-conductor")
        return [str(program), "--config-file", str(self._files.nova)]


class NovaScheduler(RpcService):
    """nova-scheduler itself, to compare with."""

    name = "nova-scheduler"
    queue = f"scheduler.{name}"  # its own: workers may consume the other

    def command(self) -> list[str]:
        program = self._installation.program("nova-scheduler")
        own = self.directory.resolve() / "scheduler.conf"
        # The other services are ended within seconds; this one answers what it has taken, as by
        # Nova's default it may, or else the callers of these requests would wait in vain.
        write_config(own, DEFAULT={"host": self.name, "graceful_shutdown_timeout": 60})
        files = self._files.nova, own
        return [str(program), *(word for file in files for word in ("--config-file", str(file)))]


class Compute(RpcService):
    """A nova-compute; its host is named as its directory."""

    def __init__(
        self,
        directory: Path,
        installation: Installation,
        files: Files,
        broker: RabbitServer,
        fleet: Fleet,
        faults: Path,
    ) -> None:
        super().__init__(directory, installation, files, broker)
        self.host = directory.name
        self.name = f"nova-compute of {self.host}"
        self.queue = f"compute.{self.host}"
        self._fleet = fleet
        self._faults = faults

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        # Without the file of its identity, a compute that is not new refuses to start.
        identity = str(uuid.uuid5(uuid.NAMESPACE_DNS, self.host))
        (self.directory / "compute_id").write_text(identity)
        own = {"host": self.host, "state_path": self.directory.resolve()}
        write_config(self._own, DEFAULT={**own, "compute_driver": "fake.SizedDriver"})
        super().start()

    def command(self) -> list[str]:
        return [
            *(str(self._installation.python), str(INSIDE / "compute.py")),
            *("--config-file", str(self._files.compute), "--config-file", str(self._own)),
        ]

    def environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "NOVA_CLOUD_VCPUS": str(self._fleet.vcpus),
            "NOVA_CLOUD_MEMORY_MB": str(self._fleet.memory_mb),
            "NOVA_CLOUD_DISK_GB": str(self._fleet.disk_gb),
            "NOVA_CLOUD_FAULTS": str(self._faults),
        }

    @property
    def _own(self) -> Path:
        return self.directory.resolve() / "compute.conf"


class Worker(HttpService):
    """Our worker in nova-scheduler's place: the cloud's nova.conf, and a file with a few lines."""

    page = "/readyz"

    def __init__(self, directory: Path, files: Files, redis: RedisServer) -> None:
        super().__init__(directory)
        self.name = f"scheduler-worker ({directory.name})"
        self.module = MODULE
        """Another one may run the same program, and something more."""
        self.options: Groups = {}
        """Beside those that each worker of a cloud has."""
        self._files = files
        self._redis = redis

    @property
    def configuration(self) -> list[Path]:
        """The files that it reads, the last one with precedence."""
        return [self._files.nova, self.directory.resolve() / "worker.conf"]

    def groups(self) -> Groups:
        """What its own file has."""
        return worker_groups(self.directory.name, self._redis.url, self.port)

    def command(self) -> list[str]:
        write_config(self.configuration[-1], **{**self.groups(), **self.options})
        files = [word for file in self.configuration for word in ("--config-file", str(file))]
        return [sys.executable, "-m", self.module, *files]

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONPATH": str(PROJECT)}


class DryRun(Worker):
    """Our worker beside nova-scheduler, deciding on copies of its requests."""

    def __init__(self, directory: Path, files: Files, redis: RedisServer) -> None:
        super().__init__(directory, files, redis)
        self.name = "scheduler-worker (dry run)"

    def groups(self) -> Groups:
        return dry_run_groups(self.directory.name, self.port)

    def results(self) -> dict[str, int]:
        """How many instances compare how, by its metric."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:  # noqa: S310
            lines = answer.read().decode().splitlines()
        counts = (re.fullmatch(r'scheduler_dry_run_requests_total{result="(\w+)"} (\S+)', line)
                  for line in lines)  # fmt: skip
        return {count[1]: int(float(count[2])) for count in counts if count}

    def differences(self) -> list[str]:
        """What it says of instances that it would have put elsewhere."""
        return re.findall(r"Dry run: (instance .*)", self.log.read_text())


def consumers(broker: RabbitServer, queue: str) -> int:
    """How many programs consume the queue; none if it does not exist."""
    import amqp

    with amqp.Connection(f"{LOOPBACK}:{broker.port}", "guest", "guest") as link:
        try:
            return int(link.channel().queue_declare(queue, passive=True).consumer_count)
        except amqp.NotFound:
            return 0
