"""The cluster queue: one leader at a time, group commits, and errors for whom they concern."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from scheduler_worker.errors import (
    ClusterLockTimeout,
    NoValidHost,
    StaleFencingToken,
    StateUnavailable,
)
from scheduler_worker.ports import LockGrant, Seen
from scheduler_worker.service.requests.queue import RecentDurations
from scheduler_worker.service.state import waits
from tests.support.clock import follow
from tests.support.interrupted import raising
from tests.support.patience import SOON_S
from tests.support.services import World, host
from tests.support.threads import Threads


class QueueWorld(World):
    """Records the lock's use: ``batches`` has the instances of each commit, in their order."""

    def __init__(self, **limits) -> None:
        super().__init__(**limits)
        self.acquired = 0
        self.batches: list[list[str]] = []
        self._acquire, self._commit = self.state.acquire, self.state.commit
        self.state.acquire, self.state.commit = self._counted_acquire, self._recorded_commit
        self.report(host("a", vcpus=1000, memory_mb=10**7))

    def block(self) -> LockGrant:
        """Take the cluster's lock, as another worker would."""
        return self._acquire("default", timeout_s=1, seen=Seen())

    def _counted_acquire(self, *arguments, **options):
        self.acquired += 1
        return self._acquire(*arguments, **options)

    def _recorded_commit(self, grant, transactions, **options):
        keys = [put.key for each in transactions for put in each.puts]
        self.batches.append([key.removeprefix("p:").split("@")[0] for key in keys])
        return self._commit(grant, transactions, **options)


@pytest.fixture
def pool() -> Iterator[Threads]:
    pool = Threads(10)
    yield pool
    pool.shutdown(wait=False)


@pytest.fixture
def make(pool) -> Iterator[Callable[..., QueueWorld]]:
    """Makes worlds, and ends what waits in them."""
    worlds: list[QueueWorld] = []

    def make(**limits) -> QueueWorld:
        worlds.append(QueueWorld(**limits))
        return worlds[-1]

    yield make
    for world in worlds:
        world.state.close()


def queue_up(world: QueueWorld, pool: Threads, *names: str, **spec) -> list[Future]:
    """Let requests join the queue, one after the other."""
    asking = []
    for name in names:
        before = world.scheduler.describe("default")["in_line"]
        asking.append(pool.submit(world.place, name, **spec))
        world.await_queued(before + 1)  # type: ignore[operator]
    return asking


def test_requests_that_join_while_the_leader_waits_share_its_commit_up_to_the_bound(make, pool):
    world = make(max_batch=4, ordering="fifo")
    blocking = world.block()
    names = [f"i{number}" for number in range(9)]
    asking = queue_up(world, pool, *names)
    world.state.release(blocking)
    assert [each.result(SOON_S) for each in asking] == [["a"]] * 9
    assert world.batches == [names[:4], names[4:8], names[8:]]


def test_the_lease_is_kept_for_the_next_leader_of_the_process(make, pool):
    world = make(max_batch=1)
    blocking = world.block()
    asking = queue_up(world, pool, "i1", "i2", "i3")
    world.state.release(blocking)
    assert [each.result(SOON_S) for each in asking] == [["a"]] * 3
    assert (world.acquired, len(world.batches)) == (1, 3)
    assert world.observed.events.count(("ended", "default")) == 1


def test_a_lease_that_was_kept_is_handed_on_if_nobody_waits_any_more(make, pool, monkeypatch):
    follow(monkeypatch, waits)
    world = make(acquire_timeout_s=5.0, hold_timeout_s=100.0, max_batch=1, ordering="fifo")
    blocking, commit, was_kept = world.block(), world.state.commit, []
    asking, late = queue_up(world, pool, "i1", "i2")

    def committed(grant, transactions, **options):
        written = commit(grant, transactions, **options)
        was_kept.append(written.kept)
        world.clock.advance(5.1)
        late.exception(SOON_S)
        return written

    monkeypatch.setattr(world.state, "commit", committed)
    world.state.release(blocking)
    assert asking.result(SOON_S) == ["a"]
    assert (was_kept, type(late.exception(SOON_S))) == ([True], ClusterLockTimeout)
    world.state.release(pool.submit(world.block).result(SOON_S))


def test_a_request_that_was_not_settled_goes_back_to_its_place(make, pool, monkeypatch):
    world = make(max_batch=1, ordering="fifo")
    blocking, commit, refusals = world.block(), world.state.commit, iter(range(2))

    def fenced(grant, transactions, **options):
        if next(refusals, None) is not None:
            world.batches.append(["refused"])
            world.state.release(grant)
            raise StaleFencingToken("expired")
        return commit(grant, transactions, **options)

    monkeypatch.setattr(world.state, "commit", fenced)
    asking = queue_up(world, pool, "i1", "i2")
    world.state.release(blocking)
    assert [each.result(SOON_S) for each in asking] == [["a"], ["a"]]
    assert world.batches == [["refused"], ["refused"], ["i1"], ["i2"]]
    assert sorted(each.attempts for each in world.observed.outcomes) == [1, 3]


