"""An API process counts its requests by route, and says what it cannot use."""

import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler_worker.monitoring import ApiMonitor
from scheduler_worker.monitoring.health import Dependencies
from scheduler_worker.monitoring.settings import MonitoringSettings
from tests.support.rest import Rest

LABELS = "route", "method", "status", "by", "dependency"


class Parts:
    """What the API needs, as a test wants it, and why the process has failed."""

    def __init__(self):
        self.state = self.archive = self.failed = None
        self.monitor = ApiMonitor(
            Dependencies(
                {"state": lambda: self.state, "archive": lambda: self.archive},
                dispensable=["archive"],
            ),
            failure=lambda: self.failed,
            settings=MonitoringSettings(),
        )

    def samples(self, name):
        return {
            tuple(sample.labels[each] for each in LABELS if each in sample.labels): sample.value
            for family in text_string_to_metric_families(self.monitor.exposition()[1].decode())
            for sample in family.samples
            if sample.name == f"scheduler_api_{name}"
        }


@pytest.fixture
def parts():
    return Parts()


def test_requests_are_counted_by_route_and_status(parts):
    rest = Rest("east", observer=parts.monitor)
    rest.request("GET", "/v1/hosts/host-east")
    rest.request("GET", "/v1/hosts/nowhere")
    rest.request("GET", "/schedulingpolicies/none/filters")
    rest.request("GET", "/v4/schedulingpolicies")
    rest.request("GET", "/v1/made/up")
    rest.request("BREW", "/made/up")
    rest.request("GET", "/v1/hosts", user=None)
    assert parts.samples("requests_total") == {
        ("/v1/hosts/{name}", "GET", "200"): 1,
        ("/v1/hosts/{name}", "GET", "404"): 1,
        ("/api/schedulingpolicies/{policy_id}/filters", "GET", "404"): 1,
        ("/api/schedulingpolicies", "GET", "200"): 1,
        ("other", "other", "404"): 2,
        ("other", "other", "401"): 1,
    }
    counts = parts.samples("request_duration_seconds_count")
    assert counts[("/v1/hosts/{name}",)] == 2
    assert sum(counts.values()) == 7


def test_refusals_by_the_limit_of_rates_are_counted(parts):
    rest = Rest(requests_per_second=1, burst=2, observer=parts.monitor)
    assert [rest.request("GET", "/v1").status_code for _ in range(3)] == [200, 200, 429]
    assert parts.samples("rate_limited_total") == {("address",): 1}


def test_what_cannot_be_used_is_missing_and_down(parts):
    assert parts.monitor.missing() == []
    assert parts.samples("dependency_up") == {("state",): 1, ("archive",): 1}
    other = Parts()
    other.state, other.failed = "no Redis", "the HTTP server: broken"
    assert other.monitor.missing() == ["the HTTP server: broken", "no Redis"]
    assert other.samples("dependency_up") == {("state",): 0, ("archive",): 1}
    without = Parts()
    without.archive = "no database"
    assert without.monitor.missing() == []
    assert without.samples("dependency_up") == {("state",): 1, ("archive",): 0}


def test_what_does_not_answer_is_named():
    waits = threading.Event()
    monitor = ApiMonitor(
        Dependencies({"archive": lambda: "down" if waits.wait(30) else None}),
        failure=lambda: None,
        settings=MonitoringSettings(),
    )
    assert monitor.missing() == ["the archive does not answer within 2 s"]
    waits.set()
