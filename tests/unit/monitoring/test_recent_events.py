"""What a worker remembers of the last five minutes."""

import pytest

from scheduler_worker.events import (
    BUS_LOST,
    DECISION_RECORDS,
    EVENTS,
    LOCK_HOLD,
    LOCK_WAIT,
    REQUESTS,
    UNIT_CALLS,
)
from scheduler_worker.monitoring.health import Load
from scheduler_worker.monitoring.recent import Recent, Window
from scheduler_worker.observer import Outcome
from tests.support.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def recent(clock):
    return Recent(Load, clock.monotonic_s)


def decide(recent, result="placed", duration_s=0.01):
    recent.decided(Outcome(request_id="r", result=result, duration_s=duration_s))


def test_requests_are_counted_by_how_they_ended(recent, clock):
    for result in ("placed", "placed", "NoValidHost", "StateUnavailable"):
        decide(recent, result)
    clock.advance(5)
    found = recent.lately()
    assert (found.placed, found.refused, found.failed) == (2, 1, 1)
    assert found.durations.total == 4
    assert found.durations.reached(0.5) == pytest.approx(0.01)
    assert found.over_s == 5.0


def test_what_was_five_minutes_ago_does_not_count(recent, clock):
    decide(recent)
    clock.advance(280)
    decide(recent, "NoValidHost")
    recent.time(LOCK_WAIT, 0.1, "east")
    assert recent.lately().placed == 1
    clock.advance(20)
    found = recent.lately()
    assert (found.placed, found.refused, found.durations.total) == (0, 1, 1)
    clock.advance(280)
    assert recent.lately().durations.total == 0
    assert recent.lock_times() == {}


def test_the_place_of_an_old_step_is_used_again(recent, clock):
    for _ in range(100):
        decide(recent)
        clock.advance(10)
    assert recent.lately().placed == 29
    assert recent.lately().over_s == pytest.approx(290)


def test_long_pauses_leave_nothing(recent, clock):
    decide(recent)
    clock.advance(86_400)
    assert recent.lately().placed == 0


def test_locks_are_timed_by_cluster(recent):
    recent.time(LOCK_WAIT, 0.001, "east")
    recent.time(LOCK_HOLD, 0.5, "east")
    recent.time(LOCK_WAIT, 2.0, "west")
    found = recent.lock_times()
    assert found.keys() == {"east", "west"}
    assert found["east"].wait.reached(1.0) == pytest.approx(0.001)
    assert found["east"].hold.reached(1.0) == pytest.approx(0.501)
    assert found["west"].hold.total == 0


def test_errors_and_troubles_are_named_and_what_went_well_is_not(recent):
    recent.count(REQUESTS, "select_destinations", "ok")
    recent.count(REQUESTS, "select_destinations", "NoValidHost")
    recent.count(REQUESTS, "update_hosts", "RequestError")
    recent.count(REQUESTS, "update_hosts", "RequestError")
    recent.count(UNIT_CALLS, "unit", "ok")
    recent.count(DECISION_RECORDS, "written", by=9)
    recent.bus_lost()
    assert recent.lately().errors == {"update_hosts: RequestError": 2, BUS_LOST.text: 1}


TROUBLES = [
    (event, label or "its label", trouble)
    for event in EVENTS
    for label, trouble in event.troubles.items()
]


@pytest.mark.parametrize(
    ("event", "label", "trouble"), TROUBLES, ids=[f"{each[0].name}-{each[1]}" for each in TROUBLES]
)
def test_troubles_are_counted_and_the_metrics_still_are(recent, event, label, trouble):
    before = recent.exposition()[1]
    recent.count(event, *[label for _ in event.labels], by=2)
    assert recent.lately().errors == {trouble.text: 2}
    assert recent.exposition()[1] != before


def test_different_events_are_bounded(clock):
    window = Window(clock.monotonic_s)
    for number in range(20_000):
        window.add(("error", str(number), 0))
    window.add(("error", "0", 0))
    counts = window.counts()
    assert len(counts) == 10_000
    assert counts["error", "0", 0] == 2
