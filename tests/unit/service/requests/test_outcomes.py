"""What is reported to the observer about requests, leases and reservations."""

import logging
from functools import partial

import pytest

from scheduler_worker.errors import Conflict, NoValidHost, RequestError, StateUnavailable
from scheduler_worker.ports import Seen
from tests.support.interrupted import before_next, overtake, raising
from tests.support.patience import SOON_S
from tests.support.services import World, host
from tests.support.threads import in_thread


def test_a_placed_request_is_reported_once_in_full(world, monkeypatch):
    world.report(host("a"), host("b", vcpus=1))
    before_next(monkeypatch, world.state, "acquire", partial(world.clock.advance, 2))
    before_next(monkeypatch, world.state, "commit", partial(world.clock.advance, 3))
    world.ask("i1", "i2", vcpus=2, request_id="r1", global_request_id="g1", project_id="p1")
    [outcome] = world.observed.outcomes
    assert (outcome.request_id, outcome.result, outcome.cluster) == ("r1", "placed", "default")
    assert (outcome.global_request_id, outcome.project_id) == ("g1", "p1")
    assert (outcome.instance_uuids, outcome.reason) == (("i1", "i2"), None)
    assert (outcome.instances, outcome.hosts, outcome.repeated) == (2, ("a", "a"), 0)
    assert (outcome.candidates, outcome.passed, outcome.attempts) == (2, 1, 1)
    assert dict(outcome.rejections)["CoreFilter"] == 1
    assert (outcome.waits.lock_s, outcome.waits.hold_s, outcome.duration_s) == (2, 3, 5)
    lasted = [(phase.name, phase.ended_s - phase.began_s) for phase in outcome.phases]
    assert lasted == [("lock", 2), ("decide", 0), ("commit", 3)]
    reserved = world.fleet.cluster("default").reservations.values()
    assert {outcome.token} == {reservation.token for reservation in reserved}
    assert world.observed.events == [("granted", "default"), ("ended", "default")]


def test_a_refusal_is_reported_with_the_filter_that_caused_it(world):
    world.report(host("a", vcpus=1))
    with pytest.raises(NoValidHost):
        world.ask("i1", vcpus=2)
    [outcome] = world.observed.outcomes
    assert (outcome.result, outcome.candidates, outcome.passed) == ("NoValidHost", 1, 0)
    assert outcome.rejections == (("ComputeFilter", 0), ("CoreFilter", 1))
    assert (outcome.cluster, outcome.hosts, outcome.attempts) == ("default", (), 1)
    assert outcome.instance_uuids == ("i1",)
    assert outcome.reason == "There are not enough hosts available."


def test_other_errors_are_reported_by_name(world, monkeypatch):
    world.report(host("a"))
    with pytest.raises(RequestError):
        world.ask("i1", scheduler_hints={"cluster": ["x"]})
    monkeypatch.setattr(world.pipeline, "decide", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        world.ask("i2")
    world.state.close()
    with pytest.raises(StateUnavailable):
        world.ask("i3")
    results = [each.result for each in world.observed.outcomes]
    assert results == ["RequestError", "InternalError", "StateUnavailable"]
    reasons = [each.reason for each in world.observed.outcomes]
    assert reasons[0].startswith("spec_obj.scheduler_hints.cluster: there is no cluster 'x'")
    assert reasons[1] is None, "what it was is in the trace"
    assert reasons[2]


@pytest.mark.parametrize(
    ("remaining_s", "result", "events"),
    [
        (5, "DeadlineExceeded", []),
        (60, "ClusterLockTimeout", [("timed out", "default")]),
    ],
)
def test_a_request_that_timed_out_in_the_queue_is_reported(remaining_s, result, events):
    world = World(acquire_timeout_s=5.0)
    world.report(host("a"))
    blocking = world.state.acquire("default", timeout_s=1, seen=Seen())
    asking = in_thread(world.ask, "i1", remaining_s=remaining_s)
    world.await_queued()
    world.clock.advance(6)
    with pytest.raises(Conflict):
        asking.result(SOON_S)
    world.state.release(blocking)
    [outcome] = world.observed.outcomes
    assert (outcome.result, outcome.waits.lock_s, outcome.attempts) == (result, 6, 0)
    assert world.observed.events == events


def test_version_conflicts_and_stale_tokens_are_reported(world, monkeypatch):
    world.report(host("a"))
    overtake(monkeypatch, world, {"host": "a", "vcpus_used": 0})
    world.ask("i1")
    expire = partial(world.clock.advance, world.limits.hold_timeout_s + 1)
    before_next(monkeypatch, world.state, "commit", expire)
    world.ask("i2")
    names = [event[0] for event in world.observed.events]
    assert names == [
        *("granted", "conflicted", "ended", "granted", "ended"),
        *("granted", "fenced", "ended", "hold expired", "granted", "ended"),
    ]
    assert [each.attempts for each in world.observed.outcomes] == [2, 2]


def test_the_ends_of_reservations_are_reported(world):
    world.report(host("a", vcpus=16), host("gone"))
    for uuid in ("absorbed", "confirmed", "released", "deleted", "expired"):
        world.ask(uuid, force_hosts=["a"])
    world.ask("removed", force_hosts=["gone"])
    world.observed.events.clear()
    world.report({"host": "a", "vcpus_used": 1, "instances": [{"uuid": "absorbed"}]})
    world.inventory.confirm(["confirmed", "unknown"])
    world.inventory.release(["released", "released"])
    world.inventory.release(["absorbed"])
    world.inventory.delete_instance("a", "deleted")
    world.inventory.remove_hosts([("gone", None)])
    assert world.observed.events == [
        ("absorbed", 1),
        ("confirmed", 1),
        ("released", 1),
        ("released", 1),
        ("removed", 1),
    ]
    world.observed.events.clear()
    world.clock.advance(world.limits.reservation_ttl_s)
    world.reservations()
    assert world.observed.events == [("expired", 2)]


@pytest.fixture
def two_clusters(world) -> World:
    world.report(host("a", cluster="one", vcpus=1), host("b", cluster="two", vcpus=1))
    return world


def refuse_commits_in(world, cluster, monkeypatch, also=lambda: None):
    """The store fails at the commit of a reservation in the cluster."""
    commit = world.state.commit

    def failing(grant, transactions, **keep):
        if grant.scope == cluster and any(each.puts for each in transactions):
            also()
            raise StateUnavailable("cable")
        return commit(grant, transactions, **keep)

    monkeypatch.setattr(world.state, "commit", failing)


def test_reservations_that_cannot_be_taken_back_expire(two_clusters, monkeypatch, caplog):
    world = two_clusters
    changes = world.state.changes

    def outage():
        monkeypatch.setattr(world.state, "changes", raising(StateUnavailable("no store")))

    refuse_commits_in(world, "two", monkeypatch, also=outage)
    with caplog.at_level(logging.WARNING), pytest.raises(StateUnavailable, match="cable"):
        world.ask("i1", "i2")
    [warning] = [each for each in caplog.messages if "taken back" in each]
    assert warning.startswith("Reservations in cluster one could not be taken back and will expire")
    monkeypatch.setattr(world.state, "changes", changes)
    assert world.reserved() == {"a": ["i1"]}
    world.clock.advance(world.limits.reservation_ttl_s)
    assert world.reserved() == {}


def test_a_fanout_that_all_workers_apply_is_counted_once(world):
    world.report(host("a"))
    world.place("i1")
    workers = (world, world.beside())
    for worker in workers:
        worker.inventory.delete_instance("a", "i1", once="m1")
    assert [each.observed.events.count(("released", 1)) for each in workers] == [1, 0]