def test_an_error_before_the_lock_was_acquired_fails_the_whole_queue(make, pool, monkeypatch):
    world, calls, go = make(), [], threading.Event()

    def unavailable(*_, **__):
        calls.append(1)
        assert go.wait(SOON_S)
        raise StateUnavailable("no store")

    monkeypatch.setattr(world.state, "acquire", unavailable)
    asking = queue_up(world, pool, "i1", "i2", "i3")
    go.set()
    for each in asking:
        with pytest.raises(StateUnavailable, match="no store"):
            each.result(SOON_S)
    assert calls == [1]


def test_an_error_of_one_request_fails_no_other_of_its_batch(make, pool, monkeypatch):
    world = make()
    blocking, decide = world.block(), world.pipeline.decide

    def failing(table, request, *rest):
        if "bad" in request.instance_uuids:
            raise ZeroDivisionError
        return decide(table, request, *rest)

    monkeypatch.setattr(world.pipeline, "decide", failing)
    first, bad, last = queue_up(world, pool, "i1", "bad", "i2")
    world.state.release(blocking)
    with pytest.raises(ZeroDivisionError):
        bad.result(SOON_S)
    assert first.result(SOON_S) == last.result(SOON_S) == ["a"]
    assert world.batches == [["i1", "i2"]]


AWAY, EXPIRED = StateUnavailable("it is away"), StaleFencingToken("expired")


class Refused:
    """A request that no host has room for, after others of its batch; its first commit fails."""

    def __init__(self, world: QueueWorld, pool: Threads, error: Exception) -> None:
        self._world, self._pool, self._error = world, pool, error
        self._blocking = world.block()
        self._commit, world.state.commit = world.state.commit, self._failing
        self._commits = 0

    def after(self, name: str, **spec) -> None:
        queue_up(self._world, self._pool, name, **spec)

    def decided(self) -> Future:
        [asking] = queue_up(self._world, self._pool, "large", vcpus=2000)
        self._world.state.release(self._blocking)
        return asking

    def commits(self) -> int:
        """How many commits were tried; the lock is free."""
        self._world.state.release(self._pool.submit(self._world.block).result(SOON_S))
        return self._commits

    def _failing(self, grant, transactions, **options):
        if grant.scope == "default":
            self._commits += 1
            if self._commits == 1:
                if self._error is EXPIRED:
                    self._world.state.release(grant)
                raise self._error
        return self._commit(grant, transactions, **options)


@pytest.mark.parametrize("error", [AWAY, EXPIRED], ids=["away", "expired"])
def test_a_refusal_stands_alone_though_its_commit_fails(make, pool, error):
    refused = Refused(make(), pool, error)
    with pytest.raises(NoValidHost):
        refused.decided().result(SOON_S)
    assert refused.commits() == 1


def test_a_refusal_stands_though_the_lock_cannot_be_handed_on(make, monkeypatch):
    world = make()
    for method in ("commit", "release"):
        monkeypatch.setattr(world.state, method, raising(AWAY))
    with pytest.raises(NoValidHost):
        world.place("i1", vcpus=2000)


ELSEWHERE = host("b", cluster="other")


@pytest.mark.parametrize(
    ("report", "other"),
    [
        (ELSEWHERE, None),
        (ELSEWHERE, {"vcpus": 2000, "scheduler_hints": {"cluster": ["default"]}}),
        (host("b"), {"vcpus": 1}),
    ],
    ids=["may go elsewhere", "after one that may not", "after a placed one"],
)
@pytest.mark.parametrize("error", [AWAY, EXPIRED], ids=["away", "expired"])
def test_a_refusal_that_needs_its_lease_fails_without_the_store_or_is_made_again(
    make, pool, error, report, other
):
    world = make()
    world.report(report)
    refused = Refused(world, pool, error)
    if other:
        refused.after("other", **other)
    with pytest.raises(StateUnavailable if error is AWAY else NoValidHost):
        refused.decided().result(SOON_S)
    assert refused.commits() == (1 if error is AWAY else 2)


def test_requests_whose_deadline_has_passed_leave_the_queue_wherever_they_stand(make, pool):
    world = make(acquire_timeout_s=5.0, hold_timeout_s=100.0)
    blocking = world.block()
    [first] = queue_up(world, pool, "i1")
    world.clock.advance(3)
    [second] = queue_up(world, pool, "i2", priority=100)
    world.clock.advance(3)
    with pytest.raises(ClusterLockTimeout, match="cluster default was not granted within 6 s"):
        first.result(SOON_S)
    assert not second.done()
    world.state.release(blocking)
    assert second.result(SOON_S) == ["a"]


