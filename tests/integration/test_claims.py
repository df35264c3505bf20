"""Two workers, RabbitMQ, Redis and a real Placement: who is answered has a claim, and only he."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker.backends.placement.claiming import PlacementAllocations
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import AllocationUpdateFailed, NoValidHost
from scheduler_worker.model.providers import Consumer, Owner
from tests.support.agents import reserved_in_redis
from tests.support.patience import SOON_S, eventually
from tests.support.placement_server import Cloud, PlacementServer
from tests.support.proxy import Proxy
from tests.support.services import host
from tests.support.threads import Threads
from tests.support.workers import WorkerProcess, connected

CLIENTS = 16
SPEC = {
    "flavor": {"vcpus": 1, "memory_mb": 512},
    "num_instances": 1,
    "project_id": "project",
    "user_id": "user",
}
TAKEN = {"VCPU": 1, "MEMORY_MB": 512}


class Scene:
    """A virtual host of RabbitMQ, an empty Redis, and new providers in the session's Placement."""

    def __init__(
        self,
        configure: Callable[..., Path],
        bus: str,
        redis: str,
        server: PlacementServer,
        cloud: Cloud,
    ) -> None:
        self.configure, self.bus, self.redis = configure, bus, redis
        self.server, self.cloud = server, cloud
        self.allocations = PlacementAllocations(cloud.session)
        self.client: SchedulerClient
        self.providers: dict[str, str] = {}

    def fleet(self, count: int, *, vcpus: int = 4, **in_placement: int) -> None:
        """Hosts of so many vCPUs; Placement may know others of them (host name -> vCPUs)."""
        for number in range(count):
            name = f"h{number:02d}"
            total = in_placement.get(name, vcpus)
            provider = self.cloud.add(f"{name}-{uuid.uuid4().hex}", VCPU=total, MEMORY_MB=65536)
            self.providers[name] = provider
        self.client.update_hosts(
            [
                host(name, uuid=provider, vcpus=vcpus, memory_mb=65536, cpu_allocation_ratio=1.0)
                for name, provider in self.providers.items()
            ]
        )

    def worker(self, name: str, *, port: int | None = None, slots: int = 16) -> WorkerProcess:
        url = self.server.url if port is None else f"http://127.0.0.1:{port}"
        config = self.configure(
            name,
            cluster_lock={"hold_timeout": 2.0, "max_batch": 32},
            pending={"ttl": 600, "wait_timeout": 0},
            rpc={"slots": slots},
            nova_claims={"enabled": True},
            placement=self.server.options() | {"endpoint": url, "endpoint_override": url},
        )
        return WorkerProcess(config, name=name)

    def ask(self, instance: str, **spec: Any) -> str:
        [[chosen]] = self.client.select_destinations(SPEC | spec, [instance])
        return chosen.service_host

    def asking(self, instance: str) -> Future[str]:
        """The host that it is answered with, some time."""
        answer: Future[str] = Future()

        def run() -> None:
            try:
                answer.set_result(self.ask(instance))
            except Exception as error:
                answer.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return answer

    def ask_all(
        self, requests: int, after: Callable[[int], object] = lambda done: None
    ) -> dict[str, str | None]:
        """The host of each new instance, from sixteen clients; None where no host was valid."""
        answers: dict[str, str | None] = {}
        guard = threading.Lock()

        def one(_number: int) -> None:
            instance = str(uuid.uuid4())
            where: str | None = None
            with contextlib.suppress(NoValidHost):
                where = self.ask(instance)
            with guard:
                answers[instance] = where
                done = len(answers)
            after(done)

        with Threads(CLIENTS) as pool:
            list(pool.map(one, range(requests)))
        return answers

    def held(self, instance: str) -> Consumer | None:
        return self.allocations.read(instance, timeout_s=SOON_S)

    def reserved(self) -> dict[str, str]:
        return reserved_in_redis(self.redis)

    def check(self, answers: dict[str, str | None], room: dict[str, int]) -> None:
        """Placement holds what was answered and nothing else, and ``room`` is what that fills."""
        placed = {instance: where for instance, where in answers.items() if where is not None}
        assert Counter(placed.values()) == room
        for name, provider in self.providers.items():
            consumers = self.cloud.consumers(provider)
            assert consumers == {each for each, where in placed.items() if where == name}
            assert self.cloud.used(provider).get("VCPU", 0) == len(consumers)
        assert self.reserved() == placed


@pytest.fixture
def scene(configure, rabbit_vhost_url, redis_url, placement_server, placement_cloud) -> Scene:
    return Scene(configure, rabbit_vhost_url, redis_url, placement_server, placement_cloud)


