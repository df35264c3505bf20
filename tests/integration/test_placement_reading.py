"""Providers read from a real Placement."""

import uuid
from collections.abc import Iterator

import pytest

from scheduler_worker.backends.placement.reading import PlacementReader
from scheduler_worker.model.providers import (
    ConsumerAllocation,
    Inventory,
    ProviderRoom,
    ProviderTraits,
    Use,
)
from tests.support.placement_server import Cloud


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
    taken = {first: ConsumerAllocation({"VCPU": 2}), second: ConsumerAllocation({"VCPU": 4})}
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
