"""The power state in host reports."""

from __future__ import annotations

import pytest

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.host_records import UP, HostPower
from tests.support.services import World, host


@pytest.fixture
def world() -> World:
    found = World()
    found.report(host("a"))
    return found


def power(world: World) -> HostPower:
    [record] = world.fleet.cluster("default").table.find("a")
    return record.power


def test_a_host_that_reports_none_is_up(world):
    assert power(world) == UP
    assert world.place("x") == ["a"]


def test_it_holds_until_another_is_reported(world):
    world.report({"host": "a", "power": {"state": "down", "by_policy": True}})
    world.clock.advance(100_000)
    world.report(host("a"))  # its agent knows nothing of power
    assert power(world).state == "down"
    world.report({"host": "a", "power": None})
    assert power(world) == UP
    assert world.place("x") == ["a"]


def test_a_report_of_power_alone_is_no_heartbeat(world):
    world.clock.advance(1000)
    world.report({"host": "a", "power": {"state": "up"}})
    with pytest.raises(NoValidHost):
        world.ask("x")
    world.report(host("a"))
    assert world.place("x") == ["a"]


def test_who_did_it_is_kept_while_the_state_is(world):
    world.report({"host": "a", "power": {"state": "maintenance", "by_policy": True}})
    world.report({"host": "a", "power": {"state": "maintenance", "is_healthy": False}})
    assert power(world) == HostPower(state="maintenance", by_policy=True, is_healthy=False)
    world.report({"host": "a", "power": {"state": "down"}})
    assert power(world).by_policy is False, "a person did, for no balance has asked for it"


def test_the_reason_is_explained(world):
    world.report({"host": "a", "power": {"state": "maintenance"}})
    with pytest.raises(NoValidHost):
        world.ask("x")
    assert world.hosts()[0]["power"]["state"] == "maintenance"
