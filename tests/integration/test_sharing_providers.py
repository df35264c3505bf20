"""Providers that share, in a real Placement: the hosts that we admit are those for which it has
candidates, and what we claim it accepts.
"""

import random
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler_worker.backends.placement.claiming import (
    AllocationCandidatesSource,
    PlacementAllocations,
)
from scheduler_worker.backends.placement.reading import PlacementReader
from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.scheduling.prefilters.candidates_query import queries
from scheduler_worker.scheduling.prefilters.needs import needs_of
from scheduler_worker.service.feed.providers import ProviderFeed
from scheduler_worker.service.feed.settings import ProviderSettings
from scheduler_worker.service.feed.trees import SharingProviders
from scheduler_worker.service.requests.allocation_candidates import CandidatesPorts
from scheduler_worker.service.requests.claims import PlacementPorts
from scheduler_worker.service.state.replica import Fleet
from tests.support.clock import ManualClock
from tests.support.placement_server import Cloud
from tests.support.services import World, host, request
from tests.support.threads import Threads

SHARES = "MISC_SHARES_VIA_AGGREGATE"
FAST, SLOW, AVX = "STORAGE_DISK_SSD", "STORAGE_DISK_HDD", "HW_CPU_X86_AVX2"
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cloud(own_placement) -> Cloud:
    return Cloud(own_placement)