def test_requests_fail_at_their_deadlines_while_the_leader_decides(make, pool, monkeypatch):
    follow(monkeypatch, waits)
    world = make(acquire_timeout_s=5.0, hold_timeout_s=100.0, max_batch=2, ordering="fifo")
    decide, begun, go = world.pipeline.decide, threading.Event(), threading.Event()

    def slow(table, request, *rest):
        if "i1" in request.instance_uuids:
            begun.set()
            assert go.wait(SOON_S)
        return decide(table, request, *rest)

    monkeypatch.setattr(world.pipeline, "decide", slow)
    blocking = world.block()
    asking = queue_up(world, pool, "i1", "of its batch", "of the next batch")
    world.state.release(blocking)
    assert begun.wait(SOON_S)
    [patient] = [pool.submit(world.ask, "i2")]
    world.await_queued(2)
    world.clock.advance(4.9)
    later = pool.submit(world.ask, "i3")
    world.await_queued(3)
    world.clock.advance(0.2)
    for each in (*asking[1:], patient):
        with pytest.raises(ClusterLockTimeout):
            each.result(SOON_S)
    assert not later.done()
    go.set()
    assert (asking[0].result(SOON_S), len(later.result(SOON_S).claims)) == (["a"], 1)


def test_a_leader_that_was_ended_before_it_began_asks_for_no_lock(make):
    world = make()
    world.place("i1")
    queue = world.scheduler._queues._queues["default"]
    queue._kept_lease = None
    acquired = world.acquired
    queue._serve_batch()
    assert world.acquired == acquired


def test_a_request_that_outlasts_its_lease_goes_behind_the_others(make, pool, monkeypatch):
    world = make(ordering="fifo")
    decide, outlasts = world.pipeline.decide, iter([True, True])

    def slow(table, request, *rest):
        if "slow" in request.instance_uuids and next(outlasts, False):
            world.clock.advance(world.limits.hold_timeout_s + 1)
        return decide(table, request, *rest)

    monkeypatch.setattr(world.pipeline, "decide", slow)
    blocking = world.block()
    asking = queue_up(world, pool, "i1", "slow", "i2", "i3")
    world.state.release(blocking)
    assert [each.result(SOON_S) for each in asking] == [["a"]] * 4
    lost = [["i1", "slow"], ["slow"]]
    assert world.batches == [lost[0], ["i1", "i2", "i3"], lost[1], ["slow"]]
    attempts = {each.instance_uuids[0]: each.attempts for each in world.observed.outcomes}
    assert attempts == {"i1": 2, "slow": 3, "i2": 1, "i3": 1}


def test_many_threads_are_all_served_by_one_leader_at_a_time(make, pool, monkeypatch):
    world, leading = make(max_batch=3), threading.Lock()
    decide = world.pipeline.decide

    def exclusive(*arguments):
        assert leading.acquire(blocking=False), "two leaders at once"
        try:
            return decide(*arguments)
        finally:
            leading.release()

    monkeypatch.setattr(world.pipeline, "decide", exclusive)
    names = [f"i{number}" for number in range(300)]
    assert list(pool.map(world.place, names)) == [["a"]] * 300
    assert sorted(sum(world.batches, [])) == sorted(names)
    assert max(map(len, world.batches)) <= 3


IDLE = {"in_line": 0, "oldest_s": 0.0, "waiting_for_pending": 0, "token": None, "held_s": None}


def test_queued_requests_are_described_with_the_age_of_the_oldest(make, pool):
    world = make()
    blocking = world.block()
    assert world.scheduler.describe("default") == IDLE, "it has no queue yet"
    [asking] = queue_up(world, pool, "i1")
    world.clock.advance(2.5)
    assert world.scheduler.describe("default") == IDLE | {"in_line": 1, "oldest_s": 2.5}
    world.state.release(blocking)
    assert asking.result(SOON_S) == ["a"]
    assert world.scheduler.describe("default") == IDLE


def test_a_lease_is_described_with_its_token_and_age(make, monkeypatch):
    world = make()
    commit, described = world.state.commit, []

    def slow(grant, transactions, **options):
        world.clock.advance(3)
        lease = {"token": grant.token.number, "held_s": 3.0}
        described.append((world.scheduler.describe("default"), IDLE | lease))
        return commit(grant, transactions, **options)

    monkeypatch.setattr(world.state, "commit", slow)
    world.place("i1")
    [(during, expected)] = described
    assert during == expected
    assert world.scheduler.describe("default") == IDLE


# Typical durations of the recent past


def test_an_outlier_does_not_count() -> None:
    durations = RecentDurations()
    assert durations.typical_s(0.0) == 0.0
    for at_s, took_s in enumerate((0.1, 0.2, 9.0, 0.1, 0.2)):
        durations.add(took_s, at_s)
    assert durations.typical_s(5.0) == 0.2


def test_old_durations_are_dropped() -> None:
    durations = RecentDurations()
    durations.add(9.0, 0.0)
    assert durations.typical_s(9.0) == 9.0
    durations.add(0.1, 9.0)
    assert durations.typical_s(11.0) == 0.1
    assert durations.typical_s(30.0) == 0.0
