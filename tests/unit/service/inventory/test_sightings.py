"""What one host says of an instance, and the instance's reservation on another host."""

from typing import Any

import msgspec
import pytest

from scheduler_worker.model.host_reports import HostReport
from tests.support.services import World, host

ACTIVE = {"uuid": "i1", "vm_state": "active"}
BUILDING = {"uuid": "i1", "vm_state": "building", "task_state": "spawning"}
MIGRATING = ACTIVE | {"task_state": "migrating"}


@pytest.fixture(params=["one", "two"])
def world(request) -> World:
    """Hosts a and b, in one cluster or in two."""
    world = World()
    world.report(host("a", cluster="one"), host("b", cluster=request.param))
    return world


def reserve(world: World, on: str) -> None:
    world.clock.advance(1)
    assert world.place("i1", force_hosts=[on]) == [on]
    world.clock.advance(1)


def lists(world: World, name: str, *instances: dict[str, Any], **facts: Any) -> None:
    world.report({"host": name, "instances": list(instances), **facts})


def announces(world: World, name: str, facts: dict[str, Any]) -> None:
    world.inventory.update_instances(name, {"i1": facts})


says = pytest.mark.parametrize("say", [lists, announces])


@says
@pytest.mark.parametrize("before", [None, BUILDING])
def test_an_instance_that_was_built_elsewhere_frees_its_room(world, say, before):
    reserve(world, "b")
    if before:
        say(world, "a", before)
        assert world.reserved() == {"b": ["i1"]}
    say(world, "a", ACTIVE)
    assert world.reserved() == {}
    assert ("released", 1) in world.observed.events


@says
def test_an_instance_that_was_there_before_may_be_to_move(world, say):
    say(world, "a", ACTIVE)
    reserve(world, "b")
    say(world, "a", ACTIVE)
    assert world.reserved() == {"b": ["i1"]}


def test_an_instance_that_was_expected_there_before_may_be_to_move(world):
    reserve(world, "a")
    world.beside().inventory.confirm(["i1"])
    world.clock.advance(1)
    world.place("i1", ignore_hosts=["a"])
    world.clock.advance(1)
    lists(world, "a", ACTIVE)
    assert world.reserved()["b"] == ["i1"]


@pytest.mark.parametrize("facts", [{"uuid": "i1"}, ACTIVE | {"host": "b"}, BUILDING])
def test_what_proves_nothing_ends_nothing(world, facts):
    """A uuid alone, a source that knows where it went, a build that may fail."""
    reserve(world, "b")
    announces(world, "a", facts)
    assert world.reserved() == {"b": ["i1"]}


@pytest.mark.parametrize("age_s", [1.5, 1.0])
def test_a_list_that_was_measured_before_the_decision_or_with_it_ends_nothing(world, age_s):
    reserve(world, "b")
    lists(world, "a", ACTIVE, updated_at=world.clock.time_s() - age_s)
    assert world.reserved() == {"b": ["i1"]}


@says
def test_a_move_keeps_its_destination_as_long_as_its_source_says_that_it_is_under_way(world, say):
    say(world, "a", ACTIVE)
    reserve(world, "b")
    for _ in range(3):
        say(world, "a", MIGRATING)
        world.clock.advance(world.limits.reservation_ttl_s - 1)
    say(world, "a", ACTIVE)
    assert world.reserved() == {"b": ["i1"]}
    world.clock.advance(1)
    assert world.reserved() == {}


def test_a_slow_build_elsewhere_keeps_no_room(world):
    reserve(world, "b")
    lists(world, "a", BUILDING)
    world.clock.advance(world.limits.reservation_ttl_s - 1)
    assert world.reserved() == {}


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_list_that_makes_a_reservation_last_is_news(world, name):
    lists(world, name, MIGRATING)
    report = msgspec.convert({"host": name, "instances": [MIGRATING]}, HostReport)
    assert world.inventory.news([report]) == []
    reserve(world, "b")
    assert world.inventory.news([report]) == [report]