@contextlib.contextmanager
def serving(scene: Scene, *names: str) -> Iterator[list[WorkerProcess]]:
    """Workers, and the scene's client of them."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(scene.worker(name)) for name in names]
        for each in workers:
            each.ready()
        scene.client = stack.enter_context(connected(scene.bus, timeout_s=SOON_S))
        yield workers


@pytest.mark.deep
def test_exactly_what_placement_has_room_for_is_answered(scene):
    """Hosts report more than Placement knows of three of them: it decides."""
    room = {"h00": 1, "h03": 2, "h07": 0}
    with serving(scene, "one", "two"):
        scene.fleet(10, **room)
        answers = scene.ask_all(50)
        full = {f"h{number:02d}": 4 for number in range(10)} | room
        scene.check(answers, {name: count for name, count in full.items() if count})


def test_instances_of_one_request_are_claimed_together_or_not_at_all(scene):
    with serving(scene, "one"):
        scene.fleet(2, h00=1, h01=2)
        instances = [str(uuid.uuid4()) for _ in range(4)]
        with pytest.raises(NoValidHost):
            scene.client.select_destinations(SPEC | {"num_instances": 4}, instances)
        assert scene.reserved() == {}
        assert [scene.held(each) for each in instances] == [None] * 4


def test_a_conductor_can_claim_an_alternate_with_what_it_got(scene):
    with serving(scene, "one"):
        scene.fleet(2)
        instance = str(uuid.uuid4())
        [[chosen, alternate]] = scene.client.select_destinations(
            SPEC, [instance], return_alternates=True
        )
        assert set(scene.held(instance).held) == {scene.providers[chosen.service_host]}
        scene.cloud.give_back(instance)
        offered = alternate.allocation
        assert scene.cloud.put_allocation(instance, offered.allocations, offered.mappings).is_ok
        assert scene.held(instance).held == {scene.providers[alternate.service_host]: TAKEN}


def test_an_evacuated_instance_holds_source_and_destination(scene):
    with serving(scene, "one"):
        scene.fleet(2)
        instance = str(uuid.uuid4())
        source, destination = scene.providers["h00"], scene.providers["h01"]
        consumer = Consumer(uuid=instance, owner=Owner("p", "u"), held={source: TAKEN})
        assert scene.allocations.write([consumer], timeout_s=SOON_S) is None
        with pytest.raises(AllocationUpdateFailed, match="generation conflict"):
            scene.ask(instance, ignore_hosts=["another"], force_hosts=["h01"])
        assert scene.ask(instance, ignore_hosts=["h00"]) == "h01"
        assert scene.held(instance).held == {source: TAKEN, destination: TAKEN}


@pytest.mark.deep
@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_a_worker_killed_before_the_claim_or_after_it_leaves_no_more_than_one(scene, direction):
    """``to_server``: between decision and claim; ``to_client``: between claim and answer."""
    with Proxy(scene.server.port) as proxy, scene.worker("one", port=proxy.port) as one:
        one.ready()
        with connected(scene.bus, timeout_s=SOON_S) as scene.client:
            scene.fleet(3)
            instance = str(uuid.uuid4())
            with proxy.stalled(direction):
                answer = scene.asking(instance)
                eventually(lambda: instance in scene.reserved())
                if direction == "to_client":
                    eventually(lambda: scene.held(instance) is not None)
                one.kill()
                proxy.cut()
            reserved = scene.reserved()[instance]
            was_claimed = scene.held(instance) is not None
            assert was_claimed == (direction == "to_client")
            with scene.worker("two") as two:
                two.ready()
                assert answer.result(SOON_S) == reserved
            assert scene.held(instance).held == {scene.providers[reserved]: TAKEN}
            assert scene.reserved() == {instance: reserved}


@pytest.mark.deep
def test_while_a_request_waits_for_placement_its_slot_serves_others(scene):
    with Proxy(scene.server.port) as proxy:
        with scene.worker("one", port=proxy.port, slots=1) as one:
            one.ready()
            with connected(scene.bus, timeout_s=SOON_S) as scene.client:
                scene.fleet(2)
                instances = [str(uuid.uuid4()) for _ in range(3)]
                with proxy.stalled("to_server"):
                    answers = [scene.asking(each) for each in instances]
                    eventually(lambda: set(scene.reserved()) == set(instances))
                    assert len(scene.client.list_hosts()["hosts"]) == 2
                    assert not any(each.done() for each in answers)
                for each in answers:
                    assert each.result(SOON_S) in scene.providers


@pytest.mark.deep
def test_a_restart_of_placement_in_the_middle_costs_no_request(scene):
    restarted = threading.Event()

    def restart(done: int) -> None:
        if done == 10:
            scene.server.kill()
            scene.server.start()
            restarted.set()

    with serving(scene, "one", "two"):
        scene.fleet(10)
        answers = scene.ask_all(45, restart)
        assert restarted.is_set()
        scene.check(answers, {f"h{number:02d}": 4 for number in range(10)})


@pytest.mark.deep
def test_a_worker_killed_in_the_middle_costs_no_request(scene):
    with serving(scene, "one", "two") as (_, two):
        scene.fleet(10)
        answers = scene.ask_all(45, lambda done: done == 10 and two.kill())
        scene.check(answers, {f"h{number:02d}": 4 for number in range(10)})


@pytest.mark.deep
def test_while_placement_is_away_nothing_is_answered_and_nothing_stays(scene):
    with serving(scene, "one") as [one], Proxy(scene.server.port) as proxy:
        one.stop()
        with scene.worker("two", port=proxy.port) as two:
            two.ready()
            scene.fleet(2)
            instance = str(uuid.uuid4())
            with proxy.away():
                with connected(scene.bus, timeout_s=5.0) as hasty:
                    with pytest.raises(NoValidHost, match="Placement cannot be used"):
                        hasty.select_destinations(SPEC, [instance])
            assert scene.held(instance) is None
            assert scene.reserved() == {}
            assert scene.ask(instance) in scene.providers
