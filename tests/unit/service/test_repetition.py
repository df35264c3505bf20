"""A request that comes again gets the answer it got, even after its promise has become use."""

import pytest

from scheduler_worker.errors import NoValidHost
from tests.support.services import World, host


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def absorbed(world) -> World:
    """``i1`` was placed on ``a``, by request ``r1``, and its host reports it; ``b`` is better."""
    world.report(host("a"))
    assert world.place("i1", request_id="r1") == ["a"]
    world.report({"host": "a", "vcpus_used": 4, "instances": [{"uuid": "i1"}]}, host("b"))
    assert world.promised() == {}
    return world


@pytest.mark.parametrize("worker", [World.beside, lambda world: world])
def test_the_same_request_gets_the_same_host_and_promises_nothing(absorbed, worker):
    assert worker(absorbed).place("i1", request_id="r1") == ["a"]
    assert absorbed.promised() == {}
    assert absorbed.fleet.cluster("default").table.state(0).vcpus_used == 4


def test_a_confirmed_promise_is_answered_too(world):
    world.report(host("a"), host("b"))
    first = world.place("i1", request_id="r1")
    world.inventory.confirm(["i1"])
    assert world.place("i1", request_id="r1") == first


@pytest.mark.parametrize(
    "asked",
    [
        {"request_id": "r2"},
        {"request_id": ""},
        {"request_id": "r1", "memory_mb": 2048},
        {"request_id": "r1", "ignore_hosts": ["a"]},
        {
            "request_id": "r1",
            "retry": {"num_attempts": 1, "hosts": [{"host": "a", "hypervisor_hostname": "a"}]},
        },
    ],
)
def test_another_request_for_the_instance_is_decided_anew(absorbed, asked):
    assert absorbed.place("i1", **asked) == ["b"]


def test_requests_without_an_id_are_not_remembered(world):
    world.report(host("a"))
    world.place("i1", request_id="")
    world.report({"host": "a", "vcpus_used": 4, "instances": [{"uuid": "i1"}]})
    assert world.fleet.cluster("default").answers == {}


def test_an_answer_is_remembered_for_a_while(absorbed):
    absorbed.clock.advance(119)
    absorbed.report({"host": "a"}, {"host": "b"})
    assert absorbed.place("i1", request_id="r1") == ["a"]
    absorbed.clock.advance(2)
    absorbed.report({"host": "a"}, {"host": "b"})
    assert absorbed.place("i1", request_id="r1") == ["b"]
    assert absorbed.fleet.cluster("default").answers == {}


def test_a_promise_that_is_absorbed_late_is_not_remembered(world):
    world.report(host("a"))
    world.place("i1", request_id="r1")
    world.clock.advance(121)
    world.report({"host": "a", "vcpus_used": 4, "instances": [{"uuid": "i1"}]})
    assert world.promised() == {}
    with pytest.raises(NoValidHost):
        world.place("i1", request_id="r1")


def test_an_answer_is_no_promise(absorbed):
    assert absorbed.inventory.confirm(["i1"]) == 0
    assert absorbed.inventory.release(["i1"]) == 0
    assert absorbed.place("i1", request_id="r1") == ["b"], "released, so forgotten"


def test_a_deleted_instance_is_forgotten(absorbed):
    absorbed.inventory.delete_instance("b", "i1")
    assert absorbed.place("i1", request_id="r1") == ["a"], "deleted elsewhere, after a move"
    absorbed.inventory.delete_instance("a", "i1")
    assert absorbed.place("i1", request_id="r1") == ["b"]


def test_a_half_absorbed_multi_create_is_answered_whole(world):
    group = {"policy": "anti-affinity", "members": ["i1", "i2"], "hosts": []}
    world.report(host("a"), host("b"), host("c"))
    first = world.place("i1", "i2", request_id="r1", instance_group=group)
    world.report({"host": first[0], "vcpus_used": 4, "instances": [{"uuid": "i1"}]})
    assert world.place("i1", "i2", request_id="r1", instance_group=group) == first
    assert world.promised() == {first[1]: ["i2"]}


def test_an_answer_is_found_in_its_cluster(world):
    world.report(host("a", cluster="one"), host("b", cluster="two", memory_mb=4096))
    assert world.place("i1", request_id="r1") == ["a"]
    world.report({"host": "a", "vcpus_used": 4, "instances": [{"uuid": "i1"}]})
    assert world.beside().place("i1", request_id="r1") == ["a"]


def test_kinds_of_records_of_a_newer_release_are_passed_over(world):
    world.report(host("a"))
    world.fleet.cluster("default").take("z:what", 99, b"?")
    assert world.place("i1") == ["a"]
