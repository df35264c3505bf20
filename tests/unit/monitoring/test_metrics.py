"""Metrics count events, with a bounded number of labels."""

import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler_worker.model.host_records import HostCounts
from scheduler_worker.monitoring.health import FeedLoad, Load
from scheduler_worker.monitoring.metrics import MAX_CLUSTERS, Metrics, why_no_host
from scheduler_worker.observer import Outcome

LOAD = Load(running=3, backlog=2, waiting_for_pending=1, reservations={"east": 5, "west": 7})


class Scraped(Metrics):
    """Metrics read through their exposition, as by a scraper."""

    def __init__(self, load=lambda: LOAD):
        super().__init__(load)

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
    return Scraped()


def test_requests_are_counted_and_timed(metrics):
    metrics.request_taken("select_destinations", 0.002)
    metrics.request_served("select_destinations", "ok", 0.004)
    metrics.request_served("select_destinations", "NoValidHost", 61.0)
    value = metrics.value
    assert value("requests_total", method="select_destinations", result="ok") == 1
    assert value("requests_total", method="select_destinations", result="NoValidHost") == 1
    assert value("request_duration_seconds_count") == 2
    assert value("request_duration_seconds_sum") == 61.004
    assert value("request_duration_seconds_bucket", le="0.0025") == 0
    assert value("request_duration_seconds_bucket", le="0.005") == 1
    assert value("request_duration_seconds_bucket", le="60.0") == 1
    assert value("request_duration_seconds_bucket", le="+Inf") == 2
    assert value("queue_wait_seconds_count") == 1


def test_a_bound_belongs_to_its_bucket(metrics):
    metrics.request_taken("m", 0.005)
    assert metrics.value("queue_wait_seconds_bucket", le="0.005") == 1
    assert metrics.value("queue_wait_seconds_bucket", le="0.0025") == 0


def test_methods_that_do_not_exist_share_the_label_other(metrics):
    metrics.request_served("x" * 50, "NoSuchMethod", 0.0)
    metrics.request_served("select_destinations", "UnsupportedVersion", 0.0)
    assert metrics.value("requests_total", method="other", result="NoSuchMethod") == 1
    assert metrics.value("requests_total", method="other", result="UnsupportedVersion") == 1


def test_clusters_beyond_the_limit_share_the_label_other():
    load = Load(reservations={f"c{number}": number for number in range(MAX_CLUSTERS + 3)})
    metrics = Scraped(lambda: load)
    for number in range(MAX_CLUSTERS + 3):
        metrics.lock_granted(f"c{number}", 0.1)
        metrics.commit_fenced(f"c{number}")
    metrics.lock_granted("c0", 0.1)
    assert metrics.value("lock_wait_seconds_count", cluster="c0") == 2
    assert metrics.value("lock_wait_seconds_count", cluster="other") == 3
    assert metrics.value("fenced_commits_total", cluster="other") == 3
    assert metrics.value("pending_reservations", cluster="other") == 0 + 1 + 2
    keys = [key for key in metrics.all() if key[0] == "scheduler_lock_wait_seconds_count"]
    assert len(keys) == MAX_CLUSTERS + 1


def test_the_lock_is_counted_by_cluster(metrics):
    metrics.lock_ended("east", 0.2)
    metrics.lease_expired("east")
    metrics.lock_timed_out("east")
    metrics.commit_conflicted("east")
    assert metrics.value("lock_hold_seconds_sum", cluster="east") == 0.2
    assert metrics.value("hold_expired_total", cluster="east") == 1
    assert metrics.value("lock_timeouts_total", cluster="east") == 1
    assert metrics.value("commit_conflicts_total", cluster="east") == 1


def test_ends_of_reservations_are_counted_by_kind(metrics):
    assert metrics.value("reservations_expired_total") == 0
    metrics.reservations_ended("east", "expired", 2)
    metrics.reservations_ended("west", "absorbed", 3)
    assert metrics.value("reservations_expired_total") == 2
    assert metrics.value("reservations_ended_total", how="absorbed") == 3


def test_messages_and_failures_are_counted(metrics):
    metrics.message_redelivered()
    metrics.message_repeated()
    metrics.message_dropped("expired")
    metrics.state_failed()
    assert metrics.value("redelivered_total") == 1
    assert metrics.value("duplicates_total") == 1
    assert metrics.value("dropped_total", why="expired") == 1
    assert metrics.value("redis_errors_total") == 1


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
            request_id="r", result="NoValidHost", candidates=5, waited_for_pending_s=0.3,
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


def test_gauges_that_cannot_be_read_leave_the_other_metrics(caplog):
    def broken():
        raise RuntimeError("dictionary changed size")

    metrics = Scraped(broken)
    metrics.state_failed()
    assert metrics.value("redis_errors_total") == 1
    assert metrics.value("inflight") is None
    assert "gauges cannot be read" in caplog.text


def test_no_count_is_lost_between_threads(metrics):
    def many():
        for _ in range(5_000):
            metrics.request_served("m", "ok", 0.001)
            metrics.lock_granted("c", 0.001)

    threads = [threading.Thread(target=many, daemon=True) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert metrics.value("requests_total", method="m", result="ok") == 20_000
    assert metrics.value("lock_wait_seconds_count", cluster="c") == 20_000


def test_two_workers_in_a_process_have_their_own_metrics(metrics):
    other = Scraped()
    metrics.state_failed()
    assert other.value("redis_errors_total") == 0


def test_the_openmetrics_format_is_supported(metrics):
    metrics.request_served("m", "ok", 0.001)
    content_type, text = metrics.exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_a_feed_is_counted_by_cell_and_a_cell_never_read_has_no_lag():
    metrics = Scraped(
        lambda: Load(feed={"east": FeedLoad(3.5, True, 7), "west": FeedLoad(None, False, 0)})
    )
    metrics.feed_read("east", "hosts", 5)
    metrics.feed_wrote("east", 4)
    metrics.feed_round("east", 0.3)
    metrics.feed_failed("west")
    assert metrics.value("feed_rows_total", cell="east", what="hosts") == 5
    assert metrics.value("feed_reports_total", cell="east") == 4
    assert metrics.value("feed_round_seconds_count", cell="east") == 1
    assert metrics.value("feed_failures_total", cell="west") == 1
    assert metrics.value("feed_lag_seconds", cell="east") == 3.5
    assert metrics.value("feed_lag_seconds", cell="west") is None
    assert [metrics.value("feed_cell_up", cell=each) for each in ("east", "west")] == [1, 0]
    assert metrics.value("feed_hosts", cell="east") == 7


def test_hosts_are_gauges_by_cluster_and_state():
    metrics = Scraped(lambda: Load(hosts={"east": HostCounts(up=2, down=1)}))
    assert metrics.value("hosts", cluster="east", state="down") == 1
    assert Scraped().value("hosts", cluster="east", state="down") is None
