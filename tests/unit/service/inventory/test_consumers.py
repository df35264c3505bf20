"""Reports of providers that name their consumers: what they do to reservations."""

from typing import Any

import pytest

from scheduler_worker.errors import NoValidHost
from tests.support.services import World, host


def providers(*, vcpus: int, consumers: list[str] | None, read_at_s: float) -> list[dict[str, Any]]:
    """Those of host ``a``: 8 VCPU and 8 GiB."""
    return [
        {
            "uuid": "uuid-a",
            "inventories": {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 8192}},
            "usages": {"VCPU": vcpus, "MEMORY_MB": 1024 * vcpus},
            "consumers": consumers,
            "read_at_s": read_at_s,
        }
    ]


@pytest.fixture
def world() -> World:
    world = World()
    facts = host("a", vcpus_used=0, memory_mb_used=0)
    world.report(facts | {"resource_providers": providers(vcpus=0, consumers=[], read_at_s=1.0)})
    return world


def read(world: World, *consumers: str, vcpus: int, **fields: Any) -> None:
    """Placement's answer, a second after what was last done."""
    world.clock.advance(1)
    known = providers(vcpus=vcpus, consumers=list(consumers), read_at_s=world.clock.time_s())
    world.clock.advance(1)
    world.report({"host": "a", "resource_providers": known} | fields)


def use(vcpus: int, *listed: str) -> dict[str, Any]:
    """The compute service's report."""
    figures = {"vcpus_used": vcpus, "memory_mb_used": 1024 * vcpus}
    return {"host": "a", "instances": [{"uuid": uuid} for uuid in listed]} | figures


def reserved(world: World) -> list[str]:
    return sorted(world.reserved().get("a", []))


def unused(world: World) -> int:
    [left] = world.fleet.cluster("default").table.unused_vcpu.tolist()
    return int(left)


def place(world: World, uuid: str, vcpus: int) -> None:
    world.place(uuid, vcpus=vcpus, memory_mb=1024 * vcpus)


def test_an_instance_is_never_counted_as_reservation_and_use(world):
    place(world, "i1", 4)
    assert unused(world) == 4
    read(world, "i1", vcpus=4)
    assert (unused(world), reserved(world)) == (4, ["i1"])
    world.clock.advance(1)
    world.report(use(4, "i1"))
    assert (unused(world), reserved(world)) == (4, [])


def test_the_use_alone_ends_no_reservation_of_which_placement_may_know_nothing(world):
    place(world, "i1", 4)
    world.clock.advance(1)
    world.report(use(4, "i1"))
    assert (unused(world), reserved(world)) == (4, ["i1"])
    with pytest.raises(NoValidHost):
        place(world, "i2", 5)
    read(world, "i1", vcpus=4)
    assert (unused(world), reserved(world)) == (4, []), "the use had shown it before"


def test_a_reading_from_before_the_claim_ends_nothing(world):
    earlier_s = world.clock.time_s()
    world.clock.advance(1)
    place(world, "i1", 4)
    old = providers(vcpus=0, consumers=[], read_at_s=earlier_s)
    world.report({"host": "a", "resource_providers": old})
    assert (unused(world), reserved(world)) == (4, ["i1"])


def test_a_consumer_that_is_gone_ends_its_reservation(world):
    place(world, "i1", 4)
    read(world, vcpus=0)
    assert reserved(world) == ["i1"], "it may not be claimed yet"
    read(world, "i1", vcpus=4)
    assert reserved(world) == ["i1"]
    read(world, vcpus=0)
    assert (unused(world), reserved(world)) == (8, [])


def test_usages_of_unknown_consumers_end_nothing(world):
    place(world, "i1", 4)
    world.clock.advance(1)
    summed = providers(vcpus=4, consumers=None, read_at_s=world.clock.time_s())
    world.report({"host": "a", "resource_providers": summed} | use(4, "i1"))
    assert (unused(world), reserved(world)) == (0, ["i1"]), "counted twice rather than not at all"
    read(world, "i1", vcpus=4)
    assert (unused(world), reserved(world)) == (4, [])


def test_an_agents_own_usages_are_of_the_moment_of_its_report(world):
    world = World()
    summed = providers(vcpus=0, consumers=None, read_at_s=0.0)
    world.report(host("a", vcpus_used=0, memory_mb_used=0) | {"resource_providers": summed})
    place(world, "i1", 4)
    world.clock.advance(1)
    summed = providers(vcpus=4, consumers=None, read_at_s=0.0)
    world.report({"host": "a", "resource_providers": summed} | use(4, "i1"))
    assert (unused(world), reserved(world)) == (4, [])


def test_an_older_reading_of_another_worker_changes_nothing(world):
    read(world, "i1", vcpus=4)
    old = providers(vcpus=0, consumers=[], read_at_s=1.0)
    world.report({"host": "a", "resource_providers": old})
    assert unused(world) == 4
    read(world, "i1", "i2", vcpus=5)
    assert unused(world) == 3


def test_pinned_cpus_stay_reserved_until_the_compute_service_shows_them(world):
    """Placement knows how many there are, and not which."""
    topology = {"cells": [{"id": 0, "cpuset": [], "pcpuset": [0, 1], "memory": 2048}]}
    world.place("i1", vcpus=2, memory_mb=2048, numa_topology=topology)
    read(world, "i1", vcpus=2)
    assert (unused(world), reserved(world)) == (6, ["i1"])
