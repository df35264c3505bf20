"""The description of waiting requests and of the lease, for operators."""

import threading

import pytest

from scheduler_worker.ports import Seen
from tests.support.patience import SOON_S
from tests.support.services import World, host
from tests.support.threads import Threads

IDLE = {"in_line": 0, "oldest_s": 0.0, "waiting_for_pending": 0, "token": None, "held_s": None}


@pytest.fixture
def world() -> World:
    return World(wait_timeout_s=20.0)


def test_an_unused_cluster_has_no_queue(world):
    assert world.scheduler.describe("default") == IDLE


def test_queued_requests_are_counted_with_the_age_of_the_oldest(world, monkeypatch):
    world.report(host("a"))
    acquire, waits = world.state.acquire, threading.Event()

    def recorded(scope, **how):
        waits.set()
        return acquire(scope, **how)

    monkeypatch.setattr(world.state, "acquire", recorded)
    blocking = acquire("default", timeout_s=1, seen=Seen())
    with Threads(1) as pool:
        asking = pool.submit(world.place, "i1")
        assert waits.wait(SOON_S)
        world.clock.advance(2.5)
        assert world.scheduler.describe("default") == IDLE | {"in_line": 1, "oldest_s": 2.5}
        world.state.release(blocking)
        assert asking.result(SOON_S) == ["a"]
    assert world.scheduler.describe("default") == IDLE


def test_a_lease_is_described_with_its_token_and_age(world, monkeypatch):
    world.report(host("a"))
    commit, seen = world.state.commit, []

    def recorded(grant, transactions, **keep):
        world.clock.advance(3)
        seen.append((grant.token.number, world.scheduler.describe("default")))
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", recorded)
    world.place("i1")
    [(token, described)] = seen
    assert described == IDLE | {"token": token, "held_s": 3.0}
    assert world.scheduler.describe("default") == IDLE


def test_requests_waiting_for_capacity_are_counted_by_cluster(world, monkeypatch):
    world.report(host("a", vcpus=1))
    world.place("i1")
    waits, await_change = threading.Event(), world.state.await_change

    def recorded(scope, seen, **how):
        waits.set()
        return await_change(scope, seen, **how)

    monkeypatch.setattr(world.state, "await_change", recorded)
    with Threads(1) as pool:
        asking = pool.submit(world.place, "i2")
        assert waits.wait(SOON_S)
        assert world.scheduler.describe("default") == IDLE | {"waiting_for_pending": 1}
        world.inventory.release(["i1"])
        assert asking.result(SOON_S) == ["a"]
    assert world.scheduler.describe("default")["waiting_for_pending"] == 0
