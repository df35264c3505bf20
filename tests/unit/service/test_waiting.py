"""Pending first: who cannot be placed now, and could be later, waits; nobody else does."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from scheduler_worker.errors import Conflict, NoValidHost, StateUnavailable
from scheduler_worker.model.decisions import Decision
from scheduler_worker.pauses import complete
from scheduler_worker.service.waiting import WaitingRoom
from tests.support.services import World, host, request

PATIENCE_S = 10.0


class Asking:
    """Requests in threads of their own; ``waits`` returns when one has stepped aside."""

    def __init__(self, world: World, pool: ThreadPoolExecutor) -> None:
        self.world = world
        self._pool = pool
        self._aside = threading.Semaphore(0)
        self.back = threading.Semaphore(0)

    def ask(self, *uuids: str, patience_s: float | None = None, **asked) -> "Future[Decision]":
        selecting = self.world.scheduler.selecting(
            request(*uuids, **asked), patience_s=patience_s, step_aside=self._step_aside
        )
        return self._pool.submit(complete, selecting)

    def waits(self, *uuids: str, **asked) -> "Future[Decision]":
        asking = self.ask(*uuids, **asked)
        assert self._aside.acquire(timeout=PATIENCE_S), asking
        return asking

    @contextmanager
    def _step_aside(self) -> Iterator[None]:
        self._aside.release()
        yield
        self.back.release()


@pytest.fixture
def world() -> Iterator[World]:
    world = World(wait_timeout_s=20.0)
    yield world
    world.state.close()


@pytest.fixture
def asking(world) -> Iterator[Asking]:
    with ThreadPoolExecutor(40) as pool:
        yield Asking(world, pool)
        world.scheduler.stop_waiting()


def chosen(asking: "Future[Decision]") -> list[str]:
    return [some[0].service_host for some in asking.result(PATIENCE_S).selections]


@pytest.fixture
def looks(monkeypatch) -> "queue.Queue[bool]":
    """What each look said, after a change: whether the request fits now."""
    said: queue.Queue[bool] = queue.Queue()
    fits = WaitingRoom._fits

    def spied(*arguments) -> bool:
        found = fits(*arguments)
        said.put(found)
        return found

    monkeypatch.setattr(WaitingRoom, "_fits", spied)
    return said


def test_a_released_promise_lets_the_next_one_in(world, asking):
    world.report(host("a", vcpus=1))
    world.place("i1")
    waiting = asking.waits("i2")
    assert world.scheduler.waiting == 1
    world.inventory.release(["i1"])
    assert chosen(waiting) == ["a"]
    assert world.scheduler.waiting == 0
    assert asking.back.acquire(blocking=False), "it has its slot again"


def test_a_release_by_another_worker_is_noticed(world, asking):
    world.report(host("a", vcpus=1))
    world.place("i1")
    waiting = asking.waits("i2")
    world.beside().inventory.release(["i1"])
    assert chosen(waiting) == ["a"]


def test_an_expired_promise_lets_the_next_one_in(asking, world):
    world.report(host("a", vcpus=1))
    world.place("i1")
    world.clock.advance(world.limits.promise_ttl_s - 5)
    world.report({"host": "a"})
    waiting = asking.waits("i2")
    world.clock.advance(6)
    assert chosen(waiting) == ["a"]


@pytest.mark.parametrize("asked", [{"vcpus": 5}, {"ignore_hosts": ["a"]}])
def test_what_would_not_fit_even_then_fails_at_once(world, asked):
    world.report(host("a"))
    world.place("i1", vcpus=4)
    with pytest.raises(NoValidHost):
        world.place("i2", **asked)


def test_a_full_cluster_without_promises_fails_at_once(world):
    world.report(host("a", vcpus_used=4))
    with pytest.raises(NoValidHost):
        world.place("i1")


def test_an_instance_that_exists_will_not_be_given_back(world, asking):
    world.report(host("a", vcpus=2))
    world.place("i1")
    world.place("i2")
    world.inventory.confirm(["i1"])
    with pytest.raises(NoValidHost):
        world.place("i3", vcpus=2)
    waiting = asking.waits("i3")
    world.inventory.update_instances("a", {"i2": {"uuid": "i2"}})
    with pytest.raises(NoValidHost):
        waiting.result(PATIENCE_S)


def test_waiting_ends_with_the_last_refusal(world, asking):
    world.report(host("a", vcpus=1))
    world.place("i1")
    waiting = asking.waits("i2")
    world.clock.advance(21)
    with pytest.raises(NoValidHost, match="not enough hosts") as refused:
        waiting.result(PATIENCE_S)
    steps = [(each.name, each.hosts_out) for each in refused.value.diagnosis.filters]
    assert steps == [("ComputeFilter", 1), ("CoreFilter", 0)]
    assert world.told.outcomes[-1].waited_for_pending_s == 21


def test_nobody_waits_longer_than_the_caller_does(world, asking):
    world.report(host("a", vcpus=1))
    world.place("i1")
    waiting = asking.waits("i2", patience_s=2)
    world.clock.advance(3)
    with pytest.raises(NoValidHost):
        waiting.result(PATIENCE_S)


def test_a_change_that_does_not_help_costs_no_turn_at_the_lock(world, asking, looks):
    world.report(host("a", vcpus=1), host("b", vcpus=1, vcpus_used=1))
    world.place("i1")
    waiting = asking.waits("i2")
    world.beside().report({"host": "b", "vcpus_used": 1})
    assert looks.get(timeout=PATIENCE_S) is False
    before = world.told.events.count(("granted", "default"))
    world.inventory.release(["i1"])
    assert chosen(waiting) == ["a"]
    assert world.told.events.count(("granted", "default")) == before + 1


def test_too_many_waiting_fail_at_once(asking, world):
    crowded = World(wait_timeout_s=20.0, max_waiting=1)
    crowded.report(host("a", vcpus=1))
    crowded.place("i1")
    asking.world = crowded
    waiting = asking.waits("i2")
    with pytest.raises(NoValidHost):
        crowded.place("i3")
    crowded.scheduler.stop_waiting()
    with pytest.raises(Conflict):
        waiting.result(PATIENCE_S)


def test_a_stop_ends_all_waits_and_those_to_come(world, asking):
    world.report(host("a", vcpus=1))
    world.place("i1")
    waiting = asking.waits("i2")
    world.scheduler.stop_waiting()
    for each in (waiting, asking.ask("i3")):
        with pytest.raises(Conflict, match="The worker stops"):
            each.result(PATIENCE_S)
    assert world.scheduler.waiting == 0


def test_a_lost_store_ends_the_wait(world, asking):
    world.report(host("a", vcpus=1))
    world.place("i1")
    waiting = asking.waits("i2")
    world.state.close()
    with pytest.raises(StateUnavailable):
        waiting.result(PATIENCE_S)
    assert ("state failed",) in world.told.events


def test_several_instances_wait_for_room_for_all(world, asking, looks):
    world.report(host("a", vcpus=1), host("b", vcpus=1), host("c", vcpus=1))
    world.place("i1", "i2")
    waiting = asking.waits("j1", "j2", "j3")
    world.inventory.release(["i1"])
    assert looks.get(timeout=PATIENCE_S) is False
    world.inventory.release(["i2"])
    assert sorted(chosen(waiting)) == ["a", "b", "c"]


def test_a_group_waits_for_its_other_members(world, asking):
    group = {"policy": "anti-affinity", "members": ["i1", "i2"], "hosts": []}
    world.report(host("a"))
    world.place("i1", instance_group=group)
    waiting = asking.waits("i2", instance_group=group)
    world.inventory.release(["i1"])
    assert chosen(waiting) == ["a"]


def test_the_cluster_with_hope_is_watched(world, asking):
    world.report(host("a", cluster="one", vcpus_used=4), host("b", cluster="two", vcpus=1))
    world.place("i1")
    waiting = asking.waits("i2")
    world.inventory.release(["i1"])
    assert chosen(waiting) == ["b"]


def test_instances_wait_for_room_in_several_clusters(world, asking):
    world.report(host("a", cluster="one", vcpus=1), host("b", cluster="two", vcpus=1))
    world.place("i1")
    waiting = asking.waits("j1", "j2")
    world.inventory.release(["i1"])
    assert sorted(chosen(waiting)) == ["a", "b"]


def test_of_many_who_wait_one_gets_the_room(world, asking):
    world.report(host("a", vcpus=1))
    world.place("i1")
    waiting = [asking.waits(f"j{number}") for number in range(30)]
    world.inventory.release(["i1"])
    done = queue.Queue()
    for each in waiting:
        each.add_done_callback(done.put)
    assert chosen(done.get(timeout=PATIENCE_S)) == ["a"]
    world.scheduler.stop_waiting()
    for _ in waiting[1:]:
        with pytest.raises(Conflict):
            done.get(timeout=PATIENCE_S).result()
    assert sum(map(len, world.promised().values())) == 1


def test_a_look_leaves_nothing_behind(world):
    impatient = World()
    impatient.report(host("a", vcpus=2))
    impatient.place("i1", vcpus=2)
    replica = impatient.fleet.cluster("default")
    with replica.lock:
        assert impatient.scheduler._room._would_fit([replica], request("i2", "i3"))
        assert not impatient.scheduler._room._fits([replica], request("i2"))
        assert replica.table.state(0).vcpus_used == 2
        assert replica.table.without_pending().state(0).vcpus_used == 0


def test_what_is_given_back_between_two_looks_is_seen(world, asking, monkeypatch):
    world.report(host("a", vcpus=1))
    world.place("i1")
    looks = []
    look = WaitingRoom._fits

    def looks_just_before(room, clusters, asked):
        looks.append(look(room, clusters, asked))
        if len(looks) == 1:
            world.inventory.release(["i1"])
        return looks[-1]

    monkeypatch.setattr(WaitingRoom, "_fits", looks_just_before)
    waiting = asking.waits("i2")
    world.report(host("b", memory_mb=1))
    assert chosen(waiting) == ["a"]
    assert looks[0] is False
