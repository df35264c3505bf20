"""Two workers, RabbitMQ, Redis and a real Placement: who is answered has a claim, and only he."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from scheduler_worker.client import SchedulerClient
from tests.support.agents import reserved_in_redis
from tests.support.placement_server import Cloud
from tests.support.services import host
from tests.support.workers import WorkerProcess, all_ready, connected, place_all

SPEC = {
    "flavor": {"vcpus": 1, "memory_mb": 512},
    "num_instances": 1,
    "project_id": "project",
    "user_id": "user",
}
LESS = {"h00": 1, "h03": 2, "h07": 0}
"""Hosts of which Placement knows fewer vCPUs than they report: it decides."""
ROOM = {f"h{number:02d}": 4 for number in range(10)} | LESS


class Scene:
    """Workers that claim, and ten hosts that are new providers in Placement."""

    def __init__(self, client: SchedulerClient, cloud: Cloud, redis_url: str) -> None:
        self._client, self._cloud, self._redis_url = client, cloud, redis_url
        self._providers = {
            name: cloud.add(f"{name}-{uuid.uuid4().hex}", VCPU=vcpus, MEMORY_MB=65536)
            for name, vcpus in ROOM.items()
        }
        facts = {"vcpus": 4, "memory_mb": 65536, "cpu_allocation_ratio": 1.0}
        client.update_hosts(
            [host(name, uuid=provider, **facts) for name, provider in self._providers.items()]
        )

    def check(self, after: Callable[[int], object] = lambda done: None) -> None:
        """Ask for more than fits: Placement and Redis have what was answered, and no more."""
        answers = place_all(self._client, SPEC, 50, after)
        placed = {instance: where for instance, where in answers.items() if where is not None}
        assert Counter(placed.values()) == {name: room for name, room in ROOM.items() if room}
        for name, provider in self._providers.items():
            consumers = self._cloud.consumers(provider)
            assert consumers == {instance for instance, where in placed.items() if where == name}
            assert self._cloud.used(provider).get("VCPU", 0) == len(consumers)
        assert reserved_in_redis(self._redis_url) == placed


@pytest.fixture
def workers(configure, placement_server) -> Iterator[tuple[WorkerProcess, ...]]:
    options = {
        "cluster_lock": {"hold_timeout": 2.0, "max_batch": 32},
        "pending": {"ttl": 600, "wait_timeout": 0},
        "rpc": {"slots": 16},
        "nova_claims": {"enabled": True},
        "placement": placement_server.options(),
    }
    made = (WorkerProcess(configure(name, **options), name=name) for name in ("one", "two"))
    with all_ready(*made) as ready:
        yield ready


@pytest.fixture
def scene(workers, rabbit_vhost_url, redis_url, placement_cloud) -> Iterator[Scene]:
    with connected(rabbit_vhost_url) as client:
        yield Scene(client, placement_cloud, redis_url)


def test_what_placement_has_room_for_is_answered_although_a_worker_is_killed(scene, workers):
    _, two = workers
    scene.check(lambda done: done == 10 and two.kill())


@pytest.mark.deep
def test_a_restart_of_placement_in_the_middle_costs_no_request(scene, placement_server):
    def restart(done: int) -> None:
        if done == 10:
            placement_server.kill()
            placement_server.start()

    scene.check(restart)
