"""scheduler-workerctl with a real RabbitMQ, a real Redis and two workers, through all commands."""

import contextlib
import io
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker import conf
from scheduler_worker.cli.ctl import main
from scheduler_worker.client import SchedulerClient
from scheduler_worker.rpc.transport import Bus
from tests.support.patience import NEVER_S, PROCESS_S, SOON_S, eventually
from tests.support.servers import LOOPBACK, free_port
from tests.support.services import host
from tests.support.threads import in_thread
from tests.support.web import ask
from tests.support.workers import WorkerProcess, all_ready

WHOLE_HOST = {"flavor": {"vcpus": 4, "memory_mb": 4096, "root_gb": 20}, "num_instances": 1}


class Fleet:
    """Two workers, and the command that asks them."""

    def __init__(self, configure: Callable[..., Path], bus: Bus) -> None:
        self.bus = bus
        self.ports = {name: free_port() for name in ("one", "two")}
        waits = {"ttl": NEVER_S, "wait_timeout": NEVER_S}
        self.configs = {
            name: configure(name, pending=waits, monitoring={"port": port})
            for name, port in self.ports.items()
        }
        self.workers = {
            name: WorkerProcess(config, name=name) for name, config in self.configs.items()
        }

    def ctl(self, *words: str) -> tuple[int, str, str]:
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            status = main([*words, "--config-file", str(self.configs["one"])])
        return status, out.getvalue(), err.getvalue()

    def plain(self, *words: str) -> Any:
        """What a command prints as JSON."""
        status, out, err = self.ctl(*words, "-f", "json")
        assert status == 0, err
        return json.loads(out)

    def states(self) -> dict[str, str]:
        return {each["Worker"]: each["State"] for each in self.plain("worker", "list")}

    def consumers(self) -> int:
        """How many workers take requests."""
        return self.bus.queue_use("scheduler").consumers

    def readyz(self, worker: str) -> int:
        return ask(self.ports[worker], "/readyz").status


@pytest.fixture
def fleet(configure, rabbit_vhost_url) -> Iterator[Fleet]:
    with Bus(conf.load(), url=rabbit_vhost_url) as bus:
        fleet = Fleet(configure, bus)
        with all_ready(*fleet.workers.values()):
            eventually(lambda: fleet.states() == {"one": "serving", "two": "serving"})
            yield fleet


def test_a_drained_worker_takes_nothing_finishes_what_it_has_and_is_resumed(fleet):
    client = SchedulerClient(fleet.bus, timeout_s=SOON_S)
    client.update_hosts([host("a", cpu_allocation_ratio=1.0)])
    full, waiting = str(uuid.uuid4()), str(uuid.uuid4())
    client.select_destinations(WHOLE_HOST, [full])
    eventually(lambda: fleet.ctl("worker", "drain", "two")[1] == "two: drained\n")
    eventually(lambda: fleet.consumers() == 1)
    answer = in_thread(client.select_destinations, WHOLE_HOST, [waiting])
    eventually(lambda: fleet.plain("worker", "show", "one")["Running"] == 1)
    assert fleet.ctl("worker", "resume", "two")[1] == "two: serving\n"
    assert fleet.ctl("worker", "drain", "one")[1] == "one: draining\n"
    assert fleet.ctl("worker", "drain", "one")[1] == "one: draining\n"
    # One that waits for resources takes no message more from the queue for it.
    eventually(lambda: fleet.consumers() == 1)
    status, _, err = fleet.ctl("worker", "drain", "one", "--wait", "0.001")
    assert (status, "one has 1 requests in hand" in err) == (1, True)
    assert not answer.done()
    assert fleet.ctl("reservation", "release", full)[0] == 0
    [[chosen]] = answer.result(SOON_S)
    assert chosen.service_host == "a"
    status, out, _ = fleet.ctl("worker", "drain", "one", "--wait", str(SOON_S))
    assert (status, out.splitlines()[-1]) == (0, "one: drained")
    eventually(lambda: fleet.states() == {"one": "drained", "two": "serving"})
    eventually(lambda: fleet.readyz("one") == 503)
    eventually(lambda: fleet.readyz("two") == 200)  # it may be a second old
    assert fleet.ctl("worker", "resume", "one")[1] == "one: serving\n"
    eventually(lambda: fleet.consumers() == 2)
    eventually(lambda: fleet.readyz("one") == 200)


@pytest.mark.deep
def test_the_command_as_it_is_installed(fleet):
    ctl = Path(sys.executable).with_name("scheduler-workerctl")

    def run(command: str) -> subprocess.CompletedProcess[str]:
        line = f"'{ctl}' {command}"
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            capture_output=True, text=True, timeout=PROCESS_S, check=False,
        )  # fmt: skip

    found = run(f"worker list --url {fleet.bus.url} -f value -c Worker --sort-column worker")
    assert (found.returncode, found.stdout, found.stderr) == (0, "one\ntwo\n", "")
    away = f"rabbit://guest:secret@{LOOPBACK}:{free_port()}/"
    found = run(f"worker list --url {away} --timeout 0.5")
    assert (found.returncode, found.stdout) == (3, "")
    assert len(found.stderr.splitlines()) == 1
    assert "secret" not in found.stderr
    found = run(f"--debug worker list --url {away} --timeout 0.5")
    assert (found.returncode, "Traceback" in found.stderr) == (3, True)
    assert "secret" not in found.stderr
    assert run(f"worker list --url {fleet.bus.url} | true").stderr == ""
    assert run("complete | bash -n").returncode == 0
