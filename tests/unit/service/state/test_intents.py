"""Concurrent copies of a request that could go to any of several clusters."""

import pytest

from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.errors import Conflict, NoValidHost
from scheduler_worker.ports import Seen
from scheduler_worker.service.state import records
from scheduler_worker.service.state.intents import SCOPE
from tests.support.interrupted import before_next
from tests.support.services import World, host, request


@pytest.fixture
def world() -> World:
    world = World()
    world.report(host("a", cluster="one", vcpus=2), host("b", cluster="two", vcpus=2))
    return world


def declared(world: World) -> dict[str, str]:
    entries = world.state.changes(SCOPE, Seen()).entries
    return {each.key.removeprefix(records.HOME): each.value.decode() for each in entries}


def favour(world: World, name: str, cluster: str) -> None:
    world.report(host(name, cluster=cluster, vcpus_used=0, vcpus=2, memory_mb=65536))


def fill(world: World) -> None:
    world.report(host("a", cluster="one", vcpus=2, vcpus_used=2))


def test_a_copy_that_was_faster_in_another_cluster_is_answered_alike(world, monkeypatch):
    other = world.beside()
    favour(world, "a", "one")

    def overtake():
        favour(other, "b", "two")
        world.report(host("a", cluster="one", vcpus=2, memory_mb=2048))
        assert other.place("i1") == ["b"]

    before_next(monkeypatch, world.state, "acquire", overtake)
    assert world.place("i1") == ["b"]
    assert world.reserved() == {"b": ["i1"]}


def test_copies_on_three_workers_that_prefer_three_clusters_are_answered_alike(world, monkeypatch):
    """Each overtakes the one before, and finds another cluster the best."""
    answers: list[list[str]] = []

    def copy(worker: World, best: str, *later: str) -> None:
        favour(worker, best, f"of-{best}")

        def overtake():
            worker.report({"host": best, "memory_mb": 2048})
            copy(worker.beside(), *later)

        if later:
            before_next(monkeypatch, world.state, "acquire", overtake)
        answers.append(worker.place("i1"))

    world.report(*(host(name, cluster=f"of-{name}") for name in "cde"))
    copy(world, "c", "d", "e")
    assert answers == [["e"]] * 3
    assert world.reserved() == {"e": ["i1"]}


def test_a_refused_request_goes_on_to_another_cluster(world, monkeypatch):
    favour(world, "a", "one")
    before_next(monkeypatch, world.state, "acquire", lambda: fill(world))
    assert world.place("i1") == ["b"]
    assert declared(world) == {"i1": "two"}


def test_a_refusal_under_an_expired_lease_does_not_count(world, monkeypatch):
    favour(world, "a", "one")

    other = world.beside()

    def refuse():
        fill(world)
        before_next(monkeypatch, world.state, "commit", pause)

    def pause():
        world.clock.advance(world.limits.hold_timeout_s)
        favour(other, "a", "one")
        assert other.place("i1") == ["a"]

    before_next(monkeypatch, world.state, "acquire", refuse)
    assert world.place("i1") == ["a"]
    assert ("fenced", "one") in world.observed.events
    assert world.reserved() == {"a": ["i1"]}


def test_an_instance_is_not_drawn_away_from_a_later_copy(world, monkeypatch):
    favour(world, "a", "one")
    other = world.beside()

    def refuse():
        fill(world)
        before_next(monkeypatch, world.state, "acquire", come_later)

    def come_later():
        """The first cluster has refused it, and the second was not tried yet."""
        favour(other, "a", "one")
        assert other.place("i1") == ["a"]

    before_next(monkeypatch, world.state, "acquire", refuse)
    assert world.place("i1") == ["a"]
    assert world.reserved() == {"a": ["i1"]}


def test_instances_in_several_clusters_are_found_there_again(world):
    assert sorted(world.place("i1", "i2", vcpus=2)) == ["a", "b"]
    placed = world.reserved()
    other = world.beside()
    other.report(host("c", cluster="one", vcpus=64, memory_mb=65536))
    other.place("i1", "i2", vcpus=2)
    assert world.reserved() == placed


def test_instances_in_several_clusters_stay_where_another_copy_declared_them(world):
    placed = world.place("i1", "i2", vcpus=2)
    other = world.beside()
    other.inventory.release(["i1", "i2"])
    favour(other, placed[1], declared(world)["i2"])  # so the first one would go there, too
    assert other.place("i1", "i2", vcpus=2) == placed


def test_detours_are_bounded(world, monkeypatch):
    monkeypatch.setattr(
        "scheduler_worker.service.state.intents.PlacementIntents.declare",
        lambda self, intents, now_s: [False] * len(intents),
    )
    with pytest.raises(Conflict):
        world.ask("i1")
    assert world.reserved() == {}


def test_intents_expire(world):
    world.ask("i1")
    assert declared(world)
    world.clock.advance(world.limits.intent_ttl_s)
    assert not declared(world)


def test_a_request_that_names_its_cluster_declares_nothing(world):
    world.ask("i1", scheduler_hints={"cluster": ["one"]})
    assert not declared(world)


def test_a_fleet_of_one_cluster_declares_nothing():
    world = World()
    world.report(host("a"))
    world.ask("i1")
    with pytest.raises(NoValidHost):
        world.ask("i2", vcpus=64)
    assert not declared(world)


def test_a_fleet_that_had_several_clusters_declares_while_one_has_reported_again(world):
    """A store that has lost its data: the others come back one by one."""
    world.ask("i1")
    vars(world.state).update(vars(MemoryState(world.clock, hold_timeout_s=10.0)))
    world.report(host("a", cluster="one"))
    world.scheduler.select(request("i2"))
    assert declared(world) == {"i2": "one"}


def test_instances_beside_a_reserved_one_are_placed_in_another_cluster_where_they_have_to():
    world = World()
    world.report(host("a", cluster="one", vcpus=1), host("b", cluster="two", vcpus=1))
    [first] = world.place("i1", vcpus=1)
    [second] = {"a", "b"} - {first}
    assert world.place("i1", "i2", vcpus=1) == [first, second]


def test_an_instance_that_another_request_has_just_reserved_stays_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.report(host("a", cluster="one", vcpus=1), host("b", cluster="two", vcpus=2))
    world.report(host("a", cluster="one", vcpus=1, memory_mb=65536))
    other = world.beside()
    # It was not there yet when this request looked at all clusters.
    before_next(monkeypatch, world.state, "acquire", lambda: other.place("i1", vcpus=1))
    assert sorted(world.place("i1", "i2", "i3", vcpus=1)) == ["a", "b", "b"]
    assert len(world.reserved()["a"]) == 1 and len(world.reserved()["b"]) == 2
