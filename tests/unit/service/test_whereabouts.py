"""An instance that is asked for twice at once, where it could go to any of several clusters."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_worker.errors import Conflict, NoValidHost
from scheduler_worker.ports import Seen
from scheduler_worker.service import records
from scheduler_worker.service.whereabouts import SCOPE
from tests.support.services import World, host


@pytest.fixture
def world() -> World:
    world = World()
    world.report(host("a", cluster="one", vcpus=2), host("b", cluster="two", vcpus=2))
    return world


def said(world: World) -> dict[str, str]:
    entries = world.state.changes(SCOPE, Seen()).entries
    return {each.key.removeprefix(records.HOME): each.value.decode() for each in entries}


def before_next(monkeypatch: pytest.MonkeyPatch, state: Any, method: str, do: Any) -> None:
    """Something happens when ``method`` is called next."""
    real = getattr(state, method)

    def first(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(state, method, real)
        do()
        return real(*args, **kwargs)

    monkeypatch.setattr(state, method, first)


def favour(world: World, name: str, cluster: str) -> None:
    world.report(host(name, cluster=cluster, vcpus_used=0, vcpus=2, memory_mb=65536))


def fill(world: World) -> None:
    world.report(host("a", cluster="one", vcpus=2, vcpus_used=2))


def test_a_copy_that_was_faster_elsewhere_is_answered_alike(world, monkeypatch):
    other = world.beside()
    favour(world, "a", "one")

    def overtake():
        favour(other, "b", "two")
        world.report(host("a", cluster="one", vcpus=2, memory_mb=2048))
        assert other.place("i1") == ["b"]

    before_next(monkeypatch, world.state, "acquire", overtake)
    assert world.place("i1") == ["b"]
    assert world.promised() == {"b": ["i1"]}


def test_who_was_refused_goes_on_to_another_cluster(world, monkeypatch):
    favour(world, "a", "one")
    before_next(monkeypatch, world.state, "acquire", lambda: fill(world))
    assert world.place("i1") == ["b"]
    assert said(world) == {"i1": "two"}


def test_a_refusal_under_a_hold_that_had_ended_counts_for_nothing(world, monkeypatch):
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
    assert ("fenced", "one") in world.told.events
    assert world.promised() == {"a": ["i1"]}


def test_an_instance_is_not_led_away_from_a_copy_that_came_later(world, monkeypatch):
    favour(world, "a", "one")
    other = world.beside()

    def refuse():
        fill(world)
        before_next(monkeypatch, world.state, "acquire", come_later)

    def come_later():
        """The first cluster has refused it, and the second was not asked yet."""
        favour(other, "a", "one")
        assert other.place("i1") == ["a"]

    before_next(monkeypatch, world.state, "acquire", refuse)
    assert world.place("i1") == ["a"]
    assert world.promised() == {"a": ["i1"]}


def test_instances_in_several_clusters_are_found_there_again(world):
    assert sorted(world.place("i1", "i2", vcpus=2)) == ["a", "b"]
    placed = world.promised()
    other = world.beside()
    other.report(host("c", cluster="one", vcpus=64, memory_mb=65536))
    other.place("i1", "i2", vcpus=2)
    assert world.promised() == placed


def test_nobody_asks_for_ever(world, monkeypatch):
    monkeypatch.setattr(
        "scheduler_worker.service.whereabouts.Whereabouts.claim",
        lambda self, store, wishes, **_: [False] * len(wishes),
    )
    with pytest.raises(Conflict):
        world.ask("i1")
    assert world.promised() == {}


def test_what_was_said_is_forgotten(world):
    world.ask("i1")
    assert said(world)
    world.clock.advance(world.limits.whereabouts_ttl_s)
    assert not said(world)


def test_a_request_that_names_its_cluster_says_nothing(world):
    world.ask("i1", scheduler_hints={"cluster": ["one"]})
    assert not said(world)


def test_a_fleet_of_one_cluster_has_nothing_to_say():
    world = World()
    world.report(host("a"))
    world.ask("i1")
    with pytest.raises(NoValidHost):
        world.ask("i2", vcpus=64)
    assert not said(world)
