"""Commits: version conflicts, expired leases, failures of the store, limits."""

import threading

import pytest

from scheduler_worker.errors import (
    ClusterLockTimeout,
    Conflict,
    NoValidHost,
    StaleFencingToken,
    StateUnavailable,
)
from scheduler_worker.ports import Seen
from tests.support.patience import SOON_S
from tests.support.services import World, host
from tests.support.threads import Threads


@pytest.fixture
def world() -> World:
    return World()


def test_a_host_that_reported_before_the_commit_is_evaluated_again(world, monkeypatch):
    world.report(host("a"))
    other, commit = world.beside(), world.state.commit

    def overtaken(grant, transactions, **keep):
        monkeypatch.setattr(world.state, "commit", commit)
        other.report({"host": "a", "vcpus_used": 4})
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", overtaken)
    with pytest.raises(NoValidHost):
        world.ask("i1")
    assert world.reserved() == {}


def test_a_version_conflict_at_each_attempt_is_a_conflict(world, monkeypatch):
    world.report(host("a"))
    other, commit = world.beside(), world.state.commit

    def always_overtaken(grant, transactions, **keep):
        other.report({"host": "a", "vcpus_used": 0})
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", always_overtaken)
    with pytest.raises(Conflict, match="changed during each of 8 attempts"):
        world.ask("i1")
    assert world.reserved() == {}


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_the_last_attempt_that_is_allowed_may_succeed(monkeypatch, attempts):
    world = World(max_attempts_to_commit=attempts)
    world.report(host("a"))
    other, commit = world.beside(), world.state.commit
    overtakings = iter(range(attempts - 1))

    def overtaken(grant, transactions, **keep):
        if next(overtakings, None) is not None:
            other.report({"host": "a", "vcpus_used": 0})
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", overtaken)
    assert world.place("i1") == ["a"]
    assert world.observed.outcomes[-1].attempts == attempts
    assert world.reserved() == {"a": ["i1"]}


def test_an_expired_lease_costs_another_attempt(world, monkeypatch):
    world.report(host("a", vcpus=1))
    other, commit = world.beside(), world.state.commit

    def paused(grant, transactions, **keep):
        monkeypatch.setattr(world.state, "commit", commit)
        world.clock.advance(world.limits.hold_timeout_s + 1)
        assert other.place("thief") == ["a"]
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", paused)
    with pytest.raises(NoValidHost):
        world.ask("i1")
    assert world.reserved() == {"a": ["thief"]}
    assert world.fleet.cluster("default").table.state(0).vcpus_used == 1


def test_a_failed_commit_gives_the_claims_back(world, monkeypatch):
    world.report(host("a"))

    def broken(grant, transactions, **keep):
        raise OSError("cable")

    monkeypatch.setattr(world.state, "commit", broken)
    with pytest.raises(OSError, match="cable"):
        world.ask("i1")
    monkeypatch.undo()
    assert world.fleet.cluster("default").table.state(0).vcpus_used == 0
    assert world.place("i2") == ["a"]


def test_a_refused_claim_restores_the_reservation_that_it_replaced(world, monkeypatch):
    world.report(host("a", memory_mb=4096))
    world.place("i1", memory_mb=1024)
    other, commit = world.beside(), world.state.commit

    def overtaken(grant, transactions, **keep):
        monkeypatch.setattr(world.state, "commit", commit)
        other.report({"host": "a", "memory_mb": 2048})
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", overtaken)
    with pytest.raises(NoValidHost):
        world.place("i1", memory_mb=3072)
    assert world.fleet.cluster("default").table.state(0).free_ram_mb == 2048 - 1024
    with pytest.raises(NoValidHost):
        world.place("i2", memory_mb=2048)
    assert world.reserved() == {"a": ["i1"]}


class TestReleaseFailure:
    """Nothing was to be written, so the decision stands; the lease expires."""

    @pytest.fixture(autouse=True)
    def away(self, world, monkeypatch):
        world.report(host("a"))
        world.place("i1")

        def release(grant):
            raise StateUnavailable("away")

        monkeypatch.setattr(world.state, "release", release)

    def test_a_refusal_is_answered(self, world):
        with pytest.raises(NoValidHost):
            world.place("i2", vcpus=99)

    def test_a_repeated_request_gets_its_host(self, world):
        assert world.place("i1") == ["a"]

    def test_the_lease_counts_as_ended(self, world):
        assert world.place("i1") == ["a"]
        granted, ended = (
            world.observed.events.count((each, "default")) for each in ("granted", "ended")
        )
        assert granted == ended
        assert world.scheduler.describe("default")["token"] is None
        world.clock.advance(world.limits.hold_timeout_s + 1)
        assert world.place("i2") == ["a"]


