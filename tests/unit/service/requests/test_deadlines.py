"""Nothing stays reserved for a caller that no longer waits for the answer."""

import numpy as np
import pytest

from scheduler_worker.errors import DeadlineExceeded
from scheduler_worker.ports import Seen
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.service.state import intents
from tests.support.patience import SOON_S
from tests.support.services import FILTERS, World, host
from tests.support.threads import Threads, in_thread


class Slow(Filter):
    """Takes as long as the request's hint says, on the world's clock."""

    clock = None

    def passes(self, hosts, spec):
        self.clock.advance(float(spec.hint("takes_s") or 0.0))  # type: ignore[attr-defined]
        return np.ones(len(hosts), bool)


@pytest.fixture
def world(monkeypatch):
    world = World(filters=(Slow, *FILTERS), hold_timeout_s=1000.0, ordering="fifo")
    monkeypatch.setattr(Slow, "clock", world.clock)
    world.report(host("a"), host("b"))
    return world


def takes(seconds: float) -> dict:
    return {"scheduler_hints": {"takes_s": [str(seconds)]}}


def late_commits(world, monkeypatch, meanwhile=lambda: None):
    """Let each commit of the store take five seconds; something else happens during the first."""
    commit, acts = world.state.commit, iter([meanwhile])

    def slow(*arguments, **how):
        written = commit(*arguments, **how)
        next(acts, lambda: None)()
        world.clock.advance(5)
        return written

    monkeypatch.setattr(world.state, "commit", slow)


def test_a_decision_after_the_callers_deadline_is_not_reserved(world):
    with pytest.raises(DeadlineExceeded):
        world.ask("i1", remaining_s=4, **takes(5))
    assert world.reserved() == {}
    assert world.observed.outcomes[-1].result == "DeadlineExceeded"
    assert world.place("i2", vcpus=4) and world.place("i3", vcpus=4), "its host is free again"


def test_a_request_that_cannot_be_decided_in_time_is_not_started(world):
    world.ask("i1", **takes(5))
    with pytest.raises(DeadlineExceeded):
        world.ask("i2", remaining_s=4, **takes(0))
    assert world.observed.outcomes[-1].attempts == 0
    assert world.reserved() == {"a": ["i1"]} or world.reserved() == {"b": ["i1"]}
    world.clock.advance(11)
    assert world.ask("i2", remaining_s=4, **takes(0)).claims, "slow decisions are forgotten"


def test_a_reservation_after_the_callers_deadline_is_taken_back(world, monkeypatch):
    late_commits(world, monkeypatch)
    with pytest.raises(DeadlineExceeded):
        world.ask("i1", "i2", remaining_s=4)
    assert world.reserved() == {}
    assert ("released", 2) in world.observed.events
    assert world.scheduler.unanswered() == []


def test_deadlines_hold_for_multi_cluster_placement(world, monkeypatch):
    world.report(host("c", cluster="other"), host("d", cluster="other"))
    with pytest.raises(DeadlineExceeded):
        world.ask("i1", "i2", "i3", remaining_s=4, vcpus=4, **takes(5))
    assert world.reserved() == {}
    late_commits(world, monkeypatch)
    world.clock.advance(20)
    with pytest.raises(DeadlineExceeded):
        world.ask("i1", "i2", "i3", remaining_s=4, vcpus=4)
    assert world.reserved() == {}


def test_locks_are_not_kept_while_another_clusters_is_awaited(monkeypatch):
    """Half of the first lease is left for the decision; otherwise all locks are acquired anew."""
    world = World(hold_timeout_s=10.0)
    world.report(host("a", cluster="one", vcpus=1), host("b", cluster="two", vcpus=1))
    acquire, timeouts_s = world.state.acquire, []

    def contended(scope, *, timeout_s, **how):
        if scope != "two":
            return acquire(scope, timeout_s=timeout_s, **how)
        timeouts_s.append(timeout_s)
        if len(timeouts_s) != 2:  # the first is the attempt to place all in this cluster
            return acquire(scope, timeout_s=timeout_s, **how)
        others = acquire(scope, timeout_s=0, **how)
        world.clock.advance(timeout_s)
        try:
            return acquire(scope, timeout_s=0, **how)
        finally:
            world.state.release(others)

    monkeypatch.setattr(world.state, "acquire", contended)
    world.place("i1", "i2")
    assert timeouts_s[1] == world.limits.hold_timeout_s / 2 < timeouts_s[0]
    events = [event for event in world.observed.events if event[1] == "one"]
    assert events[-4:] == [("granted", "one"), ("ended", "one")] * 2
    assert not any(event[0] in {"hold expired", "fenced"} for event in world.observed.events)


