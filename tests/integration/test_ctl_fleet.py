"""scheduler-workerctl with a real RabbitMQ, a real Redis and two workers, through all commands."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from scheduler_worker import conf
from scheduler_worker.cli.ctl import main
from scheduler_worker.client import SchedulerClient
from scheduler_worker.rpc.transport import Bus
from tests.support.patience import NEVER_S, PROCESS_S, SOON_S, eventually
from tests.support.servers import LOOPBACK, free_port
from tests.support.threads import Threads
from tests.support.web import ask
from tests.support.workers import WorkerProcess, write_config

SPEC = {"flavor": {"vcpus": 2, "memory_mb": 4096, "root_gb": 20}, "num_instances": 1}
WHOLE_HOST = {"flavor": {"vcpus": 16, "memory_mb": 4096, "root_gb": 20}, "num_instances": 1}
ONE_HOST = [
    {
        "host": "a",
        "uuid": "u-a",
        "vcpus": 16,
        "memory_mb": 65536,
        "local_gb": 500,
        "cpu_allocation_ratio": 1.0,
    }
]


class Fleet:
    """Two workers, and the command that asks them."""

    def __init__(self, directory: Path, rabbit_url: str, redis_url: str) -> None:
        self.url = rabbit_url
        self.vhost = urlsplit(rabbit_url).path.strip("/")
        state = {"url": redis_url, "prefix": self.vhost}
        self.ports = {name: free_port() for name in ("one", "two")}
        self.configs = {
            name: write_config(
                directory / f"{name}.conf",
                DEFAULT={"transport_url": rabbit_url, "host": name, "service_down_time": 600},
                state=state,
                pending={"ttl": NEVER_S, "wait_timeout": NEVER_S},
                monitoring={"port": port},
            )
            for name, port in self.ports.items()
        }
        self.workers = {
            name: WorkerProcess(config, name=name) for name, config in self.configs.items()
        }

    def ctl(self, *words: str) -> tuple[int, str, str]:
        config = str(self.configs["one"])
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            status = main([*words, "--config-file", config])
        return status, out.getvalue(), err.getvalue()

    def plain(self, *words: str) -> Any:
        """What a command prints as JSON."""
        status, out, err = self.ctl(*words, "-f", "json")
        assert status == 0, err
        return json.loads(out)

    def states(self) -> dict[str, str]:
        return {each["Worker"]: each["State"] for each in self.plain("worker", "list")}

    def queue(self) -> Any:
        """How many workers take requests, and how many requests wait."""
        with Bus(conf.load(), url=self.url) as bus:
            return bus.queue_use("scheduler")

    def page(self, worker: str, path: str) -> tuple[int, str]:
        status, _, text = ask(self.ports[worker], path)
        return status, text


@contextlib.contextmanager
def serving(directory: Path, rabbit_url: str, redis_url: str) -> Iterator[Fleet]:
    found = Fleet(directory, rabbit_url, redis_url)
    with found.workers["one"], found.workers["two"]:
        for worker in found.workers.values():
            worker.ready()
        eventually(lambda: found.states() == {"one": "serving", "two": "serving"})
        yield found


@pytest.fixture(scope="module")
def fleet_of_all(tmp_path_factory, rabbit_url, redis_server) -> Iterator[Fleet]:
    with serving(tmp_path_factory.mktemp("fleet"), rabbit_url, redis_server.url) as found:
        yield found


@pytest.fixture
def fleet(fleet_of_all) -> Iterator[Fleet]:
    """The module's workers, which serve and know no host."""
    yield fleet_of_all
    fleet_of_all.ctl("worker", "resume", "one", "two")
    eventually(lambda: fleet_of_all.states() == {"one": "serving", "two": "serving"})
    for each in fleet_of_all.plain("reservation", "list"):
        fleet_of_all.ctl("reservation", "release", each["Instance"])
    for each in fleet_of_all.plain("host", "list"):
        fleet_of_all.ctl("host", "remove", each["Host"])


@pytest.fixture
def mortal_fleet(tmp_path, rabbit_vhost_url, redis_server) -> Iterator[Fleet]:
    """Workers of the test's own, which it may end."""
    with serving(tmp_path, rabbit_vhost_url, redis_server.url) as found:
        yield found


@pytest.fixture
def client(rabbit_url) -> Iterator[SchedulerClient]:
    with SchedulerClient.connect(rabbit_url, timeout_s=SOON_S) as client:
        yield client


