"""Workers that read Nova's databases: hosts come and follow, also when a worker fails."""

import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker.errors import SchedulerWorkerError
from tests.support.nova_databases import NovaCloud
from tests.support.patience import eventually
from tests.support.workers import WorkerProcess, connected, write_config

FEEDS = "This worker feeds now"


@pytest.fixture
def cloud(maria_server):
    """Two cells with three hosts each, whose services have an hour for their next heartbeat."""
    cloud = NovaCloud(maria_server, cells=2)
    cloud.add_hosts("a1", "a2", "a3")
    cloud.add_hosts("b1", "b2", "b3", cell_name="cell2")
    yield cloud
    cloud.close()


@pytest.fixture
def write(tmp_path, cloud, rabbit_url, redis_url):
    """Writes the configuration of a worker: a nova.conf with little more in it."""
    topic = f"scheduler-{uuid.uuid4().hex[:8]}"

    def written(name: str) -> Path:
        feed = {"enabled": True, "placement": False, "interval": 0.5, "full_interval": 2}
        return write_config(
            tmp_path / f"{name}.conf",
            DEFAULT={"transport_url": rabbit_url, "host": name, "service_down_time": 3600},
            state={"url": redis_url, "prefix": topic},
            api_database={"connection": cloud.reader_of(cloud.api_url), "max_pool_size": 5},
            nova_feed=feed,
            pending={"wait_timeout": 0},
        )

    return written


def hosts(client) -> dict[str, dict[str, Any]]:
    try:
        found = [client.get_host(each["uuid"]) for each in client.list_hosts()["hosts"]]
    except SchedulerWorkerError:  # the worker that had the request was killed
        return {}
    return {each["name"]: {**each["record"], **each} for each in found}


def test_the_workers_follow_the_databases_and_take_over_from_each_other(cloud, write, rabbit_url):
    aggregate = {"availability_zone": "z"}
    cloud.aggregate(1, ["a1"], **aggregate)
    first = WorkerProcess(write("w1"), name="w1")
    with first, connected(rabbit_url) as client:
        first.await_log("All hosts of 2 cells are known")
        first.await_log(FEEDS)
        found = hosts(client)
        assert {name: each["cell_uuid"] for name, each in found.items()} == {
            **dict.fromkeys(("a1", "a2", "a3"), cloud.cell_ids["cell1"]),
            **dict.fromkeys(("b1", "b2", "b3"), cloud.cell_ids["cell2"]),
        }
        assert found["a1"]["aggregates"] == ["agg1"]
        with WorkerProcess(write("w2"), name="w2").ready() as second:
            instance = cloud.boot("a2")
            eventually(lambda: client.get_host("a2")["instance_uuids"] == [instance])
            first.process.send_signal(signal.SIGKILL)
            cloud.change_instance(instance, host="b1")
            cloud.change_host("b1", cell_name="cell2", memory_mb_used=9999)
            second.await_log(FEEDS)
            eventually(lambda: hosts(client).get("b1", {}).get("memory_mb_used") == 9999)
            cloud.delete_instance(instance)
            cloud.remove_host("b3", cell_name="cell2")
            eventually(lambda: hosts(client).get("a2", {}).get("instances") == 0)
            eventually(lambda: set(hosts(client)) == {"a1", "a2", "a3", "b1", "b2"})
            [[chosen]] = client.select_destinations(
                {"flavor": {"vcpus": 1, "memory_mb": 512}, "availability_zone": "z"}, ["i1"]
            )
            assert chosen.service_host == "a1"
            assert second.stop() == 0