def test_a_reservation_answered_to_another_copy_is_not_taken_back(world, monkeypatch):
    other, answered = world.beside(), []
    late_commits(world, monkeypatch, lambda: answered.extend(other.place("i1", request_id="same")))
    with pytest.raises(DeadlineExceeded):
        world.ask("i1", remaining_s=4, request_id="same")
    assert world.reserved() == {answered[0]: ["i1"]}


def test_an_announced_reservation_is_not_taken_back(world, monkeypatch):
    late_commits(world, monkeypatch, lambda: world.beside().inventory.confirm(["i1"]))
    with pytest.raises(DeadlineExceeded):
        world.ask("i1", remaining_s=4)
    assert sum(world.reserved().values(), []) == ["i1"]


def test_a_reservation_that_is_answered_again_is_renewed(world):
    world.ask("i1", request_id="same")
    world.clock.advance(world.limits.reservation_ttl_s - 1)
    assert not world.ask("i1", request_id="same").claims
    world.clock.advance(world.limits.reservation_ttl_s - 1)
    assert sum(world.reserved().values(), []) == ["i1"]
    world.clock.advance(2)
    assert world.reserved() == {}


def test_a_reservation_that_is_released_while_it_is_answered_again_is_made_anew(world, monkeypatch):
    world.ask("i1", request_id="same")
    other, acquire = world.beside(), world.state.acquire
    other.place("i2")  # so that the lock is acquired again

    def acquire_then_release(*arguments, **how):
        grant = acquire(*arguments, **how)
        other.inventory.release(["i1"])
        return grant

    monkeypatch.setattr(world.state, "acquire", acquire_then_release)
    assert world.ask("i1", request_id="same").claims
    assert sorted(sum(world.reserved().values(), [])) == ["i1", "i2"]


def test_a_batch_is_committed_while_its_callers_wait(world):
    """Otherwise the decision of the last would make the first late."""
    world.ask("i0", **takes(1))
    held = world.state.acquire("default", timeout_s=1, seen=world.fleet.cluster("default").seen)
    with Threads(4) as pool:
        asked = []
        for number in range(4):
            name = f"i{number + 1}"
            asked.append(pool.submit(world.ask, name, remaining_s=2.5, **takes(1)))
            world.await_queued(number + 1)
        world.state.release(held)
        results = [each.exception(SOON_S) for each in asked]
    assert [type(each) for each in results] == [
        type(None), type(None), DeadlineExceeded, DeadlineExceeded,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first_s", "second_s"), [(5, 0), (0, 5)], ids=["before its turn", "in the same batch"]
)
def test_a_request_refused_only_for_a_late_one_is_decided_again(world, first_s, second_s):
    held = world.state.acquire("default", timeout_s=1, seen=world.fleet.cluster("default").seen)
    with Threads(2) as pool:
        late = pool.submit(world.ask, "i1", "i2", remaining_s=4, vcpus=3, **takes(first_s))
        world.await_queued()
        other = pool.submit(world.ask, "i3", "i4", "i5", **takes(second_s))
        world.await_queued(2)
        world.state.release(held)
        with pytest.raises(DeadlineExceeded):
            late.result(SOON_S)
        assert other.result(SOON_S).claims


def test_a_cluster_that_comes_while_a_request_is_queued_makes_it_declare_where_it_is_decided(world):
    """Or a copy of it, at a worker that knew the cluster earlier, gets a host there."""
    held = world.state.acquire("default", timeout_s=1, seen=world.fleet.cluster("default").seen)
    asked = in_thread(world.ask, "i1")
    world.await_queued()
    world.report(host("c", cluster="other"))
    world.state.release(held)
    assert asked.result(SOON_S).claims
    declared = world.state.changes(intents.SCOPE, Seen()).entries
    assert [(each.key, each.value) for each in declared] == [("w:i1", b"default")]
