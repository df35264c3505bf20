"""Reports that list instances before, or after, the host's use includes them."""

from typing import Any

import msgspec
import pytest

from scheduler_worker.errors import NoValidHost
from scheduler_worker.ports import Put, Seen, Transaction
from tests.support.services import World, host


@pytest.fixture
def world() -> World:
    world = World()
    world.report(host("a", vcpus_used=0, memory_mb_used=0))
    return world


def report(world: World, *listed: str, **use: Any) -> None:
    """The host's report, a second after the last one."""
    world.clock.advance(1)
    world.report({"host": "a", "instances": [{"uuid": uuid} for uuid in listed], **use})


def use(vcpus: int) -> dict[str, int]:
    return {"vcpus_used": vcpus, "memory_mb_used": 1024 * vcpus}


def reserved(world: World) -> list[str]:
    return sorted(world.reserved().get("a", []))


def test_an_instance_that_is_listed_before_the_use_grows_stays_reserved(world):
    world.place("i1", vcpus=4)
    report(world, "i1", **use(0))
    assert reserved(world) == ["i1"]
    with pytest.raises(NoValidHost):
        world.place("i2", vcpus=4)
    report(world, "i1", vcpus_used=4, memory_mb_used=4096)
    assert reserved(world) == []
    with pytest.raises(NoValidHost):
        world.place("i2", vcpus=4)


def test_the_growth_by_one_does_not_absorb_another(world):
    world.place("i1", vcpus=2, memory_mb=2048)
    world.place("i2", vcpus=2, memory_mb=2048)
    report(world, "i1", "i2", **use(2))
    assert reserved(world) == ["i1", "i2"], "the use includes one of them, and does not show which"
    report(world, "i1", "i2", **use(4))
    assert reserved(world) == []


def test_growth_that_absorbed_one_is_not_counted_again(world):
    world.place("i1", vcpus=2, memory_mb=2048)
    world.place("i2", vcpus=2, memory_mb=2048)
    report(world, "i1", **use(2))
    assert reserved(world) == ["i2"]
    report(world, "i1", "i2", **use(2))
    assert reserved(world) == ["i2"], "all growth so far was the other's"
    report(world, "i1", "i2", **use(4))
    assert reserved(world) == []


def test_use_that_grew_before_a_reservation_and_is_explained_later_counts_once(world):
    world.place("i1", vcpus=1, memory_mb=1024)
    report(world, **use(1))
    world.place("i2", vcpus=1, memory_mb=1024)
    report(world, "i1", **use(1))
    assert reserved(world) == ["i2"]
    report(world, "i1", "i2", **use(2))
    assert reserved(world) == []


def test_use_that_was_announced_is_not_counted_again(world):
    world.place("i1", "i2")
    world.inventory.confirm(["i1"])
    world.clock.advance(1)
    world.report({"host": "a", **use(1)})
    assert reserved(world) == ["i2"]
    report(world, "i1", "i2", **use(1))
    assert reserved(world) == ["i2"]


def test_one_dimension_is_enough(world):
    world.place("i1", vcpus=1, memory_mb=1024)
    report(world, "i1", vcpus_used=0, memory_mb_used=1024)
    assert reserved(world) == []


def test_a_dimension_shows_only_those_that_take_something_of_it(world):
    world.place("disk", flavor={"vcpus": 1, "memory_mb": 1024, "root_gb": 20})
    world.place("none")
    report(world, "disk", "none", vcpus_used=0, local_gb_used=20)
    assert reserved(world) == ["none"]


def test_free_memory_tells_the_use_too(world):
    world.report({"host": "a", "free_ram_mb": 8192})
    world.place("i1")
    report(world, "i1", free_ram_mb=8192)
    assert reserved(world) == ["i1"]
    report(world, "i1", free_ram_mb=7168)
    assert reserved(world) == []


def test_growth_is_counted_from_the_lowest_use_since(world):
    world.report({"host": "a", **use(3)})
    world.place("i1")
    report(world, "other", **use(1))
    report(world, "other", "i1", **use(1))
    assert reserved(world) == ["i1"]
    report(world, "other", "i1", **use(2))
    assert reserved(world) == []


@pytest.mark.parametrize(
    "announced",
    [
        lambda inventory: None,
        lambda inventory: inventory.delete_instance("a", "gone"),
        lambda inventory: inventory.update_instances(
            "a", {"gone": {"uuid": "gone", "vm_state": "active"}}
        ),
    ],
    ids=["nothing", "deletion", "facts"],
)
def test_a_deletion_does_not_hide_the_growth(world, announced):
    world.place("gone")
    report(world, "gone", **use(1))
    world.place("i1")
    announced(world.inventory)
    report(world, "i1", **use(1))
    assert reserved(world) == [], "what takes the place of another is in the use as well"


def test_a_deletion_does_not_make_a_listed_instance_used(world):
    world.place("gone")
    report(world, "gone", **use(1))
    world.place("i1")
    report(world, "i1", **use(0))
    assert reserved(world) == ["i1"]
    report(world, "i1", **use(1))
    assert reserved(world) == []


def test_sizes_that_reports_tell_explain_the_use(world):
    def listed(*uuids: str) -> list[dict[str, Any]]:
        return [{"uuid": uuid, "vcpus": 1, "memory_mb": 1024} for uuid in uuids]

    world.report({"host": "a", "instances": listed("x", "y"), **use(2)})
    world.place("i1")
    world.report({"host": "a", "instances": listed("i1", "y", "new"), **use(2)})
    assert reserved(world) == ["i1"], "x went, and two came: one is not in the use yet"
    world.report({"host": "a", "instances": listed("i1", "y", "new"), **use(3)})
    assert reserved(world) == []