def test_a_drained_worker_takes_nothing_finishes_what_it_has_and_is_resumed(fleet, client):
    client.update_hosts(ONE_HOST)
    full, waiting = str(uuid.uuid4()), str(uuid.uuid4())
    client.select_destinations(WHOLE_HOST, [full])
    assert fleet.ctl("worker", "drain", "two")[1] == "two: drained\n"
    eventually(lambda: fleet.queue().consumers == 1)
    status, _, err = fleet.ctl("worker", "drain", "one")
    assert (status, "no other worker would take requests" in err) == (1, True)
    with Threads(1) as pool:
        answer = pool.submit(client.select_destinations, WHOLE_HOST, [waiting])
        eventually(lambda: fleet.plain("worker", "show", "one")["Running"] == 1)
        assert fleet.ctl("worker", "resume", "two")[1] == "two: serving\n"
        assert fleet.ctl("worker", "drain", "one")[1] == "one: draining\n"
        assert fleet.ctl("worker", "drain", "one")[1] == "one: draining\n"
        # One that waits for resources takes no message more from the queue for it.
        eventually(lambda: fleet.queue().consumers == 1)
        status, _, err = fleet.ctl("worker", "drain", "one", "--wait", "0.001")
        assert (status, "one has 1 requests in hand" in err) == (1, True)
        assert not answer.done()
        assert fleet.ctl("reservation", "release", full)[0] == 0
        [[chosen]] = answer.result(SOON_S)
        assert chosen.service_host == "a"
    status, out, _ = fleet.ctl("worker", "drain", "one", "--wait", str(SOON_S))
    assert (status, out.splitlines()[-1]) == (0, "one: drained")
    eventually(lambda: fleet.states() == {"one": "drained", "two": "serving"})
    eventually(lambda: fleet.page("one", "/readyz")[0] == 503)
    assert "drained" in fleet.page("one", "/readyz")[1]
    assert "\nscheduler_drained 1.0\n" in fleet.page("one", "/metrics")[1]
    eventually(lambda: fleet.page("two", "/readyz")[0] == 200)  # it may be a second old
    assert fleet.ctl("worker", "resume", "one")[1] == "one: serving\n"
    eventually(lambda: fleet.queue().consumers == 2)
    eventually(lambda: fleet.page("one", "/readyz")[0] == 200)


def test_requests_wait_in_the_queue_until_the_last_worker_is_resumed(fleet, client):
    client.update_hosts(ONE_HOST)
    assert fleet.ctl("worker", "drain", "one", "two", "--last")[0] == 0
    eventually(lambda: fleet.queue().consumers == 0)
    with Threads(1) as pool:
        answer = pool.submit(client.select_destinations, SPEC, [str(uuid.uuid4())])
        eventually(lambda: fleet.queue().messages == 1)
        assert fleet.plain("worker", "show", "two")["State"] == "drained"
        assert fleet.ctl("worker", "resume", "two")[0] == 0
        assert answer.result(SOON_S)[0][0].service_host == "a"


@pytest.mark.deep
def test_a_drain_ends_with_the_process_and_outlasts_the_connection(mortal_fleet, rabbit_server):
    assert mortal_fleet.ctl("worker", "drain", "one")[0] == 0
    eventually(lambda: mortal_fleet.queue().consumers == 1)
    rabbit_server.control("close_all_connections", "-p", mortal_fleet.vhost, "a test")
    eventually(lambda: mortal_fleet.workers["one"].log.count("Consuming topic") == 2)
    eventually(lambda: mortal_fleet.workers["two"].log.count("Consuming topic") == 2)
    assert mortal_fleet.queue().consumers == 1
    eventually(lambda: mortal_fleet.states()["one"] == "drained")
    mortal_fleet.workers["one"].stop()
    with WorkerProcess(mortal_fleet.configs["one"], name="again").ready():
        eventually(lambda: mortal_fleet.states() == {"one": "serving", "two": "serving"})


def test_a_killed_worker_is_told_from_one_that_was_never_there(mortal_fleet):
    mortal_fleet.workers["one"].kill()
    eventually(lambda: mortal_fleet.states()["one"] == "silent")
    status, _, err = mortal_fleet.ctl("worker", "show", "one", "--timeout", "1")
    assert (status, "No answer within 1 s" in err) == (3, True)
    status, _, err = mortal_fleet.ctl("worker", "show", "nobody")
    assert (status, "There is no worker 'nobody'" in err) == (1, True)
    mortal_fleet.workers["two"].stop()
    assert mortal_fleet.ctl("cluster", "list", "--timeout", "1")[0] == 3


@pytest.mark.deep
def test_the_command_as_it_is_installed(fleet, rabbit_server):
    ctl = Path(sys.executable).with_name("scheduler-workerctl")

    def run(command: str) -> subprocess.CompletedProcess[str]:
        line = f"'{ctl}' {command}"
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            capture_output=True, text=True, timeout=PROCESS_S, check=False,
        )  # fmt: skip

    found = run(f"worker list --url {fleet.url} -f value -c Worker --sort-column worker")
    assert (found.returncode, found.stdout, found.stderr) == (0, "one\ntwo\n", "")
    found = run(f"worker list --url {fleet.url} --nonsense")
    assert (found.returncode, "unrecognized arguments" in found.stderr) == (2, True)
    away = f"rabbit://guest:secret@{LOOPBACK}:{free_port()}/"
    found = run(f"worker list --url {away} --timeout 0.5")
    assert (found.returncode, found.stdout) == (3, "")
    assert len(found.stderr.splitlines()) == 1
    assert "secret" not in found.stderr
    found = run(f"--debug worker list --url {away} --timeout 0.5")
    assert (found.returncode, "Traceback" in found.stderr) == (3, True)
    assert "secret" not in found.stderr
    assert run(f"worker list --url {fleet.url} | true").stderr == ""
    assert run("complete | bash -n").returncode == 0
