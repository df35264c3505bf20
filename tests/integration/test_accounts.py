"""The accounts of ``docs/security.md`` have the permissions that they need, and no more."""

import re
import shlex
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scheduler_worker import conf
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import BusUnavailable
from scheduler_worker.rpc.transport import Bus
from tests.support.agents import conductor
from tests.support.amqp import Operator
from tests.support.patience import SOON_S, eventually
from tests.support.services import host
from tests.support.workers import WorkerProcess

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "security.md"
SPEC = {"flavor": {"vcpus": 1, "memory_mb": 512}, "num_instances": 1}


@pytest.fixture
def account(rabbit_server, rabbit_vhost_url):
    """Creates an account of the document on the test's virtual host; returns its URL."""
    vhost = urlsplit(rabbit_vhost_url).path.strip("/")
    made = []

    def make(name: str) -> str:
        [line] = re.findall(rf"^\$ rabbitmqctl set_permissions -p nova {name} (.*)$",
                            DOCUMENT.read_text(), re.MULTILINE)  # fmt: skip
        configure, write, read = shlex.split(line)
        user = f"{name}-{uuid.uuid4().hex[:8]}"
        rabbit_server.add_user(user, "SECRET")
        made.append(user)
        rabbit_server.permit(user, configure, write, read, vhost)
        return rabbit_vhost_url.replace("guest:guest", f"{user}:SECRET")

    yield make
    for user in made:
        rabbit_server.delete_user(user)


@pytest.mark.deep
def test_the_documented_permissions_of_a_worker_suffice(account, rabbit_vhost_url, configure):
    config = configure("w", DEFAULT={"transport_url": account("scheduler")})
    with (
        WorkerProcess(config).ready() as worker,
        SchedulerClient.connect(account("tool"), timeout_s=SOON_S) as client,
        Bus(conf.load([]), url=rabbit_vhost_url) as conductors,
    ):
        client.update_hosts([host("h")])
        client.update_aggregates([{"id": 1, "uuid": "a", "name": "a", "hosts": ["h"]}])
        [[chosen]] = client.select_destinations(SPEC, ["i1"])
        assert chosen.service_host == "h"
        eventually(lambda: client.list_hosts()["hosts"][0]["aggregates"] == ["a"])
        eventually(lambda: [each["name"] for each in client.list_workers()["workers"]] == ["w"])
        with conductor(conductors) as answers:
            client.request_destinations(SPEC, ["i2"], reply_to={"topic": "conductor"})
            assert answers.get(timeout=SOON_S)["selections"]
        operator = Operator(rabbit_vhost_url)
        operator.put("scheduler", b"garbage")
        eventually(lambda: operator.exists("scheduler_dead_letters"))
        eventually(lambda: operator.depth("scheduler_dead_letters") == 1)
        client.ping()
        assert worker.stop() == 0
        assert "refused" not in worker.log.lower(), worker.log


def test_a_tools_account_cannot_consume_the_workers_queues(account, rabbit_vhost_url):
    with Bus(conf.load([]), url=account("tool")) as bus:
        intruder = bus.server("scheduler", "intruder", [])
        with pytest.raises(BusUnavailable, match="ACCESS_REFUSED"):
            intruder.start()
