"""Workers that tell each other of themselves."""

from __future__ import annotations

from scheduler_worker.errors import StateUnavailable
from scheduler_worker.model.worker_reports import WorkerFacts
from scheduler_worker.service.state import presence
from scheduler_worker.service.state.presence import LASTS_S, RENEW_S, Presence
from tests.support.interrupted import raising
from tests.support.services import World


def worker(world: World, name: str, **facts) -> Presence:
    plain = {"name": name, "version": "1", "topic": "t"} | facts
    return Presence(world.state, WorkerFacts(**plain), world.observed)


def names(world: World) -> list[str]:
    return [each.name for each in presence.workers(world.state)]


def test_workers_are_known_while_they_renew(world):
    first, second = worker(world, "b"), worker(world, "a", is_claiming=True)
    assert first.renew() == RENEW_S
    second.renew()
    assert presence.workers(world.state) == [
        WorkerFacts(name="a", version="1", topic="t", is_claiming=True),
        WorkerFacts(name="b", version="1", topic="t"),
    ]
    world.clock.advance(LASTS_S - 1)
    first.renew()
    world.clock.advance(2)
    assert names(world) == ["b"]


def test_the_others_know_that_a_worker_is_drained(world):
    one = worker(world, "a")
    one.renew()
    one.set_drained(True)
    one.renew()
    assert [each.is_drained for each in presence.workers(world.state)] == [True]
    assert one.facts.is_drained
    one.set_drained(False)
    one.renew()
    assert [each.is_drained for each in presence.workers(world.state)] == [False]


def test_one_that_never_started_removes_nothing(world):
    worker(world, "a").renew()
    worker(world, "a").stop()
    assert names(world) == ["a"]


def test_an_outage_is_noted_and_the_next_time_is_tried(world):
    one = worker(world, "a")
    world.state.changes = raising(StateUnavailable("away"))
    assert one.renew() == RENEW_S
    assert ("state failed",) in world.observed.events
