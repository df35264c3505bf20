"""Requests that cannot be placed now, but could be later, wait; others are refused at once."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from scheduler_worker.errors import Conflict, NoValidHost, StateUnavailable
from scheduler_worker.model.decisions import Decision
from scheduler_worker.service.requests.waiting import CapacityWaits
from scheduler_worker.waiters import complete
from tests.support.patience import SOON_S, eventually
from tests.support.services import World, host, request
from tests.support.threads import Threads


class Asking:
    """Runs requests in threads; ``waits`` returns when the request has yielded its slot."""

    def __init__(self, world: World, pool: Threads) -> None:
        self.world = world
        self._pool = pool
        self.yielding = threading.Semaphore(0)
        self.back = threading.Semaphore(0)

    def ask(self, *uuids: str, remaining_s: float | None = None, **asked) -> "Future[Decision]":
        selecting = self.world.scheduler.selecting(
            request(*uuids, **asked), remaining_s=remaining_s, yield_slot=self._yield_slot
        )
        return self._pool.submit(complete, selecting)

    def waits(self, *uuids: str, **asked) -> "Future[Decision]":
        asking = self.ask(*uuids, **asked)
        assert self.yielding.acquire(timeout=SOON_S), asking
        return asking

    @contextmanager
    def _yield_slot(self) -> Iterator[None]:
        self.yielding.release()
        yield
        self.back.release()


@pytest.fixture
def world() -> Iterator[World]:
    world = World(wait_timeout_s=20.0)
    yield world
    world.state.close()


@pytest.fixture
def full(world) -> World:
    """Its only host has one vCPU, which is reserved for i1."""
    world.report(host("a", vcpus=1))
    world.place("i1")
    return world


@pytest.fixture
def asking(world) -> Iterator[Asking]:
    pool = Threads(40)
    yield Asking(world, pool)
    world.scheduler.stop_waiting()
    pool.shutdown(wait=False)


def chosen(asking: "Future[Decision]") -> list[str]:
    return [some[0].service_host for some in asking.result(SOON_S).selections]


@pytest.fixture
def checks(monkeypatch) -> "queue.Queue[bool]":
    """The result of each check after a change: whether the request fits now."""
    results: queue.Queue[bool] = queue.Queue()
    fits = CapacityWaits._fits

    def spied(*arguments) -> bool:
        found = fits(*arguments)
        results.put(found)
        return found

    monkeypatch.setattr(CapacityWaits, "_fits", spied)
    return results


@pytest.mark.parametrize("releasing", [World.beside, lambda world: world])
def test_a_released_reservation_lets_a_waiting_request_in(full, asking, releasing):
    waiting = asking.waits("i2")
    assert full.scheduler.waiting == 1
    assert full.scheduler.describe("default")["waiting_for_pending"] == 1
    releasing(full).inventory.release(["i1"])
    assert chosen(waiting) == ["a"]
    assert full.scheduler.waiting == 0
    eventually(lambda: full.scheduler.describe("default")["waiting_for_pending"] == 0)
    assert asking.back.acquire(blocking=False), "it has its slot again"


def test_an_expired_reservation_lets_a_waiting_request_in(asking, full):
    full.clock.advance(full.limits.reservation_ttl_s - 5)
    full.report({"host": "a"})
    waiting = asking.waits("i2")
    full.clock.advance(6)
    assert chosen(waiting) == ["a"]


@pytest.mark.parametrize("asked", [{"vcpus": 5}, {"ignore_hosts": ["a"]}])
def test_a_request_that_would_not_fit_even_then_fails_at_once(world, asked):
    world.report(host("a"))
    world.place("i1", vcpus=4)
    with pytest.raises(NoValidHost):
        world.place("i2", **asked)


def test_a_full_cluster_without_reservations_refuses_at_once(world):
    world.report(host("a", vcpus_used=4))
    with pytest.raises(NoValidHost):
        world.place("i1")


def test_resources_of_an_existing_instance_are_not_waited_for(world, asking):
    world.report(host("a", vcpus=2))
    world.place("i1")
    world.place("i2")
    world.inventory.confirm(["i1"])
    with pytest.raises(NoValidHost):
        world.place("i3", vcpus=2)
    waiting = asking.waits("i3")
    world.inventory.update_instances("a", {"i2": {"uuid": "i2"}})
    with pytest.raises(NoValidHost):
        waiting.result(SOON_S)


def test_waiting_ends_with_the_last_refusal(full, asking):
    waiting = asking.waits("i2")
    full.clock.advance(21)
    with pytest.raises(NoValidHost, match="not enough hosts") as refused:
        waiting.result(SOON_S)
    steps = [(each.name, each.hosts_out) for each in refused.value.diagnosis.filters]
    assert steps == [("ComputeFilter", 1), ("CoreFilter", 0)]
    assert full.observed.outcomes[-1].waits.pending_s == 21


def test_a_failed_attempt_does_not_renew_the_timeout(full, asking, monkeypatch):
    waiting = asking.waits("i2")
    full.clock.advance(15)
    monkeypatch.setattr(CapacityWaits, "_fits", lambda *_: monkeypatch.undo() or True)
    full.report(host("b", memory_mb=1))  # a change of capacity, so that it checks
    assert asking.yielding.acquire(timeout=SOON_S), "it waits once more"
    full.clock.advance(6)
    with pytest.raises(NoValidHost):
        waiting.result(SOON_S)
    assert full.observed.outcomes[-1].waits.pending_s == 21


def test_a_change_that_does_not_help_does_not_acquire_the_lock(world, asking, checks):
    world.report(host("a", vcpus=1), host("b", vcpus=1, vcpus_used=1))
    world.place("i1")
    waiting = asking.waits("i2")
    world.beside().report({"host": "b", "vcpus_used": 1})
    assert checks.get(timeout=SOON_S) is False
    before = world.observed.events.count(("granted", "default"))
    world.inventory.release(["i1"])
    assert chosen(waiting) == ["a"]
    assert world.observed.events.count(("granted", "default")) == before + 1


def test_too_many_waiting_fail_at_once(asking):
    crowded = World(wait_timeout_s=20.0, max_waiting=1)
    crowded.report(host("a", vcpus=1))
    crowded.place("i1")
    asking.world = crowded
    waiting = asking.waits("i2")
    with pytest.raises(NoValidHost):
        crowded.place("i3")
    crowded.scheduler.stop_waiting()
    with pytest.raises(Conflict):
        waiting.result(SOON_S)


@pytest.mark.parametrize("present", [["i2"], []])
def test_a_stop_ends_present_and_future_waits(full, asking, present):
    waiting = [asking.waits(each) for each in present]
    full.scheduler.stop_waiting()
    for each in (*waiting, asking.ask("i3")):
        with pytest.raises(Conflict, match="The worker stops"):
            each.result(SOON_S)
    assert full.scheduler.waiting == 0


def test_a_request_waits_for_half_of_its_callers_time_even_behind_a_patient_one(asking, full):
    """The other half is for the next attempt and for the answer."""
    first, second = asking.waits("i2"), asking.waits("i3", remaining_s=4)
    full.clock.advance(2)
    with pytest.raises(NoValidHost):
        second.result(SOON_S)
    assert not first.done()


def test_a_lost_store_ends_the_wait(full, asking):
    waiting = asking.waits("i2")
    full.state.close()
    with pytest.raises(StateUnavailable):
        waiting.result(SOON_S)


def test_several_instances_wait_for_capacity_for_all(world, asking, checks):
    world.report(host("a", vcpus=1), host("b", vcpus=1), host("c", vcpus=1))
    world.place("i1", "i2")
    waiting = asking.waits("j1", "j2", "j3")
    world.inventory.release(["i1"])
    assert checks.get(timeout=SOON_S) is False
    world.inventory.release(["i2"])
    assert sorted(chosen(waiting)) == ["a", "b", "c"]


def test_a_group_waits_for_its_other_members(world, asking):
    group = {"policy": "anti-affinity", "members": ["i1", "i2"], "hosts": []}
    world.report(host("a"))
    world.place("i1", instance_group=group)
    waiting = asking.waits("i2", instance_group=group)
    world.inventory.release(["i1"])
    assert chosen(waiting) == ["a"]


def test_the_cluster_that_could_take_the_request_is_watched(world, asking):
    world.report(host("a", cluster="one", vcpus_used=4), host("b", cluster="two", vcpus=1))
    world.place("i1")
    waiting = asking.waits("i2")
    world.inventory.release(["i1"])
    assert chosen(waiting) == ["b"]


def test_instances_wait_for_capacity_in_several_clusters(world, asking):
    world.report(host("a", cluster="one", vcpus=1), host("b", cluster="two", vcpus=1))
    world.place("i1")
    waiting = asking.waits("j1", "j2")
    world.inventory.release(["i1"])
    assert sorted(chosen(waiting)) == ["a", "b"]


def test_one_of_many_waiting_requests_gets_the_capacity(full, asking):
    waiting = [asking.waits(f"j{number}") for number in range(30)]
    full.inventory.release(["i1"])
    done = queue.Queue()
    for each in waiting:
        each.add_done_callback(done.put)
    assert chosen(done.get(timeout=SOON_S)) == ["a"]
    full.scheduler.stop_waiting()
    for _ in waiting[1:]:
        with pytest.raises(Conflict):
            done.get(timeout=SOON_S).result()
    assert sum(map(len, full.reserved().values())) == 1


@pytest.mark.parametrize("is_pending", [True, False])
def test_a_check_restores_the_reservation_that_it_replaced(is_pending):
    impatient = World()
    impatient.report(host("a"))
    impatient.place("i1", vcpus=2)
    if not is_pending:
        impatient.inventory.confirm(["i1"])
    impatient.place("other", vcpus=1)
    replica = impatient.fleet.cluster("default")
    with replica.lock:
        assert impatient.scheduler._capacity._fits([replica], request("i1", vcpus=1))
        assert impatient.scheduler._capacity._would_fit([replica], request("i1", vcpus=1))
        assert replica.table.state(0).vcpus_used == 3
        assert replica.table.without_pending().state(0).vcpus_used == (0 if is_pending else 2)


def test_a_release_between_the_two_checks_is_noticed(full, asking, monkeypatch):
    checks = []
    fits = CapacityWaits._fits

    def check_before_release(waiters, clusters, asked):
        checks.append(fits(waiters, clusters, asked))
        if len(checks) == 1:
            full.inventory.release(["i1"])
        return checks[-1]

    monkeypatch.setattr(CapacityWaits, "_fits", check_before_release)
    waiting = asking.waits("i2")
    full.report(host("b", memory_mb=1))
    assert chosen(waiting) == ["a"]
    assert checks[0] is False
