"""A dry run beside a scheduler that serves: an oslo.messaging server in nova-scheduler's place."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker import conf
from scheduler_worker.rpc.dispatcher import Endpoint
from scheduler_worker.rpc.transport import Bus
from tests.support.foreign import ForeignServer
from tests.support.nova_databases import NovaCloud
from tests.support.patience import NEVER_S, SOON_S, eventually
from tests.support.servers import free_port
from tests.support.web import ask
from tests.support.workers import WorkerProcess, write_config

MOST = 40
"""Messages that the queue of copies holds."""
SPEC = {"flavor": {"vcpus": 1, "memory_mb": 1024, "root_gb": 1}, "num_instances": 1}


class PlayedScheduler:
    """Serves the topic with oslo.messaging's server: puts everything on one host."""

    def __init__(self, rabbit_url: str, topic: str) -> None:
        self.host = "a1"
        self.asked: list[str] = []
        self._bus = Bus(conf.load(), url=rabbit_url)
        endpoint = Endpoint(None, "4.5", {"select_destinations": self._select})
        self._server = ForeignServer(self._bus, topic, "nova-scheduler-1", [endpoint])
        self._client = self._bus.client(topic, version="4.5", timeout_s=SOON_S)
        self._server.start()

    def _select(self, context: Any, instance_uuids: Any = None, **_: Any) -> list[Any]:
        self.asked += instance_uuids
        return [[{"service_host": self.host}] for _ in instance_uuids]

    def ask(self, **spec: Any) -> str:
        """As a conductor does; returns the instance."""
        instance = str(uuid.uuid4())
        arguments: dict[str, Any] = {"spec_obj": SPEC | spec, "instance_uuids": [instance]}
        answer = self._client.call("select_destinations", {"request_id": "req-1"}, **arguments)
        assert answer == [[{"service_host": self.host}]]
        return instance

    def close(self) -> None:
        self._server.stop()
        self._bus.close()


@pytest.fixture
def cloud(maria_cloud):
    maria_cloud.add_hosts("a1", memory_mb=32768, free_ram_mb=16384)
    maria_cloud.add_hosts("a2")
    return maria_cloud


class Bed:
    """The configuration of a dry run, and the scheduler beside it."""

    def __init__(self, directory: Path, cloud: NovaCloud, rabbit_server) -> None:
        self.topic = f"scheduler-{uuid.uuid4().hex[:8]}"
        self.url = rabbit_server.new_vhost()
        self.vhost = self.url.rpartition("/")[2]
        self.port = free_port()
        self._rabbit = rabbit_server
        self.config = write_config(
            directory / "dry.conf",
            DEFAULT={"transport_url": self.url, "host": "dry1", "service_down_time": 3600},
            rpc={"topic": self.topic},
            api_database={"connection": cloud.reader_of(cloud.api_url)},
            nova_feed={"enabled": True, "placement": False, "interval": 0.5},
            dry_run={"enabled": True, "max_requests": MOST, "summary_interval": 1},
            monitoring={"port": self.port},
            # RabbitMQ must not give up a worker that is paused on a slow machine.
            oslo_messaging_rabbit={"heartbeat_timeout_threshold": int(NEVER_S)},
        )
        self.scheduler = PlayedScheduler(self.url, self.topic)

    def started(self, name: str = "dry") -> WorkerProcess:
        """A dry run that knows all hosts."""
        worker = WorkerProcess(self.config, name=name)
        worker.await_log("All hosts of 1 cells are known")
        worker.await_log("Copies of the messages of topic")
        return worker

    def queues(self) -> dict[str, int]:
        """The messages of each queue of the topic, however they were delivered."""
        listed = self._rabbit.control(
            "list_queues", "-p", self.vhost, "name", "messages", "--formatter=json"
        )
        return {
            each["name"]: each["messages"]
            for each in json.loads(listed)
            if each["name"].startswith(self.topic)
        }

    def results(self) -> dict[str, int]:
        """The metric, by result."""
        lines = ask(self.port, "/metrics").text.splitlines()
        name = "scheduler_dry_run_requests_total{"
        return {
            line.partition('result="')[2].partition('"')[0]: int(float(line.rpartition(" ")[2]))
            for line in lines
            if line.startswith(name)
        }


