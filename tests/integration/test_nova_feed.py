"""Workers that read Nova's databases: hosts come and follow, also when a worker or a cell fails."""

import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker.errors import NoValidHost, SchedulerWorkerError
from tests.support.nova_databases import NovaCloud
from tests.support.patience import eventually
from tests.support.placement_server import PlacementServer
from tests.support.proxy import Proxy
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

    def written(
        name: str,
        placement: PlacementServer | None = None,
        *,
        is_claiming: bool = False,
        service_down_time: int = 3600,
        **feed: Any,
    ) -> Path:
        known: dict[str, Any] = {"enabled": True, "placement": placement is not None}
        known |= {"interval": 0.5, "full_interval": 2}
        return write_config(
            tmp_path / f"{name}.conf",
            DEFAULT={
                "transport_url": rabbit_url, "host": name, "service_down_time": service_down_time,
            },
            state={"url": redis_url, "prefix": topic},
            api_database={"connection": cloud.reader_of(cloud.api_url), "max_pool_size": 5},
            nova_feed=known | feed,
            nova_claims={"enabled": is_claiming},
            pending={"wait_timeout": 0},
            placement=placement.options() if placement else {},
        )  # fmt: skip

    return written


def hosts(client) -> dict[str, dict[str, Any]]:
    try:
        found = [client.get_host(each["uuid"]) for each in client.list_hosts()["hosts"]]
    except SchedulerWorkerError:  # the worker that had the request was killed
        return {}
    return {each["name"]: {**each["record"], **each} for each in found}


def record(client, name: str) -> dict[str, Any]:
    """What was reported of a host."""
    try:
        return client.get_host(name)["record"]
    except SchedulerWorkerError:  # as above
        return {}


def test_the_workers_follow_the_databases_and_take_over_from_each_other(cloud, write, rabbit_url):
    aggregate = {"availability_zone": "z"}
    cloud.aggregate(1, ["a1"], **aggregate)
    first = WorkerProcess(write("w1"), name="w1")
    with first, connected(rabbit_url) as client:
        first.await_log("All hosts of 2 cells are known")
        first.await_log(FEEDS)
        found = hosts(client)
        assert {name: record(client, name)["cell_uuid"] for name in found} == {
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
            eventually(lambda: record(client, "b1").get("memory_mb_used") == 9999)
            cloud.delete_instance(instance)
            cloud.remove_host("b3", cell_name="cell2")
            eventually(lambda: hosts(client).get("a2", {}).get("instances") == 0)
            eventually(lambda: set(hosts(client)) == {"a1", "a2", "a3", "b1", "b2"})
            [[chosen]] = client.select_destinations(
                {"flavor": {"vcpus": 1, "memory_mb": 512}, "availability_zone": "z"}, ["i1"]
            )
            assert chosen.service_host == "a1"
            assert second.stop() == 0


@pytest.mark.deep
def test_a_cell_that_is_away_leaves_the_others_and_comes_back(cloud, write, rabbit_url):
    proxy = Proxy(cloud.server.port)
    url = cloud.cell_urls["cell2"].replace(f":{cloud.server.port}/", f":{proxy.port}/")
    cloud.change_mapping("cell2", database_connection=url)
    config = write("w1", service_down_time=11, services_interval=1)
    with WorkerProcess(config, name="w1").ready() as worker, connected(rabbit_url) as client:
        worker.await_log("All hosts of 2 cells are known")
        with proxy.away():
            worker.await_log("Cell cell2 cannot be read")

            def is_marked() -> bool:
                cloud.beat()
                reason = record(client, "b1")["service"].get("down_reason")
                return record(client, "a1")["service"]["up"] and reason is not None

            eventually(is_marked)
        cloud.beat(cell_name="cell2")
        worker.await_log("Cell cell2 can be read again")

        def is_back() -> bool:
            cloud.beat(cell_name="cell2")
            return bool(record(client, "b1")["service"]["up"])

        eventually(is_back)


@pytest.mark.deep
def test_a_pool_that_two_hosts_share_is_filled(
    cloud, write, rabbit_url, placement_server, placement_cloud
):
    aggregate = str(uuid.uuid4())
    for name in ("a1", "a2"):
        node = str(uuid.uuid4())
        cloud.change_host(name, uuid=node)
        placement_cloud.add(node, node, VCPU=64, MEMORY_MB=65536)
        placement_cloud.put(node, "aggregates", [aggregate])
    pool = placement_cloud.add(f"pool-{aggregate}", DISK_GB=40)
    placement_cloud.put(pool, "traits", ["MISC_SHARES_VIA_AGGREGATE"])
    placement_cloud.put(pool, "aggregates", [aggregate])
    flavor = {"vcpus": 1, "memory_mb": 512, "root_gb": 20}
    spec = {"flavor": flavor, "only_hosts": ["a1", "a2"], "project_id": "p", "user_id": "u"}
    config = write("w1", placement_server, is_claiming=True)
    with WorkerProcess(config, name="w1").ready() as worker, connected(rabbit_url) as client:
        worker.await_log(f"pool-{aggregate}")
        for _ in range(2):
            client.select_destinations(spec, [str(uuid.uuid4())])
        with pytest.raises(NoValidHost):
            client.select_destinations(spec, [str(uuid.uuid4())])
        assert placement_cloud.used(pool) == {"DISK_GB": 40}
        assert len(placement_cloud.consumers(pool)) == 2
        verdicts = {verdict["host"]: verdict for verdict in client.explain(spec)["verdicts"]}
        for name in ("a1", "a2"):
            assert verdicts[name]["rejected_by"] == "PlacementCandidates"
            assert "needs 20 DISK_GB" in verdicts[name]["reason"]
