"""What an operator is told of those who wait, while they wait."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler_worker.ports import Seen
from tests.support.services import World, host

IDLE = {"in_line": 0, "oldest_s": 0.0, "waiting_for_pending": 0, "token": None, "held_s": None}


@pytest.fixture
def world() -> World:
    return World(wait_timeout_s=20.0)


def test_nobody_waits_for_a_cluster_that_nobody_asked_for(world):
    assert world.scheduler.describe("default") == IDLE


def test_those_in_line_are_told_with_the_age_of_the_oldest(world, monkeypatch):
    world.report(host("a"))
    acquire, waits = world.state.acquire, threading.Event()

    def told(scope, **how):
        waits.set()
        return acquire(scope, **how)

    monkeypatch.setattr(world.state, "acquire", told)
    blocking = acquire("default", timeout_s=1, seen=Seen())
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(world.place, "i1")
        assert waits.wait(10)
        world.clock.advance(2.5)
        assert world.scheduler.describe("default") == IDLE | {"in_line": 1, "oldest_s": 2.5}
        world.state.release(blocking)
        assert asking.result(10) == ["a"]
    assert world.scheduler.describe("default") == IDLE


def test_a_hold_is_told_with_its_token_and_age(world, monkeypatch):
    world.report(host("a"))
    commit, seen = world.state.commit, []

    def told(grant, transactions, **keep):
        world.clock.advance(3)
        seen.append((grant.token.number, world.scheduler.describe("default")))
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", told)
    world.place("i1")
    [(token, described)] = seen
    assert described == IDLE | {"token": token, "held_s": 3.0}
    assert world.scheduler.describe("default") == IDLE


def test_who_waits_for_pending_resources_is_told_with_the_cluster(world, monkeypatch):
    world.report(host("a", vcpus=1))
    world.place("i1")
    waits, await_change = threading.Event(), world.state.await_change

    def told(scope, seen, **how):
        waits.set()
        return await_change(scope, seen, **how)

    monkeypatch.setattr(world.state, "await_change", told)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(world.place, "i2")
        assert waits.wait(10)
        assert world.scheduler.describe("default") == IDLE | {"waiting_for_pending": 1}
        world.inventory.release(["i1"])
        assert asking.result(10) == ["a"]
    assert world.scheduler.describe("default")["waiting_for_pending"] == 0