class Scene:
    """Hosts and pools in Placement, and workers that read, ask and claim there."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.tag = uuid.uuid4().hex[:8]
        self.reader = PlacementReader(cloud.session)
        self.hosts: dict[str, str] = {}
        self.pools: dict[str, str] = {}
        self.all: list[str] = []
        self.clock = ManualClock()
        self.source = AllocationCandidatesSource(cloud.session)
        self.allocations = PlacementAllocations(cloud.session)

    def add(self, name: str, **inventories: int) -> str:
        self.all.append(self.cloud.add(f"{name}-{self.tag}", **inventories))
        return self.all[-1]

    def add_below(self, parent: str, name: str, **inventories: int) -> str:
        self.all.append(self.cloud.add_below(parent, f"{name}-{self.tag}", **inventories))
        return self.all[-1]

    def add_host(self, name: str, **inventories: int) -> str:
        self.hosts[name] = self.add(name, **inventories)
        return self.hosts[name]

    def add_pool(
        self, name: str, *aggregates: str, traits: tuple[str, ...] = (), **has: int
    ) -> str:
        self.pools[name] = pool = self.add(name, **has)
        self.cloud.put(pool, "traits", [SHARES, *traits])
        self.cloud.put(pool, "aggregates", list(aggregates))
        return pool

    def start(self) -> World:
        """A worker that knows the hosts, and what Placement has of them."""
        self.feeds: list[tuple[ProviderFeed, Fleet]] = []
        self.world = self.worker(None)
        self.world.report(
            *(host(name, uuid=provider, local_gb=0) for name, provider in self.hosts.items())
        )
        self.read()
        return self.world

    def worker(self, beside: World | None) -> World:
        world = World(clock=self.clock, state=beside.state if beside else None)
        feed = ProviderFeed(
            self.reader,
            world.fleet,
            world.inventory.update_hosts,
            self.clock,
            settings=ProviderSettings(),
            is_leader=lambda: beside is None,
        )
        sharing = SharingProviders(self.reader, self.clock, interval_s=60.0, retry_s=2.0)
        self.feeds.append((feed, world.fleet))
        return World(
            clock=self.clock,
            state=world.state,
            placement=PlacementPorts(self.allocations, feed.read_again),
            asking=CandidatesPorts(self.source, sharing, self.allocations),
            wait_timeout_s=0.0,
        )

    def read(self) -> None:
        for feed, fleet in self.feeds:
            fleet.refresh_globals()
            feed.read_again(self.hosts.values())
            feed.run_due()

    def close(self) -> None:
        self.reader.close()
        for provider in reversed(self.all):
            for consumer in self.cloud.consumers(provider):
                self.cloud.give_back(consumer)
            self.cloud.remove(provider)

    # What is asked

    def admitted(self, **spec: Any) -> set[str]:
        """The hosts that we would take."""
        found = self.world.scheduler.explain(request("new", **spec))
        verdicts = found.clusters["default"].verdicts
        return {each.host for each in verdicts if each.rejected_by is None}

    def roots(self, **spec: Any) -> set[str]:
        """The hosts for which Placement has candidates."""
        asked = request("new", **spec).spec
        needs = needs_of(asked, self.world.pipeline.candidates.parameters)
        roots = set()
        for query in queries(asked, needs, (), 1000):
            path = f"/allocation_candidates?{query.text}"
            answer = self.cloud.session.request("GET", path)
            assert answer.is_ok, answer
            summaries = answer.body["provider_summaries"]
            for each in answer.body["allocation_requests"]:
                roots |= {
                    summaries[provider]["root_provider_uuid"] for provider in each["allocations"]
                }
        return {name for name, provider in self.hosts.items() if provider in roots}

    def held(self, instance: str) -> dict[str, dict[str, int]]:
        found = self.allocations.read(instance, timeout_s=TIMEOUT_S)
        assert found is not None
        return {provider: dict(amounts) for provider, amounts in found.held.items()}


@pytest.fixture
def scene(cloud) -> Iterator[Scene]:
    found = Scene(cloud)
    yield found
    found.close()


def flavor(disk: int = 20) -> dict[str, Any]:
    """One vCPU, 512 MB, and so much disk."""
    return {"vcpus": 1, "memory_mb": 512, "root_gb": disk}


def new() -> str:
    return str(uuid.uuid4())


def two_hosts_with_a_pool(scene: Scene, total: int = 100) -> str:
    aggregate = new()
    for name in ("a", "b"):
        scene.cloud.put(scene.add_host(name, VCPU=64, MEMORY_MB=65536), "aggregates", [aggregate])
    return scene.add_pool("pool", aggregate, DISK_GB=total)


def test_two_workers_fill_what_is_shared_and_no_more(scene):
    pool = two_hosts_with_a_pool(scene, 200)
    one = scene.start()
    workers = [one, scene.worker(one)]
    scene.read()

    def ask(number: int) -> bool:
        try:
            workers[number % 2].place(new(), flavor=flavor())
        except NoValidHost:
            return False
        return True

    with Threads(6) as threads:
        answers = list(threads.map(ask, range(14)))
    while ask(0):  # one that was in the way of another may have been refused in the end
        answers.append(True)
    assert scene.cloud.used(pool) == {"DISK_GB": 200}
    assert len(scene.cloud.consumers(pool)) == sum(answers) == 10


def test_an_alternate_can_be_claimed_as_it_is_offered(scene):
    pool = two_hosts_with_a_pool(scene)
    world = scene.start()
    instance = new()
    [[chosen, alternate]] = world.ask(instance, flavor=flavor(), alternates=1).selections
    scene.cloud.give_back(instance)
    offered = alternate.allocation
    answer = scene.cloud.put_allocation(instance, offered.allocations, offered.mappings)
    assert answer.status == 204, answer
    assert scene.held(instance)[pool] == {"DISK_GB": 20}
    assert alternate.service_host != chosen.service_host


def test_a_forced_host_may_take_of_what_is_shared(scene):
    two_hosts_with_a_pool(scene)
    world = scene.start()
    assert world.place(new(), flavor=flavor(), force_hosts=["b"]) == ["b"]


def test_what_is_given_below_the_compute_node_is_asked_for(scene):
    root = scene.add_host("nested", DISK_GB=100)
    for node in range(2):
        scene.add_below(root, f"numa{node}", VCPU=4, MEMORY_MB=4096)
    scene.start()
    for _ in range(8):
        assert scene.admitted(flavor=flavor(1)) == scene.roots(flavor=flavor(1)) == {"nested"}
        scene.world.place(new(), flavor=flavor(1))
    assert scene.admitted(flavor=flavor(1)) == scene.roots(flavor=flavor(1)) == set()


class Generated:
    """A world of trees, pools, traits and aggregates, and requests to it."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene, self.random = scene, random.Random(seed)
        self.aggregates = [new() for _ in range(3)]
        self.members: dict[str, list[str]] = {each: [] for each in self.aggregates}

    def build(self) -> World:
        scene, some = self.scene, self.random
        for number in range(some.randint(2, 5)):
            disk = {"DISK_GB": some.choice((30, 60))} if some.random() < 0.4 else {}
            name = f"h{number}"
            root = scene.add_host(name, VCPU=some.randint(1, 6), MEMORY_MB=4096, **disk)
            self.mark(root, [AVX])
            joined = some.sample(self.aggregates, some.randint(0, 2))
            scene.cloud.put(root, "aggregates", joined)
            for each in joined:
                self.members[each].append(name)
            for child in range(some.randint(0, 2)):
                below = scene.add_below(root, f"{name}-{child}", VGPU=some.randint(1, 3))
                self.mark(below, ["HW_GPU_API_VULKAN"])
        for number in range(some.randint(1, 3)):
            has = {"DISK_GB": some.choice((25, 50, 100))}
            if some.random() < 0.4:
                has["SRIOV_NET_VF"] = some.randint(1, 3)
            joined = some.sample(self.aggregates, some.randint(1, 2))
            traits = tuple(each for each in (FAST, SLOW) if some.random() < 0.5)
            scene.add_pool(f"pool{number}", *joined, traits=traits, **has)
        world = scene.start()
        world.inventory.update_aggregates(
            [
                Aggregate(id=number, uuid=each, hosts=tuple(self.members[each]))
                for number, each in enumerate(self.aggregates, 1)
            ]
        )
        return world

    def mark(self, provider: str, traits: list[str]) -> None:
        given = [each for each in traits if self.random.random() < 0.6]
        self.scene.cloud.put(provider, "traits", given)

    def spec(self) -> dict[str, Any]:
        some, specs = self.random, dict[str, str]()
        if some.random() < 0.3:
            specs[f"trait:{some.choice((FAST, SLOW, AVX))}"] = some.choice(
                ("required", "forbidden")
            )
        if some.random() < 0.3:
            specs["resources:VGPU"] = "1"
        for suffix in some.sample(("1", "_DISK"), some.choice((0, 0, 1, 2))):
            specs[f"resources{suffix}:DISK_GB"] = str(some.choice((5, 20)))
            if some.random() < 0.5:
                specs[f"trait{suffix}:{FAST}"] = some.choice(("required", "forbidden"))
            specs["group_policy"] = some.choice(("none", "isolate"))
        found: dict[str, Any] = {
            "flavor": {
                "vcpus": some.randint(1, 2),
                "memory_mb": 512,
                "root_gb": some.choice((0, 10, 20)),
                "extra_specs": specs,
            }
        }
        if some.random() < 0.2:
            group: dict[str, Any] = {"requester_id": new(), "resources": {"SRIOV_NET_VF": 1}}
            if some.random() < 0.5:
                group["aggregates"] = [some.sample(self.aggregates, 2)]
            found["requested_resources"] = [group]
            specs.setdefault("group_policy", "none")
        if some.random() < 0.2:
            chosen = ",".join(some.sample(self.aggregates, 2))
            found["requested_destination"] = {"aggregates": [chosen]}
        return found


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(each, marks=pytest.mark.deep) for each in range(2, 8))]
)
def test_the_hosts_that_are_admitted_are_those_of_placement(scene, seed):
    generated = Generated(scene, seed)
    world = generated.build()
    for _ in range(10):
        spec = generated.spec()
        roots = scene.roots(**spec)
        assert scene.admitted(**spec) == roots, spec
        instance = new()
        if not roots:
            with pytest.raises(NoValidHost):
                world.place(instance, **spec)
            continue
        [name] = world.place(instance, **spec)
        assert name in roots
        assert scene.hosts[name] in scene.held(instance)
    claims = {event[1] for event in world.observed.events if event[0] == "claimed"}
    assert claims <= {"claimed"}  # Placement accepted all of them