@pytest.fixture
def bed(tmp_path, cloud, rabbit_server):
    bed = Bed(tmp_path, cloud, rabbit_server)
    yield bed
    bed.scheduler.close()


@pytest.mark.deep
def test_copies_are_compared_and_the_scheduler_gets_everything(cloud, bed):
    alone = bed.queues().keys()
    with bed.started() as worker:
        mine = bed.queues().keys() - alone
        assert len(mine) == 1
        assert next(iter(mine)).startswith(f"{bed.topic}_dry_run_dry1.")

        first = bed.scheduler.ask()
        cloud.boot("a1", uuid=first)
        worker.await_log(f"instance {first}")
        second = bed.scheduler.ask()
        cloud.boot("a2", uuid=second)
        eventually(lambda: bed.results().get("same") == 1)
        third = bed.scheduler.ask(flavor={"vcpus": 1, "memory_mb": 900_000, "root_gb": 1})
        cloud.boot("a1", uuid=third)
        worker.await_log(f"instance {third}")
        many = [bed.scheduler.ask() for _ in range(20)]
        assert bed.scheduler.asked == [first, second, third, *many]
        eventually(lambda: bed.results() == {"same": 1, "differs": 1, "refused_here": 1})
        assert worker.stop() == 0
    assert "Traceback" not in worker.log
    assert bed.queues().keys() == alone
    assert set(bed.queues().values()) == {0}


@pytest.mark.deep
def test_a_dry_run_that_hangs_or_dies_takes_nothing_from_the_scheduler(bed):
    alone = bed.queues().keys()
    with bed.started() as worker:
        [mine] = bed.queues().keys() - alone
        with worker.paused():
            asked = [bed.scheduler.ask() for _ in range(3 * MOST)]
            assert bed.scheduler.asked == asked
            # What was delivered and is not acknowledged counts too; the rest is bounded.
            eventually(lambda: 0 < bed.queues()[mine] <= MOST + 32)
        eventually(lambda: bed.queues()[mine] == 0)
        worker.kill()
        eventually(lambda: bed.queues().keys() == alone)
        asked.append(bed.scheduler.ask())
    assert bed.scheduler.asked == asked
    with bed.started("again"):
        asked.append(bed.scheduler.ask())
        assert bed.scheduler.asked == asked


@pytest.mark.deep
def test_a_connection_that_is_lost_is_made_again(cloud, bed, rabbit_server):
    with bed.started() as worker:
        first = {each for each in bed.queues() if "_dry_run_" in each}
        rabbit_server.control("close_all_connections", "-p", bed.vhost, "test")
        worker.await_log("The connection to RabbitMQ is lost")
        eventually(lambda: len({e for e in bed.queues() if "_dry_run_" in e} - first) == 1)
        instance = bed.scheduler.ask(flavor={"vcpus": 1, "memory_mb": 900_000, "root_gb": 1})
        cloud.boot("a1", uuid=instance)
        worker.await_log(f"instance {instance}")
        bed.scheduler.ask(flavor={"vcpus": "many"})
        eventually(lambda: bed.results() == {"refused_here": 1, "undecided": 1})
        worker.await_log("flavor")


@pytest.mark.deep
def test_a_dry_run_waits_for_an_exchange_and_makes_none(tmp_path, cloud, rabbit_server):
    bed = Bed(tmp_path, cloud, rabbit_server)
    bed.scheduler.close()
    empty = rabbit_server.new_vhost()
    config = tmp_path / "dry.conf"
    config.write_text(config.read_text().replace(bed.url, empty))
    with WorkerProcess(config, name="early") as worker:
        worker.await_log("there is no exchange nova yet")
        listed = rabbit_server.control(
            "list_exchanges", "-p", empty.rpartition("/")[2], "name", "--formatter=json"
        )
        assert "nova" not in {each["name"] for each in json.loads(listed)}
        later = PlayedScheduler(empty, bed.topic)
        worker.await_log("Copies of the messages of topic")
        later.close()
        assert worker.stop() == 0
