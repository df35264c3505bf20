"""Turns: one worker at a time, another when it is gone, and errors that affect no other cluster."""

import pytest

from scheduler_worker import events
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.observer import Observer
from scheduler_worker.service.state.leadership import ClusterLeader, Leadership, LeadershipRecords
from tests.support.interrupted import before_next
from tests.support.observers import Recorder
from tests.support.services import World

SCOPE = "@work"
INTERVAL_S = 10.0


class Worker(ClusterLeader[Leadership, str]):
    """Notes what it does in its turns, and what it is told of them."""

    def __init__(self, world: World, name: str, *clusters: str, observer: Observer) -> None:
        self.clock = world.clock
        self.known = clusters
        self.done: list[str] = []
        self.all_ended: list[tuple[str, float, str | None]] = []
        self.of_others: list[str] = []
        self.failures: dict[str, Exception] = {}
        self.takes_s = 0.0
        self.records = LeadershipRecords(SCOPE, Leadership)
        super().__init__(
            "work",
            self.records,
            world.state,
            world.clock,
            worker=name,
            interval_s=INTERVAL_S,
            failed=events.TUNING_FAILURES,
            observer=observer,
        )

    def clusters(self) -> tuple[str, ...]:
        return self.known

    def ended(self, cluster: str, took_s: float, found: str | None) -> None:
        self.all_ended.append((cluster, took_s, found))

    def not_ours(self, cluster: str) -> None:
        self.of_others.append(cluster)

    def run_cluster(self, cluster: str, lead: Leadership) -> str:
        assert lead == Leadership(self.worker, self.clock.time_s())
        self.clock.advance(self.takes_s)
        if cluster in self.failures:
            raise self.failures[cluster]
        self.done.append(cluster)
        return f"found in {cluster}"

    def work(self) -> tuple[float, list[str]]:
        """The seconds that it wants to wait, and the clusters whose work it did."""
        self.done = []
        return self.run_due(), self.done


@pytest.fixture
def observed() -> Recorder:
    return Recorder()


@pytest.fixture
def pair(world, observed) -> tuple[Worker, Worker]:
    """Two workers on the same state."""
    first, second = (Worker(world, name, "a", "b", observer=observed) for name in ("w1", "w2"))
    return first, second


def test_a_turn_stays_with_its_worker_until_that_misses_one(world, pair):
    first, second = pair
    assert first.work() == (INTERVAL_S, ["a", "b"])
    world.clock.advance(INTERVAL_S - 4)
    assert first.work() == (4, [])
    assert second.work() == (INTERVAL_S, []), "it may have it in 14 s, and looks before"
    world.clock.advance(4)
    assert second.work() == (INTERVAL_S, [])
    assert first.work() == (INTERVAL_S, ["a", "b"])
    world.clock.advance(2 * INTERVAL_S)
    assert second.work() == (INTERVAL_S, ["a", "b"])
    assert first.work() == (INTERVAL_S, [])
    assert (first.of_others, second.of_others) == (["a", "b"], ["a", "b"] * 2)


def test_of_two_that_take_a_turn_at_once_one_gets_it(world, pair, monkeypatch):
    first, second = pair
    before_next(monkeypatch, world.state, "write", second.work)
    assert first.work() == (INTERVAL_S, [])
    assert second.done == ["a", "b"]


def test_a_worker_that_starts_again_is_another(world, observed):
    Worker(world, "w1", "a", observer=observed).work()
    again = Worker(world, "w1", "a", observer=observed)
    world.clock.advance(INTERVAL_S)
    assert again.work() == (INTERVAL_S, [])


def test_a_turn_from_the_future_is_void(world, pair):
    first, second = pair
    first.work()
    world.clock.advance(-3600)
    assert second.work() == (INTERVAL_S, ["a", "b"])


def test_a_failure_of_one_cluster_affects_no_other(pair, observed, caplog):
    first, _ = pair
    first.failures["a"] = ZeroDivisionError()
    first.takes_s = 3.0
    assert first.work() == (INTERVAL_S - 3, ["b"])
    assert observed.of(events.TUNING_FAILURES) == {"a": 1}
    assert first.all_ended == [("a", 3.0, None), ("b", 3.0, "found in b")]
    assert "Work of cluster a failed" in caplog.text


def test_without_the_state_all_wait(pair, observed, caplog):
    first, _ = pair
    first.failures["a"] = StateUnavailable("away")
    assert first.work() == (INTERVAL_S, [])
    assert (observed.of(events.TUNING_FAILURES), first.all_ended) == ({}, [])
    assert observed.events == []
    assert caplog.records == [], "the watched state logs it"


def test_work_that_takes_longer_than_the_interval_goes_on_at_once(pair):
    first, _ = pair
    first.takes_s = INTERVAL_S + 1
    assert first.work() == (0.0, ["a", "b"])
    assert first.work() == (0.0, ["a", "b"])


def test_nothing_new_begins_once_it_is_to_stop(pair):
    first, _ = pair
    first.stop()
    assert first.work() == (INTERVAL_S, [])