def test_waiting_for_the_lock_is_bounded():
    world = World(acquire_timeout_s=5.0)
    world.report(host("a"))
    grant = world.state.acquire("default", timeout_s=1, seen=Seen())
    outcome = []

    def ask():
        with pytest.raises(ClusterLockTimeout, match="cluster default was not granted within 6 s"):
            world.ask("i1")
        outcome.append("timeout")

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    while "default" not in world.scheduler._queues._queues:
        threading.Event().wait(0.001)
    world.clock.advance(6.0)
    asking.join(SOON_S)
    assert outcome == ["timeout"]
    world.clock.advance(10.0)
    assert world.place("i2") == ["a"]
    with pytest.raises(StaleFencingToken):
        world.state.commit(grant, [])


@pytest.mark.parametrize(
    ("ordering", "asked", "priority_boost_s"),
    [
        ("priority", {"vcpus": 0, "memory_mb": 0, "priority": 100}, 2.0),
        ("priority", {"vcpus": 0, "memory_mb": 0}, 1.0),
        ("priority", {"vcpus": 4, "memory_mb": 8192, "priority": -100}, 0.0),
        ("fifo", {"vcpus": 0, "memory_mb": 0, "priority": 100}, 0.0),
    ],
)
def test_the_leaders_priority_boost_counts_among_the_workers(
    monkeypatch, ordering, asked, priority_boost_s
):
    world = World(ordering=ordering, max_priority_boost_s=2.0)
    world.report(host("a"))
    acquire, given = world.state.acquire, []

    def spied(scope, **how):
        given.append(how["priority_boost_s"])
        return acquire(scope, **how)

    monkeypatch.setattr(world.state, "acquire", spied)
    world.ask("i1", **asked)
    assert given == [priority_boost_s]


def test_a_refusal_stands_only_if_the_claims_before_it_were_reserved(world, monkeypatch):
    """Both are decided under one lease, and the host grows before the commit."""
    world.report(host("a", vcpus=1))
    other, commit = world.beside(), world.state.commit

    def overtaken(grant, transactions, **keep):
        monkeypatch.setattr(world.state, "commit", commit)
        other.report({"host": "a", "vcpus": 2})
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", overtaken)
    blocking = world.state.acquire("default", timeout_s=1, seen=Seen())
    with Threads(2) as pool:
        asking = [pool.submit(world.place, each) for each in ("i1", "i2")]
        while "default" not in world.scheduler._queues._queues:
            threading.Event().wait(0.001)
        while len(world.scheduler._queues._queues["default"]._waiting) < 2:
            threading.Event().wait(0.001)
        world.state.release(blocking)
        assert [each.result(SOON_S) for each in asking] == [["a"], ["a"]]


def test_a_failed_attempt_leaves_an_earlier_reservation_in_force(world):
    world.report(host("a", memory_mb=4096))
    world.place("i1")
    with pytest.raises(NoValidHost):
        world.place("i1", "i2", memory_mb=3072)
    assert world.fleet.cluster("default").table.state(0).free_ram_mb == 3072


def test_more_reservations_than_a_cluster_may_have_are_refused():
    world = World(max_reservations=2)
    world.report(host("a"))
    world.place("i1", "i2")
    with pytest.raises(NoValidHost, match=r"2 reservations already.*max_per_cluster"):
        world.place("i3")
    assert world.place("i1", "i2") == ["a", "a"], "existing reservations are kept"
    world.inventory.release(["i1"])
    assert world.place("i3") == ["a"]
    assert world.fleet.cluster("default").table.state(0).vcpus_used == 2


def test_an_exception_in_a_unit_fails_its_request_only(world, monkeypatch):
    world.report(host("a"))
    broken = world.pipeline.filters[1]

    def passes(hosts, spec):
        raise ZeroDivisionError

    monkeypatch.setattr(broken, "passes", passes, raising=False)
    with pytest.raises(ZeroDivisionError):
        world.ask("i1")
    monkeypatch.undo()
    assert world.place("i2") == ["a"]


def test_expired_reservations_free_capacity(world):
    world.report(host("a", vcpus=1))
    world.place("i1")
    world.clock.advance(world.limits.reservation_ttl_s + 1)
    world.report({"host": "a"})
    assert world.place("i2") == ["a"]
    assert world.reserved() == {"a": ["i2"]}


def test_many_threads_and_workers_fill_a_fleet_exactly():
    world = World(max_batch=8)
    world.report(*(host(f"h{number}", vcpus=1 + number % 4) for number in range(20)))
    capacity = sum(1 + number % 4 for number in range(20))
    workers = [world, world.beside(), world.beside()]

    def ask(number: int) -> bool:
        try:
            workers[number % 3].place(f"i{number}")
        except NoValidHost:
            return False
        return True

    with Threads(12) as pool:
        placed = sum(pool.map(ask, range(capacity + 25)))
    assert placed == capacity
    hosts = world.hosts()
    assert all(each["promised"]["vcpus"] == each["vcpus"] for each in hosts)
