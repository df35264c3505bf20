"""Requests wait without a slot for a state that is away, as long as their callers wait."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from scheduler_worker.errors import StateAway, StateLost, WorkerStops
from scheduler_worker.model.decisions import Decision
from scheduler_worker.waiters import complete
from tests.support.patience import SOON_S
from tests.support.services import World, host, request
from tests.support.threads import in_thread


@pytest.fixture
def world() -> World:
    world = World()
    world.report(host("a"), host("b"))
    return world


def failing(method: Callable[..., Any], *errors: Exception, late: bool = False) -> Any:
    """A method whose next calls raise these errors; with ``late`` after they were done."""
    coming = iter(errors)

    def call(*arguments: Any, **how: Any) -> Any:
        error = next(coming, None)
        if error is None:
            return method(*arguments, **how)
        if late:
            method(*arguments, **how)
        raise error

    return call


class Slots:
    """Counts how often a request gave up its slot."""

    yielded = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.yielded += 1
        yield


def select(world: World, remaining_s: float = 60.0, slots: Any = None) -> Decision:
    scheduler = world.scheduler
    return complete(scheduler.selecting(request("i1"), remaining_s, slots or Slots()))


@pytest.mark.parametrize("method", ["acquire", "commit", "changes"])
def test_a_request_is_decided_when_the_state_serves_again(world, monkeypatch, method):
    away = [StateAway("loading")] * 3
    monkeypatch.setattr(world.state, method, failing(getattr(world.state, method), *away))
    world.clock.advance(30)  # so that what all clusters share is read again
    slots = Slots()
    assert select(world, slots=slots).selections[0][0].service_host == "a"
    assert slots.yielded == 3
    [outcome] = world.observed.outcomes
    assert outcome.result == "placed"
    assert [each.name for each in outcome.phases].count("state") == 3


def test_what_was_written_before_the_state_went_away_is_kept(world, monkeypatch):
    commit = failing(world.state.commit, StateAway("loading"), late=True)
    monkeypatch.setattr(world.state, "commit", commit)
    chosen = select(world).selections[0][0].service_host
    assert world.reserved() == {chosen: ["i1"]}
    assert world.observed.outcomes[-1].repeated == 1


def test_a_caller_is_told_while_it_still_waits(world, monkeypatch):
    def away(*_: Any, **__: Any) -> Any:
        world.clock.advance(9)
        raise StateAway("loading")

    monkeypatch.setattr(world.state, "acquire", away)
    with pytest.raises(StateAway):
        select(world, remaining_s=60.0)
    outcome = world.observed.outcomes[-1]
    assert (outcome.result, outcome.duration_s) == ("StateUnavailable", 54)


def test_a_request_is_left_to_workers_that_may_reach_the_state(world, monkeypatch):
    lost = failing(world.state.acquire, StateLost("no server answers"))
    monkeypatch.setattr(world.state, "acquire", lost)
    with pytest.raises(StateLost):
        select(world)


def test_a_stop_ends_the_wait(world, monkeypatch):
    def away(*_: Any, **__: Any) -> Any:
        raise StateAway("loading")

    monkeypatch.setattr(world.state, "acquire", away)
    answer = in_thread(select, world)
    world.scheduler.stop_waiting()
    with pytest.raises(WorkerStops):
        answer.result(SOON_S)
