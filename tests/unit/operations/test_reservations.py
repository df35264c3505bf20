"""Reservations: which are listed, and what a release ends."""

import pytest

from scheduler_worker.errors import Conflict, Forbidden, NotFound
from scheduler_worker.operations.callers import Caller, Grant
from scheduler_worker.operations.operation import when
from scheduler_worker.operations.reservations import (
    get_reservation,
    list_reservations,
    release_reservation,
)
from tests.support.interrupted import raising
from tests.support.services import World, host


@pytest.fixture
def world():
    """With a reservation of instance one on a."""
    world = World()
    world.report(host("a", cluster="east"), host("b", cluster="west"))
    world.place("one", requested_destination={"host": "a"})
    return world


@pytest.fixture
def reserved(world):
    [found] = world.call(list_reservations).items
    return found


def stored(world):
    [found] = world.fleet.cluster("east").reservations.values()
    return found


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"cluster": "east"}, 1), ({"cluster": "west"}, 0), ({"host": "a"}, 1),
        ({"host": "uuid-a", "instance": "two"}, 0), ({"instance": "one"}, 1),
    ],
)  # fmt: skip
def test_they_are_filtered(world, query, count):
    assert len(world.call(list_reservations, **query).items) == count


def test_one_is_shown_by_its_id_and_by_its_instance(world, reserved):
    assert world.call(get_reservation, id=reserved.id) == reserved
    assert world.call(get_reservation, id="one") == reserved
    ends_s = world.clock.time_s() + world.limits.reservation_ttl_s
    assert (reserved.state, reserved.expires_at) == ("held", when(ends_s))


@pytest.mark.parametrize("named", ["by its id", "by its instance"])
def test_one_is_released_once_with_an_entry_in_the_audit(world, reserved, named):
    called = reserved.id if named == "by its id" else "one"
    assert world.call(release_reservation, id=called) is None
    assert world.reserved() == {}
    assert world.inventory.release(["one"]) == 1  # repeated by Nova, it answers the same
    with pytest.raises(NotFound, match="There is no reservation"):
        world.call(release_reservation, id=reserved.id)
    [entry] = world.audited()
    assert (entry.user, entry.origin, entry.result) == ("anna", "127.0.0.1", "done")
    assert (entry.action, entry.subject) == ("reservation.release", reserved.id)
    assert '"instance_uuid":"one"' in entry.before


def test_one_that_changes_during_the_release_stays(world):
    old = stored(world)
    world.clock.advance(1.0)
    world.inventory.confirm(["one"])
    with pytest.raises(Conflict, match="read it again"):
        world.inventory.release_one("east", old)
    assert world.reserved() == {"a": ["one"]}


def test_one_of_two_of_an_instance_is_released(world):
    world.inventory.confirm(["one"])  # so it keeps its room while it moves
    first = stored(world)
    world.place("one", request_id="a move", requested_destination={"host": "b"})
    world.inventory.release_one("east", first)
    assert world.reserved() == {"b": ["one"]}


def test_a_release_that_fails_is_in_the_audit(world, reserved, monkeypatch):
    monkeypatch.setattr(world.inventory, "release_one", raising(Conflict("too late")))
    with pytest.raises(Conflict):
        world.call(release_reservation, id=reserved.id)
    reasons = {each.result: each.reason for each in world.audited()}
    assert reasons.keys() == {"done", "refused"}
    assert "too late" in reasons["refused"]


def test_administrators_release_in_their_clusters(world, reserved):
    elsewhere = Caller("bert", (Grant("administrator", "west"), Grant("policy_editor", "east")), "")
    with pytest.raises(Forbidden, match="reservation:release, except in west"):
        world.call(release_reservation, id=reserved.id, caller=elsewhere)
    assert world.reserved() == {"a": ["one"]}
    [entry] = world.audited()
    assert (entry.user, entry.action, entry.result) == ("bert", "reservation:release", "refused")
    here = Caller("cleo", (Grant("administrator", "east"),), "")
    world.call(release_reservation, id=reserved.id, caller=here)
    assert world.reserved() == {}
