"""A repeated request gets the same answer, even after its reservation was absorbed."""

import pytest

from scheduler_worker.errors import NoValidHost
from tests.support.services import World, host


@pytest.fixture
def absorbed(world) -> World:
    """``i1`` was placed on ``a``, by request ``r1``, and its host reports it; ``b`` is better."""
    world.report(host("a"))
    assert world.place("i1", request_id="r1") == ["a"]
    world.report({"host": "a", "vcpus_used": 4, "instances": [{"uuid": "i1"}]}, host("b"))
    assert world.reserved() == {}
    return world


@pytest.mark.parametrize("worker", [World.beside, lambda world: world])
def test_the_same_request_gets_the_same_host_and_reserves_nothing(absorbed, worker):
    assert worker(absorbed).place("i1", request_id="r1") == ["a"]
    assert absorbed.reserved() == {}
    assert absorbed.fleet.cluster("default").table.state(0).vcpus_used == 4


def test_a_confirmed_reservation_is_answered_too(world):
    world.report(host("a"), host("b"))
    first = world.place("i1", request_id="r1")
    world.inventory.confirm(["i1"])
    assert world.place("i1", request_id="r1") == first


def test_a_request_that_was_answered_with_the_reservation_of_another_is_answered_so_again(world):
    world.report(host("a"))
    world.place("i1", request_id="r1")
    assert world.place("i1", request_id="r2") == ["a"]
    world.report({"host": "a", "vcpus_used": 4, "instances": [{"uuid": "i1"}]}, host("b"))
    assert world.place("i1", request_id="r2") == ["a"]
    assert world.place("i1", request_id="r1") == ["a"]
    assert world.place("i1", request_id="r3") == ["b"]


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
def test_another_request_for_the_instance_is_decided_again(absorbed, asked):
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


def test_a_reservation_that_is_absorbed_late_is_not_remembered(world):
    world.report(host("a"))
    world.place("i1", request_id="r1")
    world.clock.advance(121)
    world.report({"host": "a", "vcpus_used": 4, "instances": [{"uuid": "i1"}]})
    assert world.reserved() == {}
    with pytest.raises(NoValidHost):
        world.place("i1", request_id="r1")


def test_a_remembered_answer_is_no_reservation(absorbed):
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
    assert world.reserved() == {first[1]: ["i2"]}


def test_an_answer_is_found_in_its_cluster(world):
    world.report(host("a", cluster="one"), host("b", cluster="two", memory_mb=4096))
    assert world.place("i1", request_id="r1") == ["a"]
    world.report({"host": "a", "vcpus_used": 4, "instances": [{"uuid": "i1"}]})
    assert world.beside().place("i1", request_id="r1") == ["a"]


def test_a_reservation_is_found_before_it_has_followed_its_node_to_another_uuid(world, monkeypatch):
    """It is committed while a report replaces the node, and follows in the next write."""
    world.report(host("a"), host("b", memory_mb=1024))
    other, write, found = world.beside(), world.state.write, []

    def overtaken(scope, transactions, **how):
        if any(put.key == "h:new" for each in transactions for put in each.puts):
            monkeypatch.setattr(world.state, "write", followed)
            assert other.place("i1", request_id="r1") == ["a"]
        return write(scope, transactions, **how)

    def followed(scope, transactions, **how):
        monkeypatch.setattr(world.state, "write", write)
        other.report({"host": "b", "memory_mb": 10**6})
        found.append(other.place("i1", request_id="r1"))
        return write(scope, transactions, **how)

    monkeypatch.setattr(world.state, "write", overtaken)
    world.report(host("a", uuid="new"))
    assert found == [["a"]]
    assert world.reserved() == {"a": ["i1"]}
    [reservation] = world.reservations()
    assert reservation["host_uuid"] == "new"


TRIED = {"retry": {"num_attempts": 1, "hosts": [{"host": "a", "hypervisor_hostname": "a"}]}}


@pytest.mark.parametrize("cluster", ["default", "other"])
@pytest.mark.parametrize(
    "excluded", [{"ignore_hosts": ["A"]}, {"requested_destination": {"host": "b"}}]
)
def test_a_request_that_excludes_the_host_of_an_instance_gives_up_its_room(
    world, cluster, excluded
):
    world.report(host("a"), host("b", vcpus=2, memory_mb=4096, cluster=cluster))
    other = world.beside()
    assert world.place("i1", vcpus=2) == ["a"]
    assert other.place("i1", vcpus=2, **excluded) == ["b"]
    assert other.reserved() == {"b": ["i1"]}
    assert ("released", 1) in other.observed.events
    assert other.place("i2", vcpus=4) == world.place("i2", vcpus=4) == ["a"]


def test_a_host_that_was_tried_in_vain_gives_up_its_room_unless_it_is_chosen_again(world):
    world.report(host("a"))
    assert world.place("i1") == world.place("i1", **TRIED) == ["a"]
    assert world.reserved() == {"a": ["i1"]}
    world.report(host("b", memory_mb=10**6))
    assert world.place("i1", **TRIED) == ["b"]
    assert world.reserved() == {"b": ["i1"]}


def test_a_refused_request_gives_up_the_room_too(world):
    world.report(host("a"))
    world.place("i1")
    with pytest.raises(NoValidHost):
        world.ask("i1", ignore_hosts=["a"])
    assert world.reserved() == {}


@pytest.mark.parametrize(
    ("excluded", "left"), [({"ignore_hosts": ["a"]}, {"a": ["i1"]}), (TRIED, {})]
)
def test_an_instance_keeps_its_room_on_the_host_that_it_migrates_from(world, excluded, left):
    world.report(host("a"))
    world.place("i1")
    world.report(host("b", memory_mb=10**6))
    world.inventory.update_instances("a", {"i1": {"uuid": "i1"}})
    assert world.place("i1", **excluded) == ["b"]
    assert world.reserved() == {**left, "b": ["i1"]}
