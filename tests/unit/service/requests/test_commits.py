"""Commits: version conflicts, expired leases, failures of the store, limits."""

import pytest

from scheduler_worker.errors import Conflict, NoValidHost, StateUnavailable
from scheduler_worker.ports import Seen
from scheduler_worker.scheduling.filters.numa_topology import (
    NUMATopologyFilter,
    PciPassthroughFilter,
)
from tests.support.interrupted import before_next, overtake, raising
from tests.support.patience import SOON_S
from tests.support.services import World, host
from tests.support.threads import Threads
from tests.support.topologies import asked, host_cell, instance_cell, pages

UNCHANGED = {"host": "a", "vcpus_used": 0}
POOLS = [{"vendor_id": "8086", "product_id": "1520", "numa_node": None, "count": 1, "tags": {}}]
CELL = host_cell(cores=4, mempages=pages((4, 2**20), (2048, 768)))
DEVICE = {"pci_requests": {"requests": [
    {"request_id": "x", "alias_name": "a", "count": 1, "spec": [{"vendor_id": "8086"}]}
]}}  # fmt: skip
PAGES = {"numa_topology": asked(instance_cell(shared=1, pagesize=2048))}


def used_vcpus(world: World) -> int:
    return world.fleet.cluster("default").table.state(0).vcpus_used


def test_a_version_conflict_at_each_attempt_is_a_conflict(world, monkeypatch):
    world.report(host("a"))
    overtake(monkeypatch, world, *[UNCHANGED] * 8)
    with pytest.raises(Conflict, match="changed during each of 8 attempts"):
        world.ask("i1")
    assert world.reserved() == {}


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_the_last_attempt_that_is_allowed_may_succeed(monkeypatch, attempts):
    world = World(max_attempts_to_commit=attempts)
    world.report(host("a"))
    overtake(monkeypatch, world, *[UNCHANGED] * (attempts - 1))
    assert world.place("i1") == ["a"]
    assert world.observed.outcomes[-1].attempts == attempts
    assert world.reserved() == {"a": ["i1"]}


def test_an_expired_lease_costs_another_attempt(world, monkeypatch):
    world.report(host("a", vcpus=1))
    other = world.beside()

    def pause():
        world.clock.advance(world.limits.hold_timeout_s + 1)
        assert other.place("thief") == ["a"]

    before_next(monkeypatch, world.state, "commit", pause)
    with pytest.raises(NoValidHost):
        world.ask("i1")
    assert world.reserved() == {"a": ["thief"]}
    assert used_vcpus(world) == 1


@pytest.mark.parametrize("wanted", [DEVICE, PAGES], ids=["device", "huge pages"])
def test_two_workers_promise_a_device_or_a_huge_page_once(monkeypatch, wanted):
    world = World(filters=(NUMATopologyFilter, PciPassthroughFilter))
    some = {"numa_topology": {"cells": [CELL]}, "pci_device_pools": POOLS}
    world.report(*(host(name, **some) for name in "ab"))
    other = world.beside()

    def pause():
        world.clock.advance(world.limits.hold_timeout_s + 1)
        other.place("thief", **wanted)

    before_next(monkeypatch, world.state, "commit", pause)
    world.place("late", **wanted)
    assert sorted(world.reserved()) == ["a", "b"]
    for worker in (world, other):
        with pytest.raises(NoValidHost):
            worker.ask("third", **wanted)
    world.inventory.release(["thief"])
    assert other.place("third", **wanted)


def test_a_failed_commit_gives_the_claims_back_and_ends_its_lease_once(world, monkeypatch):
    world.report(host("a"))
    monkeypatch.setattr(world.state, "commit", raising(StateUnavailable("cable")))
    with pytest.raises(StateUnavailable, match="cable"):
        world.ask("i1")
    monkeypatch.undo()
    assert [event[0] for event in world.observed.events] == ["granted", "ended"]
    assert used_vcpus(world) == 0
    assert world.place("i2") == ["a"]


def test_a_refused_claim_restores_the_reservation_that_it_replaced(world, monkeypatch):
    world.report(host("a", memory_mb=4096))
    world.place("i1", memory_mb=1024)
    overtake(monkeypatch, world, {"host": "a", "memory_mb": 2048})
    with pytest.raises(NoValidHost):
        world.place("i1", memory_mb=3072)
    assert world.fleet.cluster("default").table.state(0).free_ram_mb == 2048 - 1024
    with pytest.raises(NoValidHost):
        world.place("i2", memory_mb=2048)
    assert world.reserved() == {"a": ["i1"]}


def test_where_nothing_was_to_be_written_a_lease_that_is_not_released_expires(world, monkeypatch):
    world.report(host("a"))
    world.place("i1")
    monkeypatch.setattr(world.state, "release", raising(StateUnavailable("away")))
    with pytest.raises(NoValidHost):
        world.place("i2", vcpus=99)
    world.clock.advance(world.limits.hold_timeout_s + 1)
    assert world.place("i1") == ["a"]
    events = world.observed.events
    assert events.count(("granted", "default")) == events.count(("ended", "default")) == 3
    assert world.scheduler.describe("default")["token"] is None
    world.clock.advance(world.limits.hold_timeout_s + 1)
    assert world.place("i2") == ["a"]


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
    acquire, boosts_s = world.state.acquire, []

    def spied(scope, **how):
        boosts_s.append(how["priority_boost_s"])
        return acquire(scope, **how)

    monkeypatch.setattr(world.state, "acquire", spied)
    world.ask("i1", **asked)
    assert boosts_s == [priority_boost_s]


def test_a_refusal_stands_only_if_the_claims_before_it_were_reserved(world, monkeypatch):
    """Both are decided under one lease, and the host grows before the commit."""
    world.report(host("a", vcpus=1))
    overtake(monkeypatch, world, {"host": "a", "vcpus": 2})
    blocking = world.state.acquire("default", timeout_s=1, seen=Seen())
    with Threads(2) as pool:
        asking = [pool.submit(world.place, each) for each in ("i1", "i2")]
        world.await_queued(2)
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
    assert used_vcpus(world) == 2
