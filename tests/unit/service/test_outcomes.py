"""What the observer is told of requests, holds and promises."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduler_worker.errors import Conflict, NoValidHost, RequestError, StateUnavailable
from scheduler_worker.ports import Put, Seen, Transaction
from scheduler_worker.service.writing import Plan, Writer
from tests.support.services import World, host


@pytest.fixture
def world() -> World:
    return World()


def test_a_placed_request_is_told_once_in_full(world, monkeypatch):
    world.report(host("a"), host("b", vcpus=1))
    acquire, commit = world.state.acquire, world.state.commit

    def slow_acquire(scope, **how):
        world.clock.advance(2)
        return acquire(scope, **how)

    def slow_commit(*arguments, **how):
        world.clock.advance(3)
        return commit(*arguments, **how)

    monkeypatch.setattr(world.state, "acquire", slow_acquire)
    monkeypatch.setattr(world.state, "commit", slow_commit)
    world.ask("i1", "i2", vcpus=2, request_id="r1")
    [told] = world.told.outcomes
    assert (told.request_id, told.result, told.cluster) == ("r1", "placed", "default")
    assert (told.instances, told.hosts, told.repeated) == (2, ("a", "a"), 0)
    assert (told.candidates, told.passed, told.attempts) == (2, 1, 1)
    assert dict(told.rejections)["CoreFilter"] == 1
    assert (told.lock_wait_s, told.hold_s, told.duration_s) == (2, 3, 5)
    promised = world.fleet.cluster("default").promises.values()
    assert {told.token} == {promise.token for promise in promised}
    assert world.told.events == [("granted", "default"), ("ended", "default")]


def test_a_repeated_instance_is_told(world):
    world.report(host("a"))
    world.ask("i1")
    world.ask("i1", "i2")
    assert [each.repeated for each in world.told.outcomes] == [0, 1]


def test_a_rebuild_check_repeats_nothing_and_takes_no_lock(world):
    world.report(host("a"))
    world.ask("i1", scheduler_hints={"_nova_check_type": ["rebuild"]})
    [told] = world.told.outcomes
    assert (told.result, told.cluster, told.repeated) == ("placed", "default", 0)
    assert world.told.events == []


def test_a_refusal_is_told_with_the_filter_that_caused_it(world):
    world.report(host("a", vcpus=1))
    with pytest.raises(NoValidHost):
        world.ask("i1", vcpus=2)
    [told] = world.told.outcomes
    assert (told.result, told.candidates, told.passed) == ("NoValidHost", 1, 0)
    assert told.rejections == (("ComputeFilter", 0), ("CoreFilter", 1))
    assert (told.cluster, told.hosts, told.attempts) == ("default", (), 1)


def test_a_spread_request_names_its_clusters(world):
    world.report(host("a", cluster="one", vcpus=1), host("b", cluster="two", vcpus=1))
    world.ask("i1", "i2")
    [told] = world.told.outcomes
    assert (told.result, told.cluster, sorted(told.hosts)) == ("placed", "one+two", ["a", "b"])
    granted = [event for event in world.told.events if event[0] == "granted"]
    ended = [event for event in world.told.events if event[0] == "ended"]
    assert len(granted) == len(ended)


def test_other_errors_are_told_by_their_names(world, monkeypatch):
    world.report(host("a"))
    with pytest.raises(RequestError):
        world.ask("i1", scheduler_hints={"cluster": ["x"]})
    monkeypatch.setattr(world.pipeline, "decide", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        world.ask("i2")
    world.state.close()
    with pytest.raises(StateUnavailable):
        world.ask("i3")
    told = [each.result for each in world.told.outcomes]
    assert told == ["RequestError", "InternalError", "StateUnavailable"]
    assert world.told.events[-1] == ("state failed",)


def test_a_request_that_gets_no_turn_is_told(world):
    world.report(host("a"))
    blocking = world.state.acquire("default", timeout_s=1, seen=Seen())
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(world.ask, "i1", patience_s=5)
        while "default" not in world.scheduler._lines:
            threading.Event().wait(0.001)
        world.clock.advance(6)
        with pytest.raises(Conflict):
            asking.result(10)
    world.state.release(blocking)
    [told] = world.told.outcomes
    assert (told.result, told.lock_wait_s, told.attempts) == ("ClusterLockTimeout", 6, 0)
    assert world.told.events == [("timed out", "default")]


def test_lost_races_are_told(world, monkeypatch):
    world.report(host("a"))
    other, commit = world.beside(), world.state.commit

    def once(spoil):
        def overtaken(grant, transactions, **keep):
            monkeypatch.setattr(world.state, "commit", commit)
            spoil()
            return commit(grant, transactions, **keep)

        return overtaken

    for spoil in (
        lambda: other.report({"host": "a", "vcpus_used": 0}),
        lambda: world.clock.advance(world.limits.hold_timeout_s + 1),
    ):
        monkeypatch.setattr(world.state, "commit", once(spoil))
        world.ask(f"i{spoil}")
    names = [event[0] for event in world.told.events]
    assert names == [
        *("granted", "conflicted", "ended", "granted", "ended"),
        *("granted", "fenced", "ended", "hold expired", "granted", "ended"),
    ]
    assert [each.attempts for each in world.told.outcomes] == [2, 2]


def test_a_commit_that_fails_ends_its_hold_once(world, monkeypatch):
    world.report(host("a"))

    def broken(grant, transactions, **keep):
        raise StateUnavailable("cable")

    monkeypatch.setattr(world.state, "commit", broken)
    with pytest.raises(StateUnavailable):
        world.ask("i1")
    names = [event[0] for event in world.told.events]
    assert names == ["granted", "ended", "state failed"]


def test_the_ends_of_promises_are_told(world):
    world.report(host("a", vcpus=16), host("gone"))
    for uuid in ("absorbed", "confirmed", "released", "deleted", "expired"):
        world.ask(uuid, force_hosts=["a"])
    world.ask("removed", force_hosts=["gone"])
    world.told.events.clear()
    world.report({"host": "a", "vcpus_used": 1, "instances": [{"uuid": "absorbed"}]})
    world.inventory.confirm(["confirmed", "unknown"])
    world.inventory.release(["released", "released"])
    world.inventory.release(["absorbed"])
    world.inventory.delete_instance("a", "deleted")
    world.inventory.remove_hosts([("gone", None)])
    assert world.told.events == [
        ("absorbed", "default", 1),
        ("confirmed", "default", 1),
        ("released", "default", 1),
        ("released", "default", 1),
        ("removed", "default", 1),
    ]
    world.told.events.clear()
    world.clock.advance(world.limits.promise_ttl_s)
    world.listing.reservations()
    assert world.told.events == [("expired", "default", 2)]


def test_promises_that_move_with_their_host_are_told_as_moved(world):
    world.report(host("a"))
    world.ask("i1")
    world.told.events.clear()
    world.report(host("a", cluster="two"))
    assert world.told.events == [("moved", "default", 1)]
    assert world.promised() == {"a": ["i1"]}


def test_promises_that_are_taken_back_are_told_as_released(world, monkeypatch):
    world.report(host("a", cluster="one", vcpus=1), host("b", cluster="two", vcpus=1))
    commit = world.state.commit

    def only_one(grant, transactions, **keep):
        if grant.scope == "two" and transactions:
            raise StateUnavailable("cable")
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", only_one)
    with pytest.raises(Conflict):
        world.ask("i1", "i2")
    assert ("released", "one", 1) in world.told.events
    assert world.promised() == {}


def test_a_fanout_that_everybody_applies_is_told_once(world):
    replica = world.fleet.cluster("default")
    plan = Plan(Transaction([Put("p:i1@a", None), Put("i:a", b"{}")]), {"released": 1})
    for _ in range(2):
        Writer(world.state, world.told).write(replica, ["a"], lambda *_: plan, once="m1")
    assert world.told.events == [("released", "default", 1)]


def test_a_report_that_the_state_cannot_take_is_told(world):
    world.state.close()
    with pytest.raises(StateUnavailable):
        world.report(host("a"))
    assert world.told.events == [("state failed",)]
