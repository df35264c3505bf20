"""Metrics count events, with bounded labels; and what a worker remembers of five minutes."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler_worker import events
from scheduler_worker.events import (
    BUS_LOST,
    DECISION_RECORDS,
    EVENTS,
    LOCK_HOLD,
    LOCK_WAIT,
    MAX_CLUSTERS,
    REQUESTS,
    UNIT_CALLS,
    Duration,
    Level,
)
from scheduler_worker.model.decision_history import Waits
from scheduler_worker.model.host_records import HostCounts
from scheduler_worker.model.worker_reports import PartReport
from scheduler_worker.monitoring.health import Load
from scheduler_worker.monitoring.metrics import Metrics, Window, why_no_host
from scheduler_worker.observer import Outcome
from tests.support.interrupted import raising
from tests.support.threads import Threads

LOAD = Load(
    running=3,
    waiting=2,
    waiting_for_pending=1,
    reservations={"east": 5, "west": 7},
    hosts={"east": HostCounts(up=2, down=1)},
    feed={"east": PartReport(lag_s=3.5, hosts=7), "west": PartReport(is_up=False)},
)


class Scraped(Metrics):
    """Metrics read through their exposition, as by a scraper."""

    def value(self, name, **labels):
        return self.all().get((f"scheduler_{name}", frozenset(labels.items())))

    def all(self):
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.exposition()[1].decode())
            for sample in family.samples
        }


@pytest.fixture
def metrics():
    return Scraped(lambda: LOAD)


def test_durations_are_in_buckets(metrics):
    metrics.time(events.REQUEST_TIME, 0.005)  # a bound belongs to its bucket
    metrics.time(events.REQUEST_TIME, 61.0)
    value = metrics.value
    assert value("request_duration_seconds_count") == 2
    assert value("request_duration_seconds_sum") == 61.005
    assert value("request_duration_seconds_bucket", le="0.0025") == 0
    assert value("request_duration_seconds_bucket", le="0.005") == 1
    assert value("request_duration_seconds_bucket", le="60.0") == 1
    assert value("request_duration_seconds_bucket", le="+Inf") == 2


def test_clusters_beyond_the_limit_share_the_label_other():
    load = Load(reservations={f"c{number}": number for number in range(MAX_CLUSTERS + 3)})
    metrics = Scraped(lambda: load)
    for number in range(MAX_CLUSTERS + 3):
        metrics.time(events.LOCK_WAIT, 0.1, f"c{number}")
        metrics.count(events.COMMITS_FENCED, f"c{number}")
    metrics.time(events.LOCK_WAIT, 0.1, "c0")
    assert metrics.value("lock_wait_seconds_count", cluster="c0") == 2
    assert metrics.value("lock_wait_seconds_count", cluster="other") == 3
    assert metrics.value("fenced_commits_total", cluster="other") == 3
    assert metrics.value("pending_reservations", cluster="other") == 0 + 1 + 2
    keys = [key for key in metrics.all() if key[0] == "scheduler_lock_wait_seconds_count"]
    assert len(keys) == MAX_CLUSTERS + 1


@pytest.mark.parametrize("event", events.OF_WORKER, ids=lambda each: each.name)
def test_each_event_has_its_metric(metrics, event):
    labels = {name: f"its {name}" for name in event.labels}
    if isinstance(event, Duration):
        metrics.time(event, 0.5, *labels.values())
        assert metrics.value(f"{event.name}_sum", **labels) == 0.5
    elif isinstance(event, Level):
        metrics.level(event, 7, *labels.values())
        assert metrics.value(event.name, **labels) == 7
    else:
        metrics.count(event, *labels.values())
        metrics.count(event, *labels.values(), by=2)
        assert metrics.value(event.name, **labels) == 3


def test_events_without_labels_are_exported_from_the_start(metrics):
    assert metrics.value("reservations_expired_total") == 0
    assert metrics.value("request_duration_seconds_count") == 0


def test_events_of_other_processes_are_left_out(metrics):
    metrics.count(events.API_LIMITED, "user")
    metrics.time(events.API_TIME, 1.0, "/v1/hosts")
    assert not any("scheduler_api" in name for name, _ in metrics.all())


def test_the_bus_is_connected_or_not(metrics):
    assert metrics.value("bus_connected") == 0
    metrics.bus_connected(again=False)
    assert metrics.value("bus_connected") == 1
    metrics.bus_lost()
    assert metrics.value("bus_connected") == 0
    metrics.bus_connected(again=True)
    assert metrics.value("amqp_reconnects_total") == 1


def test_decisions_count_rejections_and_the_last_filter_of_no_valid_host(metrics):
    metrics.decided(
        Outcome(
            request_id="r", result="NoValidHost", candidates=5, waits=Waits(pending_s=0.3),
            rejections=(("ComputeFilter", 2), ("RamFilter", 3), ("DiskFilter", 0)),
        )
    )  # fmt: skip
    metrics.decided(Outcome(request_id="r", result="placed", candidates=5, passed=5))
    assert metrics.value("filter_rejections_total", filter="RamFilter") == 3
    assert metrics.value("filter_rejections_total", filter="DiskFilter") is None
    assert metrics.value("no_valid_host_total", reason="RamFilter") == 1
    assert metrics.value("pending_wait_seconds_count") == 1


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, "no hosts"),
        ({"candidates": 3, "passed": 1, "rejections": (("A", 2),)}, "not enough hosts"),
        ({"candidates": 3, "rejections": (("A", 2), ("B", 1), ("C", 0))}, "B"),
        ({"candidates": 3}, "other"),
    ],
)
def test_the_reason_of_no_valid_host(facts, reason):
    assert why_no_host(Outcome(request_id="r", result="NoValidHost", **facts)) == reason


def test_gauges_are_read_at_each_scrape(metrics):
    assert metrics.value("inflight") == 3
    assert metrics.value("backlog") == 2
    assert metrics.value("waiting_requests") == 1
    assert metrics.value("pending_reservations", cluster="west") == 7
    assert metrics.value("hosts", cluster="east", state="down") == 1
    assert metrics.value("hosts", cluster="west", state="down") is None
    assert metrics.value("feed_lag_seconds", cell="east") == 3.5
    assert metrics.value("feed_lag_seconds", cell="west") is None, "it was never read"
    assert [metrics.value("feed_cell_up", cell=each) for each in ("east", "west")] == [1, 0]
    assert metrics.value("feed_hosts", cell="east") == 7


def test_gauges_that_cannot_be_read_leave_the_other_metrics(caplog):
    metrics = Scraped(raising(RuntimeError("dictionary changed size")))
    metrics.count(events.STATE_ERRORS)
    assert metrics.value("redis_errors_total") == 1
    assert metrics.value("inflight") is None
    assert "gauges cannot be read" in caplog.text


def test_no_count_is_lost_between_threads(metrics):
    def many():
        for _ in range(5_000):
            metrics.count(events.REQUESTS, "m", "ok")
            metrics.time(events.LOCK_WAIT, 0.001, "c")

    with Threads(4) as threads:
        for _ in range(4):
            threads.submit(many)
    assert metrics.value("requests_total", method="m", result="ok") == 20_000
    assert metrics.value("lock_wait_seconds_count", cluster="c") == 20_000


def test_the_openmetrics_format_is_supported(metrics):
    content_type, text = metrics.exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


@pytest.fixture
def recent(clock):
    return Metrics(Load, clock.monotonic_s)


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


def test_the_place_of_an_old_step_is_used_again(recent, clock):
    for _ in range(100):
        decide(recent)
        clock.advance(10)
    assert recent.lately().placed == 29
    assert recent.lately().over_s == pytest.approx(290)


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
