"""``/v1/workers`` and ``/v1/health``, without a server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler_worker.errors import StateUnavailable
from scheduler_worker.model.spreads import Spread, bucket_of
from scheduler_worker.model.worker_reports import (
    ClusterReport,
    Lately,
    LockTimes,
    PartReport,
    WorkerFacts,
    WorkerReport,
)
from scheduler_worker.service.state.presence import Presence
from tests.support.rest import Rest


@pytest.fixture
def rest() -> Rest:
    return Rest("east")


def read(rest: Rest, path: str, status: int = 200, **options: Any) -> Any:
    response = rest.request("GET", path, **options)
    assert response.status_code == status, response.get_data(as_text=True)
    return response.get_json()


def add(rest: Rest, name: str, facts: dict[str, Any] | None = None, **report: Any) -> None:
    """A worker that reports this once."""
    plain = {"name": name, "version": "1", "topic": "t"}
    made = WorkerReport(**report)
    known = WorkerFacts(**plain | (facts or {}))
    Presence(rest.world.state, known, rest.world.observed, lambda: made).renew()


def durations(*found_s: float) -> Spread:
    return Spread.summed(Spread({bucket_of(each): 1}) for each in found_s)


def east(*times: Spread, **figures: Any) -> ClusterReport:
    """The cluster with how long its lock was waited for, and held."""
    return ClusterReport(name="east", times=LockTimes(*times), **figures)


def test_workers_are_listed_with_what_they_reported(rest):
    lately = Lately(
        over_s=290.0, placed=3, refused=1, durations=durations(0.01, 0.02, 0.02, 1.0),
        errors={"update_hosts: RequestError": 2},
    )  # fmt: skip
    add(
        rest, "b", slots=4, running=1, lag_s=0.5, lately=lately,
        clusters=(east(durations(0.001)),), feed={"c": PartReport(lag_s=2.0, hosts=7)},
    )  # fmt: skip
    add(rest, "a", facts={"is_drained": True})
    rest.clock.advance(7)
    first, second = read(rest, "/v1/workers")["items"]
    assert (first["name"], first["state"], first["age_s"]) == ("a", "drained", 7.0)
    assert (second["name"], second["state"]) == ("b", "serving")
    report = second["report"]
    assert (report["slots"], report["running"], report["lag_s"]) == (4, 1, 0.5)
    assert report["feed"] == {"c": {"lag_s": 2.0, "is_up": True, "hosts": 7}}
    requests = report["requests"]
    assert (requests["placed"], requests["refused"], requests["over_s"]) == (3, 1, 290.0)
    assert requests["duration"] == {"count": 4, "median_s": 0.0251, "p99_s": 1.0}
    assert requests["lock_wait"]["count"] == 1
    assert requests["lock_hold"] == {"count": 0, "median_s": None, "p99_s": None}
    assert requests["errors"] == {"update_hosts: RequestError": 2}


def test_workers_are_listed_page_by_page(rest):
    for name in "cab":
        add(rest, name)
    first = read(rest, "/v1/workers?limit=2")
    assert [each["name"] for each in first["items"]] == ["a", "b"]
    second = read(rest, first["next"])
    assert [each["name"] for each in second["items"]] == ["c"]
    assert second["next"] is None


def test_a_worker_without_a_report_has_none(rest):
    Presence(
        rest.world.state, WorkerFacts(name="a", version="0", topic="t"), rest.world.observed
    )._write(msgspec.json.encode({"name": "a", "version": "0", "topic": "t"}), None)
    [found] = read(rest, "/v1/workers")["items"]
    assert (found["state"], found["age_s"], found["report"]) == ("no report", None, None)


def test_all_is_well(rest):
    add(rest, "a")
    found = read(rest, "/v1/health")
    assert (found["status"], found["findings"]) == ("ok", [])
    assert (found["workers"], found["serving"]) == (1, 1)


def test_what_is_wrong_is_listed_with_the_worst_first(rest):
    add(rest, "a", facts={"is_drained": True})
    add(rest, "b", facts={"version": "2"}, missing=("the bus cannot reach amqp://u:secret@r",))
    add(rest, "c")
    rest.problems = {"state": [], "policy store": ["no connection"]}
    found = read(rest, "/v1/health")
    assert found["status"] == "failed"
    assert (found["workers"], found["serving"]) == (3, 1)
    assert [(each["status"], each["check"]) for each in found["findings"]] == [
        ("failed", "the policy store, from this API process"),
        ("failed", "worker b"),
        ("warning", "the workers"),
        ("warning", "the workers"),
    ]
    assert found["findings"][0]["fix"].startswith("See [policy_store] connection")
    assert "secret" not in found["findings"][1]["message"]


def test_clusters_are_added_up_over_workers(rest):
    add(rest, "a", clusters=(
        east(durations(0.001), durations(0.002), in_line=2, oldest_s=0.4, reservations=5),
        ClusterReport(name="west"),
    ))  # fmt: skip
    add(rest, "b", clusters=(
        east(durations(0.001, 0.5), in_line=1, oldest_s=1.5, reservations=6, held_s=0.1),
    ))  # fmt: skip
    found, west = read(rest, "/v1/health")["clusters"]
    assert (found["cluster"], found["in_line"], found["oldest_s"]) == ("east", 3, 1.5)
    assert (found["reservations"], found["holder"], found["held_s"]) == (6, "b", 0.1)
    assert found["lock_wait"] == {"count": 3, "median_s": 0.001, "p99_s": 0.501}
    assert found["lock_hold"]["count"] == 1
    assert (west["cluster"], west["holder"], west["held_s"]) == ("west", None, None)


def test_health_is_answered_while_the_workers_cannot_be_read(rest):
    add(rest, "a")

    def away(*_):
        raise StateUnavailable("Redis does not answer")

    rest.world.state.changes = away
    [found] = read(rest, "/v1/health")["findings"]
    assert (found["status"], found["message"]) == ("failed", "Redis does not answer")
    assert "redis-cli" in found["fix"]
    rest.problems = {"state": ["Redis does not answer"]}
    assert len(read(rest, "/v1/health")["findings"]) == 1


@pytest.mark.parametrize("path", ["/v1/workers", "/v1/health"])
def test_both_need_the_right_to_read(rest, path):
    rest.add_user("nobody")
    read(rest, path, 403, user="nobody")
