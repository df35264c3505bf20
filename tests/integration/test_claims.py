"""Two workers, RabbitMQ, Redis and a real Placement: who is answered has a claim, and only he."""

import contextlib
import uuid
from collections import Counter

import pytest

from scheduler_worker.client import SchedulerClient
from scheduler_worker.compose.worker import build_worker
from scheduler_worker.errors import NoValidHost
from tests.support.patience import SOON_S, eventually
from tests.support.services import host
from tests.support.threads import Threads, in_thread
from tests.support.workers import WorkerProcess, all_ready, connected, load_config

SPEC = {
    "flavor": {"vcpus": 1, "memory_mb": 512},
    "num_instances": 1,
    "project_id": "project",
    "user_id": "user",
}
LESS = {"h00": 1, "h03": 2, "h07": 0}
"""Hosts of which Placement knows fewer vCPUs than they report: it decides."""
ROOM = {f"h{number:02d}": 4 for number in range(10)} | LESS
REQUESTS = 50
"""More than there is room for."""


@pytest.mark.parametrize("failing", ["worker", pytest.param("Placement", marks=pytest.mark.deep)])
def test_what_placement_has_room_for_is_answered_although_a_server_fails(
    configure, placement_server, placement_cloud, rabbit_vhost_url, failing
):
    cloud = placement_cloud
    options = {
        "cluster_lock": {"hold_timeout": 2.0, "max_batch": 32},
        "pending": {"ttl": 600, "wait_timeout": 0},
        "rpc": {"slots": 16},
        "nova_claims": {"enabled": True},
        "placement": placement_server.options(),
    }
    made = (WorkerProcess(configure(name, **options), name=name) for name in ("one", "two"))
    providers = {
        name: cloud.add(f"{name}-{uuid.uuid4().hex}", VCPU=vcpus, MEMORY_MB=65536)
        for name, vcpus in ROOM.items()
    }
    facts = {"vcpus": 4, "memory_mb": 65536, "cpu_allocation_ratio": 1.0}
    placed: dict[str, str] = {}
    with all_ready(*made) as (_, two), connected(rabbit_vhost_url) as client:
        client.update_hosts([host(name, uuid=each, **facts) for name, each in providers.items()])

        def ask(number: int) -> None:
            if number == 25 and failing == "worker":
                two.kill()
            elif number == 25:
                placement_server.kill()
                placement_server.start()
            instance = str(uuid.uuid4())
            with contextlib.suppress(NoValidHost):
                [[chosen]] = client.select_destinations(SPEC, [instance])
                placed[instance] = chosen.service_host

        with Threads(16) as pool:
            list(pool.map(ask, range(REQUESTS)))
        held = client.list_reservations(limit=1000)["reservations"]
    assert Counter(placed.values()) == {name: room for name, room in ROOM.items() if room}
    for name, provider in providers.items():
        consumers = cloud.consumers(provider)
        assert consumers == {instance for instance, where in placed.items() if where == name}
        assert cloud.used(provider).get("VCPU", 0) == len(consumers)
    assert sorted((each["instance_uuid"], each["host"]) for each in held) == sorted(placed.items())


def test_a_request_that_waits_for_placement_leaves_its_slot_to_others(
    tmp_path, placement_server, placement_cloud
):
    config = load_config(
        tmp_path / "worker.conf",
        DEFAULT={"transport_url": f"local://{uuid.uuid4().hex}/", "host": "one"},
        rpc={"slots": 1},
        nova_claims={"enabled": True},
        placement=placement_server.options(),
    )
    provider = placement_cloud.add(uuid.uuid4().hex, VCPU=4, MEMORY_MB=65536)
    with build_worker(config).running() as worker:
        client = SchedulerClient(worker.bus, timeout_s=SOON_S)
        client.update_hosts([host("h", uuid=provider)])
        with placement_server.paused():
            answer = in_thread(client.select_destinations, SPEC, [str(uuid.uuid4())])
            eventually(lambda: bool(client.list_reservations(limit=1)["reservations"]))
            assert not answer.done()
        [[chosen]] = answer.result(SOON_S)
        assert chosen.service_host == "h"