def test_what_an_unknown_deletion_hides_ends_with_the_ttl_at_the_latest(world):
    world.report({"host": "a", **use(3)})
    world.place("i1")
    report(world, "i1", **use(3))
    assert reserved(world) == ["i1"]
    world.clock.advance(world.limits.reservation_ttl_s)
    assert reserved(world) == []


@pytest.mark.parametrize("facts", [{"vm_state": "building"}, {"task_state": "resize_finish"}])
def test_an_instance_stays_reserved_while_it_is_listed_as_under_way_and_a_ttl_longer(world, facts):
    world.place("i1", vcpus=4)
    for _ in range(4):
        world.clock.advance(world.limits.reservation_ttl_s - 1)
        world.report({"host": "a", "instances": [{"uuid": "i1", **facts}], **use(0)})
    world.report({"host": "a", "instances": [{"uuid": "i1", "vm_state": "error"}], **use(0)})
    world.clock.advance(world.limits.reservation_ttl_s - 1)
    assert reserved(world) == ["i1"]
    world.report({"host": "a", **use(0)})
    world.clock.advance(1)
    assert reserved(world) == []


def test_an_announced_instance_is_absorbed_by_use_measured_later_whatever_it_is(world):
    world.report({"host": "a", **use(3)})
    world.place("i1")
    world.inventory.update_instances("a", {"i1": {"uuid": "i1"}})
    report(world, "i1", **use(3), updated_at=world.clock.time_s() - 1)
    assert reserved(world) == ["i1"], "measured before the announcement"
    world.clock.advance(1)
    world.report({"host": "a"})
    assert reserved(world) == ["i1"], "a heartbeat reports no use"
    report(world, "i1", **use(3), updated_at=world.clock.time_s())
    assert reserved(world) == []


OLD = {"uuid": "i1", "vm_state": "active", "vcpus": 1, "memory_mb": 1024}
NEW = OLD | {"vm_state": "resized", "vcpus": 2, "memory_mb": 2048}


@pytest.mark.parametrize(
    ("announced", "left"),
    [
        (None, ["i1"]),
        ({"uuid": "i1"}, ["i1"]),
        (OLD, ["i1"]),
        (NEW | {"task_state": "resize_finish"}, ["i1"]),
        (NEW, []),
    ],
    ids=["sync", "uuid", "old size", "under way", "new size"],
)
def test_a_resize_on_its_host_stays_reserved_until_the_new_size_is_announced(
    world, announced, left
):
    world.report({"host": "a", "instances": [OLD], **use(1)})
    world.clock.advance(1)
    world.place("i1", vcpus=2, memory_mb=2048)
    if announced:
        world.inventory.update_instances("a", {"i1": announced})
    else:
        world.inventory.sync_instances("a", ["i1"])
    world.clock.advance(1)
    world.report({"host": "a", "instances": [announced or OLD], **use(1)})
    assert reserved(world) == left


def test_a_build_that_is_announced_early_is_not_complete(world):
    world.place("i1")
    world.inventory.update_instances("a", {"i1": {"uuid": "i1", "vm_state": "building"}})
    world.clock.advance(1)
    world.report({"host": "a", **use(0)})
    assert reserved(world) == ["i1"]


def test_to_be_listed_is_no_announcement(world):
    world.place("i1")
    report(world, "i1", **use(0))
    [known] = world.reservations()
    assert (known["announced_at_s"], known["listed_at_s"]) == (None, world.clock.time_s())
    world.clock.advance(1)
    world.report({"host": "a", **use(0)})
    assert reserved(world) == ["i1"]
    world.report({"host": "a", **use(1)})
    assert reserved(world) == [], "it was listed before, and the use has grown"


def test_a_listed_instance_is_no_pending_resource(world):
    world.place("i1", vcpus=4)
    table = world.fleet.cluster("default").table
    assert table.without_pending() is not None
    report(world, "i1", **use(0))
    assert table.without_pending() is None


def test_a_reservation_that_is_answered_again_keeps_the_use_it_was_made_at(world):
    world.place("i1", request_id="req")
    report(world, "other", **use(1))
    world.place("i1", request_id="again")
    report(world, "other", "i1", **use(1))
    assert reserved(world) == [], "the use had grown by it before it was asked for again"


STORED = (
    b'{"instance_uuid":"i1","host_uuid":"uuid-a","host":"a","nodename":"a","resources":'
    b'{"vcpus":1,"memory_mb":1024,"disk_mb":0,"numa":null,"pci":null,"providers":[]},'
    b'"created_at_s":%d.0,"expires_at_s":%d.0,"token":7,"request_id":"req"}'
)
"""A reservation as the release before stored it, which had no ``reported_use``."""


def test_a_stored_reservation_without_a_use_is_absorbed_when_it_is_listed(world):
    now_s = int(world.clock.time_s())
    put = Put("p:i1@uuid-a", STORED % (now_s, now_s + 300), now_s + 300)
    world.state.write("default", [Transaction([put])])
    report(world, "i1", **use(0))
    assert reserved(world) == []


def test_what_is_stored_of_the_use_is_small(world):
    world.place("i1")
    [known] = world.fleet.cluster("default").reservations.values()
    assert msgspec.json.encode(known.other_use) == b"{}"
    report(world, "i1", **use(1))
    [stored] = [each for each in world.state.changes("default", Seen()).entries if "i:" in each.key]
    assert stored.value == b'{"i1":{"uuid":"i1","since_s":1700000000.0,"takes":[1,1024,0]}}'
