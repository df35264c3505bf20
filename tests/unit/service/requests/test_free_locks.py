"""A worker that is alone with a cluster decides again without acquiring the lock."""

import pytest

from scheduler_worker.errors import NoValidHost, StateUnavailable
from tests.support.services import World, host


@pytest.fixture
def world():
    world = World()
    world.report(host("a"), host("b"))
    return world


@pytest.fixture
def grants(world, monkeypatch) -> list[str]:
    """The owners of the leases that the world is granted."""
    owners: list[str] = []
    acquire = world.state.acquire

    def granted(*arguments, **how):
        grant = acquire(*arguments, **how)
        owners.append(grant.owner)
        return grant

    monkeypatch.setattr(world.state, "acquire", granted)
    return owners


def test_it_acquires_the_lock_once(world, grants):
    assert [world.ask(f"i{number}").claims != () for number in range(4)] == [True] * 4
    assert len(grants) == 1
    assert sum(map(len, world.reserved().values())) == 4
    waits_s = [outcome.waits.lock_s for outcome in world.observed.outcomes]
    assert waits_s == [0.0] * 4


def test_it_acquires_the_lock_again_when_half_of_the_lease_is_over(world, grants):
    world.ask("i1")
    world.clock.advance(world.limits.hold_timeout_s / 2 - 1)
    world.ask("i2")
    world.clock.advance(1)
    world.ask("i3")
    assert len(grants) == 2
    assert all(outcome.waits.hold_s == 0 for outcome in world.observed.outcomes)


def test_it_decides_again_what_others_have_changed(world, grants):
    other = world.beside()
    [first] = world.place("i1", vcpus=4)
    [second] = other.place("i2", vcpus=4)
    assert {first, second} == {"a", "b"}, "each host has room for one"
    other.inventory.release(["i2"])
    assert world.place("i3", vcpus=4) == [second], "what others released is taken"
    assert world.observed.outcomes[-1].attempts == 2
    assert not any(event[0] == "fenced" for event in world.observed.events)


def test_a_refusal_is_not_of_the_past(world):
    other = world.beside()
    world.place("i1", vcpus=4)
    world.place("i2", vcpus=4)
    other.inventory.release(["i1"])
    assert world.place("i3", vcpus=4), "the host was released before the request came"
    with pytest.raises(NoValidHost):
        world.place("i4", vcpus=4)


def test_an_answer_is_not_of_the_past(world):
    world.ask("i1", request_id="same")
    world.beside().inventory.release(["i1"])
    assert world.ask("i1", request_id="same").claims
    assert sum(world.reserved().values(), []) == ["i1"]


def test_an_answer_without_a_reservation_is_not_of_the_past(world):
    """What is only remembered is answered again without writing anything."""
    [name] = world.place("i1", request_id="same")
    world.inventory.confirm(["i1"])
    world.clock.advance(1)
    world.report(host(name, vcpus_used=1, memory_mb_used=1024, instances=[{"uuid": "i1"}]))
    assert world.reserved() == {}, "it is absorbed"
    assert not world.ask("i1", request_id="same").claims
    world.ask("i2")
    world.beside().inventory.release(["i1"])
    assert world.ask("i1", request_id="same").claims


def test_it_acquires_the_lock_while_others_write(world, grants):
    world.report(host("a", vcpus=64, memory_mb=65536, local_gb=640))
    other = world.beside()
    for number in range(3):
        world.ask(f"mine{number}")
        other.ask(f"theirs{number}")
    attempts = [outcome.attempts for outcome in world.observed.outcomes]
    assert attempts == [1, 2, 1], "the first time it does not know of them"
    assert len(grants) == 6, "from then on both acquire the lock"
    other.ask("alone1")
    other.ask("alone2")
    assert len(grants) == 7


def test_nothing_is_refused_while_the_store_is_away(world, monkeypatch):
    world.place("i1", vcpus=4)
    world.place("i2", vcpus=4)

    def away(*_, **__):
        raise StateUnavailable("away")

    monkeypatch.setattr(world.state, "commit", away)
    with pytest.raises(StateUnavailable):
        world.place("i3", vcpus=4)


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_lock_that_was_lost_is_no_attempt(attempts):
    world = World(max_attempts_to_commit=attempts)
    world.report(host("a"), host("b"))
    world.ask("i1")
    world.beside().ask("i2")
    assert world.ask("i3").claims
