"""Providers read from a real Placement, and what hosts take then."""

import uuid
from collections.abc import Iterator

import pytest

from scheduler_worker.backends.placement.reading import PlacementReader
from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.providers import Held, Inventory, ProviderRoom, ProviderTraits, Use
from scheduler_worker.service.feed.providers import ProviderFeed
from scheduler_worker.service.feed.settings import ProviderSettings
from tests.support.placement_server import Cloud
from tests.support.services import World, host

SIZE = {"VCPU": 8, "MEMORY_MB": 8192, "DISK_GB": 100}


@pytest.fixture(scope="module")
def cloud(own_placement) -> Cloud:
    return Cloud(own_placement)


@pytest.fixture
def reader(cloud) -> Iterator[PlacementReader]:
    found = PlacementReader(cloud.session)
    yield found
    found.close()


def test_everything_of_a_provider_is_read(cloud, reader):
    root = cloud.add("everything", VCPU=4)
    child = cloud.add_below(root, "everything-gpu", VGPU=2)
    inventory = {"total": 9, "reserved": 1, "min_unit": 2, "max_unit": 8, "step_size": 2}
    path = f"/resource_providers/{root}"
    generation = cloud.session.request("GET", path).body["generation"]
    body = {"inventories": {"VCPU": inventory | {"allocation_ratio": 4.0}}}
    body |= {"resource_provider_generation": generation}
    assert cloud.session.request("PUT", f"{path}/inventories", body).is_ok
    traits, aggregate = ["COMPUTE_NODE", "HW_CPU_X86_AVX2"], str(uuid.uuid4())
    cloud.put(root, "traits", traits)
    cloud.put(root, "aggregates", [aggregate])
    first, second = cloud.claim(root, VCPU=2), cloud.claim(root, VCPU=4)

    listed = {each.uuid: each for each in reader.trees([child])[child]}
    assert set(listed) == {root, child}
    assert listed[child].parent_provider_uuid == root == listed[child].root_provider_uuid
    found = reader.facts([root, str(uuid.uuid4())])
    assert set(found) == {root}
    assert found[root].generation == listed[root].generation
    assert found[root].inventories == {
        "VCPU": Inventory(
            total=9, reserved=1, min_unit=2, max_unit=8, step_size=2, allocation_ratio=4.0
        )
    }
    assert (found[root].traits, found[root].aggregates) == (tuple(traits), (aggregate,))
    assert reader.traits([root]) == {
        root: ProviderTraits(traits=tuple(traits), aggregates=(aggregate,))
    }
    assert [each.uuid for each in reader.having("HW_CPU_X86_AVX2")] == [root]
    assert reader.having("MISC_SHARES_VIA_AGGREGATE") == []
    taken = {first: Held({"VCPU": 2}), second: Held({"VCPU": 4})}
    assert reader.uses([root]) == {root: Use(generation=found[root].generation, taken=taken)}
    sums = reader.sums("resources=VGPU:1&limit=1000")
    assert sums[root].rooms == {"VCPU": ProviderRoom(32, 6)}
    assert set(sums[root].traits) == set(traits)
    assert {uuid: each.root for uuid, each in sums.items()} == {root: root, child: root}


def test_a_deletion_leaves_the_generation(cloud, reader):
    provider = cloud.add("deletion", VCPU=4)
    consumer = cloud.claim(provider, VCPU=1)
    [before] = reader.trees([provider])[provider]
    cloud.give_back(consumer)
    assert reader.trees([provider]) == {provider: [before]}
    use = Use(generation=before.generation, taken={})
    assert reader.uses([provider]) == {provider: use}


def test_what_is_decided_from_a_reading_placement_accepts_until_it_is_full(cloud, reader):
    """As many as Placement has room for, whichever were claimed by others meanwhile."""
    world = World()
    names = {name: cloud.add(f"decided-{name}", **SIZE) for name in "abc"}
    for name, provider in names.items():
        world.report(host(name) | {"uuid": provider, "disk_available_least": 0})
    feed = ProviderFeed(
        reader,
        world.fleet,
        world.inventory.update_hosts,
        world.clock,
        settings=ProviderSettings(),
        is_leader=lambda: True,
    )
    feed.run_due()
    flavor = {"vcpus": 3, "memory_mb": 1024, "root_gb": 9, "swap": 1}
    cloud.claim(names["a"], VCPU=5)  # by somebody else, later than the reading
    refused, placed = 0, 0
    for number in range(10):
        world.clock.advance(1)
        instance = f"00000000-0000-4000-8000-{number:012}"
        try:
            [name] = world.place(instance, flavor=flavor)
        except NoValidHost:
            break
        taken = {"VCPU": 3, "MEMORY_MB": 1024, "DISK_GB": 10}
        if cloud.put_allocation(instance, {names[name]: {"resources": taken}}).status == 204:
            placed += 1
            continue
        refused += 1
        world.inventory.release([instance])
        feed.read_again([names[name]])
        feed.run_due()
    assert (placed, refused) == (5, 1)
    world.clock.advance(1)
    feed.read_again(names.values())
    feed.run_due()
    table = world.fleet.cluster("default").table
    used = {uuid: 8 - cloud.used(uuid)["VCPU"] for uuid in names.values()}
    assert used == {
        record.uuid: unused
        for record, unused in zip(table.records, table.unused_vcpu.tolist(), strict=True)
    }
