"""What a worker remembers of the last five minutes."""

import pytest

from scheduler_worker.model.worker_reports import Trouble
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
    recent.lock_granted("east", 0.1)
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
    recent.lock_granted("east", 0.001)
    recent.lock_ended("east", 0.5)
    recent.lock_granted("west", 2.0)
    found = recent.lock_times()
    assert found.keys() == {"east", "west"}
    assert found["east"].wait.reached(1.0) == pytest.approx(0.001)
    assert found["east"].hold.reached(1.0) == pytest.approx(0.501)
    assert found["west"].hold.total == 0


def test_calls_that_end_in_errors_are_named_and_refusals_are_not_errors(recent):
    recent.request_served("select_destinations", "ok", 0.1)
    recent.request_served("select_destinations", "NoValidHost", 0.1)
    recent.request_served("update_hosts", "RequestError", 0.1)
    recent.request_served("update_hosts", "RequestError", 0.1)
    recent.request_served("made_up_by_a_caller", "NoSuchMethod", 0.0)
    assert recent.lately().errors == {"update_hosts: RequestError": 2, "other: NoSuchMethod": 1}


@pytest.mark.parametrize(
    ("event", "arguments", "trouble"),
    [
        ("state_failed", (), Trouble.STATE_FAILED),
        ("lock_timed_out", ("east",), Trouble.LOCK_TIMED_OUT),
        ("lease_expired", ("east",), Trouble.LEASE_EXPIRED),
        ("commit_fenced", ("east",), Trouble.COMMIT_FENCED),
        ("bus_lost", (), Trouble.BUS_LOST),
        ("message_dropped", ("expired",), Trouble.EXPIRED),
        ("message_dropped", ("dead-lettered",), Trouble.DEAD_LETTERED),
        ("message_dropped", ("discarded",), Trouble.DISCARDED),
        ("message_dropped", ("unroutable",), Trouble.UNROUTABLE),
        ("message_dropped", ("refused",), Trouble.REFUSED),
        ("feed_failed", ("cell1",), Trouble.FEED_FAILED),
        ("providers_failed", ("use",), Trouble.PROVIDERS_FAILED),
        ("tuning_failed", ("east",), Trouble.TUNING_FAILED),
        ("balancing_failed", ("east",), Trouble.BALANCING_FAILED),
        ("migration_target_failed", ("east",), Trouble.TARGET_FAILED),
        ("external_called", ("unit", "failed", 0.1), Trouble.UNIT_FAILED),
        ("decisions_kept", ("dropped", 1), Trouble.RECORDS_DROPPED),
    ],
)
def test_troubles_are_counted_and_the_metrics_still_are(recent, event, arguments, trouble):
    before = recent.exposition()[1]
    getattr(recent, event)(*arguments)
    assert recent.lately().errors == {trouble: 1}
    if event != "bus_lost":  # which is a gauge
        assert recent.exposition()[1] != before


def test_what_went_well_is_no_trouble(recent):
    recent.external_called("unit", "ok", 0.1)
    recent.decisions_kept("written", 9)
    assert recent.lately().errors == {}


def test_different_events_are_bounded(clock):
    window = Window(clock.monotonic_s)
    for number in range(20_000):
        window.add(("error", str(number), 0))
    window.add(("error", "0", 0))
    counts = window.counts()
    assert len(counts) == 10_000
    assert counts["error", "0", 0] == 2
