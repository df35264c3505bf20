"""Two workers on Nova's databases and a real Placement, in which two hosts share a pool of disk."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker.errors import NoValidHost
from tests.support.nova_databases import NovaCloud
from tests.support.patience import SOON_S, eventually
from tests.support.placement_server import Cloud
from tests.support.proxy import Proxy
from tests.support.threads import Threads
from tests.support.workers import WorkerProcess, connected, write_config

CLIENTS = 6
DISK_GB, TOTAL_GB = 20, 200
SPEC = {
    "flavor": {"vcpus": 1, "memory_mb": 512, "root_gb": DISK_GB},
    "project_id": "project",
    "user_id": "user",
}


class Scene:
    """Two computes in Nova's databases and in Placement, and the pool."""

    def __init__(self, directory: Path, nova: NovaCloud, cloud: Cloud, **groups: Any) -> None:
        self.directory, self.nova, self.cloud, self.groups = directory, nova, cloud, groups
        aggregate = str(uuid.uuid4())
        for name in ("h1", "h2"):
            root = cloud.add(f"{name}-{aggregate}", VCPU=64, MEMORY_MB=65536)
            cloud.put(root, "aggregates", [aggregate])
            nova.add_hosts(name, uuid=root)
        self.pool_name = f"pool-{aggregate}"
        self.pool = cloud.add(self.pool_name, DISK_GB=TOTAL_GB)
        cloud.put(self.pool, "traits", ["MISC_SHARES_VIA_AGGREGATE"])
        cloud.put(self.pool, "aggregates", [aggregate])

    def worker(self, name: str, *, placement: str) -> WorkerProcess:
        addresses = {"endpoint": placement, "endpoint_override": placement}
        config = write_config(
            self.directory / f"{name}.conf",
            DEFAULT=self.groups["DEFAULT"] | {"host": name, "service_down_time": 3600},
            state=self.groups["state"],
            api_database={"connection": self.nova.reader_of(self.nova.api_url)},
            nova_feed={"enabled": True, "interval": 0.5},
            nova_claims={"enabled": True},
            pending={"ttl": 600, "wait_timeout": 0},
            placement=self.groups["placement"] | addresses,
        )
        return WorkerProcess(config, name=name)


@pytest.fixture
def scene(
    tmp_path, maria_server, placement_server, placement_cloud, rabbit_vhost_url,
    redis_url
) -> Iterator[Scene]:  # fmt: skip
    nova = NovaCloud(maria_server)
    yield Scene(
        tmp_path,
        nova,
        placement_cloud,
        DEFAULT={"transport_url": rabbit_vhost_url},
        state={"url": redis_url},
        placement=placement_server.options(),
    )
    nova.close()


def place(client: Any, instance: str) -> str | None:
    try:
        [[chosen]] = client.select_destinations(SPEC, [instance])
    except NoValidHost:
        return None
    return str(chosen.service_host)


@pytest.mark.deep
def test_instances_are_placed_until_the_pool_is_full(scene, placement_server, rabbit_vhost_url):
    url = placement_server.url
    with scene.worker("w1", placement=url) as first, scene.worker("w2", placement=url) as second:
        for each in (first, second):
            each.ready()
            each.await_log(scene.pool_name)
        with connected(rabbit_vhost_url, timeout_s=SOON_S) as client:
            eventually(lambda: place(client, str(uuid.uuid4())) is not None)
            with Threads(CLIENTS) as threads:
                ask = [threads.submit(place, client, str(uuid.uuid4())) for _ in range(14)]
                placed = [each.result(SOON_S) for each in ask]
            while place(client, str(uuid.uuid4())):  # one may have been in the way of another
                placed.append("later")
            assert sum(each is not None for each in placed) == TOTAL_GB / DISK_GB - 1
            assert scene.cloud.used(scene.pool) == {"DISK_GB": TOTAL_GB}
            assert len(scene.cloud.consumers(scene.pool)) == TOTAL_GB / DISK_GB
            verdicts = client.explain(SPEC)["verdicts"]
            assert [each["rejected_by"] for each in verdicts] == ["PlacementCandidates"] * 2
            assert all("needs 20 DISK_GB" in each["reason"] for each in verdicts)


@pytest.mark.deep
def test_while_placement_is_away_the_reason_is_answered(scene, placement_server, rabbit_vhost_url):
    with Proxy(placement_server.port) as proxy:
        with scene.worker("w1", placement=f"http://127.0.0.1:{proxy.port}") as worker:
            worker.ready()
            worker.await_log(scene.pool_name)
            with connected(rabbit_vhost_url, timeout_s=SOON_S) as client:
                eventually(lambda: place(client, str(uuid.uuid4())) is not None)
                with proxy.away(), connected(rabbit_vhost_url, timeout_s=5.0) as hasty:
                    with pytest.raises(NoValidHost, match="Placement cannot be used"):
                        hasty.select_destinations(SPEC, [str(uuid.uuid4())])
                assert scene.cloud.used(scene.pool) == {"DISK_GB": DISK_GB}
                assert place(client, str(uuid.uuid4()))
