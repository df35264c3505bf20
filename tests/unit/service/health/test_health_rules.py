"""What is wrong with workers, and how to fix it."""

import re
from pathlib import Path
from typing import Any

import pytest

from scheduler_worker import events, remedies
from scheduler_worker.model.findings import Finding, Status
from scheduler_worker.model.host_records import HostCounts
from scheduler_worker.model.worker_reports import (
    Lately,
    PartReport,
    Spread,
    WorkerFacts,
    WorkerReport,
    bucket_of,
)
from scheduler_worker.service.health import rules
from scheduler_worker.service.state.presence import WorkerHealth

RUNBOOK = Path(__file__).parents[4] / "docs" / "runbook.md"


def worker(name: str = "a", age_s: float = 3.0, facts: Any = None, **report: Any) -> WorkerHealth:
    plain = {"name": name, "version": "1", "topic": "t"}
    return WorkerHealth(WorkerFacts(**plain | (facts or {})), WorkerReport(**report), age_s)


def judged(*workers: WorkerHealth) -> list[Finding]:
    return list(rules.findings(workers))


def only(*workers: WorkerHealth) -> tuple[Status, str, str]:
    [found] = judged(*workers)
    assert found.fix
    return found.status, found.check, found.message


def lately(**figures: Any) -> dict[str, Any]:
    return {"lately": Lately(**figures)}


def test_workers_that_serve_are_well():
    busy = lately(placed=90, refused=10, durations=Spread({bucket_of(0.01): 100}))
    part = PartReport(lag_s=8.0, hosts=5)
    assert judged(worker("a", lag_s=0.2, feed={"c": part}, **busy), worker("b")) == []


def test_without_workers_nothing_is_served():
    assert only() == (Status.FAILED, "the workers", "there is none: no request is served")
    only(worker(facts={"is_dry_run": True}))


def test_a_lost_worker_is_not_heard_on_other_things():
    lost = worker("b", age_s=7800, missing=["the bus is away"], facts={"is_drained": True})
    assert only(worker("a"), lost) == (
        Status.WARNING,
        "worker b",
        "it has reported nothing for 2 h 10 min",
    )
    assert [(each.check, each.status) for each in judged(lost)] == [
        ("the workers", Status.FAILED),
        ("worker b", Status.WARNING),
    ]


def test_what_is_missing_is_said_once_for_all_workers_and_mended_where_it_is():
    away = "the bus cannot reach RabbitMQ"
    found = judged(worker("a", missing=(away,)), worker("b", missing=(away,)), worker("c"))
    assert found == [Finding(Status.FAILED, "workers a, b", away, remedies.BUS)]
    unread = "Nova's databases have not been read yet; try again"
    [one] = judged(worker("a", missing=(unread,), facts={"is_feeding": True}), *feeding("b"))
    assert remedies.NOVA_DATABASES in one.fix
    [one] = judged(worker("a", missing=("Redis does not answer",)), worker("b"))
    assert one.fix == remedies.STATE
    full = "The shared state cannot be used: command not allowed when used memory > 'maxmemory'."
    [one] = judged(worker("a", missing=(full,)), worker("b"))
    assert one.fix == remedies.STATE_FULL
    refused = f"The shared state cannot be used: {remedies.REFUSED}: no evalsha"
    [one] = judged(worker("a", missing=(refused,), facts={"is_feeding": True}), *feeding("b"))
    assert one.fix == remedies.STATE_ACCOUNT


def feeding(*names: str) -> list[WorkerHealth]:
    return [worker(each, facts={"is_feeding": True}) for each in names]


def test_if_none_serves_that_is_said_first():
    found = judged(worker("a", facts={"is_drained": True}, missing=(remedies.DRAINED,)))
    assert [each.message for each in found] == [
        "none of 1 serves: requests wait in the queue until their callers give up",
        "drained workers take no requests: a",
    ]
    assert found[1].fix == "scheduler-workerctl worker resume a"


def test_versions_and_configurations_that_differ():
    assert only(worker("a"), worker("b", facts={"version": "2"})) == (
        Status.WARNING,
        "the workers",
        "versions 1, 2 are in use at the same time",
    )
    assert only(worker("a"), worker("b", facts={"is_claiming": True})) == (
        Status.FAILED,
        "the workers",
        "[nova_claims] enabled is on for b, and off for a",
    )
    only(worker("a"), *feeding("b"))


@pytest.mark.parametrize("other", [{"topic": "elsewhere"}, {"is_dry_run": True}])
def test_other_topics_and_dry_runs_may_differ(other):
    assert judged(worker("a"), worker("b", facts={"is_claiming": True, **other})) == []


def test_a_cell_lags_as_far_as_the_worker_says_that_knows_best():
    old, new = PartReport(lag_s=300.0, hosts=5), PartReport(lag_s=1.0, hosts=5)
    assert judged(worker("a", feed={"c": old}), worker("b", feed={"c": new})) == []
    never = PartReport(lag_s=None)
    assert only(worker("a", feed={"c": never}), worker("b", feed={"c": old})) == (
        Status.FAILED,
        "the cell c",
        "not all of its 5 hosts have been known for 300 s",
    )
    assert "cannot be read" in only(worker(feed={"c": PartReport(lag_s=0.0, is_up=False)}))[2]
    assert judged(worker(feed={"c": never})) == []  # it is missing, which the worker says itself


def test_requests_that_wait_take_long_or_find_no_host():
    assert "for up to 6 s" in only(worker("a", lag_s=6.0), worker("b", lag_s=0.0))[2]
    slow = lately(durations=Spread({bucket_of(0.1): 90, bucket_of(50.0): 10}))
    assert "one of a hundred takes 50" in only(worker(**slow))[2]
    assert only(worker("a", **lately(refused=10, placed=30)), worker("b", **lately(refused=10))) \
        == (Status.WARNING, "requests", "20 of 50 find no host")  # fmt: skip
    assert judged(worker(**lately(refused=10))) == []  # too few to say


@pytest.mark.parametrize(
    ("hosts", "status", "message"),
    [
        (HostCounts(up=90, down=10, asleep=50, disabled=50), None, ""),
        (HostCounts(up=8, down=1, asleep=9), Status.WARNING, "1 of 9 hosts are down (11%)"),
        (
            HostCounts(down=1000, disabled=3),
            Status.FAILED,
            "none of its hosts is up: 1000 down, 3 disabled, 0 asleep",
        ),
    ],
)
def test_hosts_of_a_cluster_that_are_down_are_found(hosts, status, message):
    fine = worker("a", hosts={"west": HostCounts(up=2)})
    found = judged(fine, worker("b", hosts={"east": hosts}))
    expected = [] if status is None else [(status, "cluster east", message)]
    assert [(each.status, each.check, each.message) for each in found] == expected


def test_a_cloud_without_hosts_is_found():
    none = Status.FAILED, "the hosts", "none is known: every request is refused"
    empty = worker("a", hosts={"gone": HostCounts()}, known_clusters=1)
    assert only(empty, worker("b", known_clusters=0)) == none
    assert only(worker("a", known_clusters=0)) == none


def test_hosts_that_no_worker_counts_are_not_taken_for_none():
    """The leader of a cluster was lost, or has not counted yet."""
    empty = worker("a", hosts={"gone": HostCounts()}, known_clusters=2)
    assert judged(empty, worker("b")) == []
    assert judged(worker("a", hosts={"gone": HostCounts()})) == []
    assert judged(worker("a", known_clusters=1)) == []
    leader = worker("b", age_s=21, hosts={"east": HostCounts(up=9)}, known_clusters=2)
    assert [each.check for each in judged(empty, leader)] == ["worker b"]


def test_machines_that_report_as_one_are_named():
    text = "host a is reported with uuid u, v by turns"
    expected = Status.WARNING, "the hosts", text
    assert only(worker("a", contests=(text,)), worker("b", contests=(text,))) == expected


@pytest.mark.parametrize(
    ("field", "check"), [("tuning_alarms", "tuning policies"), ("unit_alarms", "external units")]
)
def test_alarms_are_said_once(field, check):
    alarms: dict[str, Any] = {field: ("this.yaml: line 3: no such statistic",)}
    found = judged(worker("a", **alarms), worker("b", **alarms))
    assert [(each.check, each.message) for each in found] == [
        (f"{check}, workers a, b", alarms[field][0])
    ]


def test_troubles_are_added_up_over_workers():
    trouble = events.DECISION_RECORDS.troubles["dropped"].text
    some, more = lately(errors={trouble: 2}), lately(errors={trouble: 3, "m: RequestError": 1})
    assert only(worker("a", **some), worker("b", **more), worker("c")) == (
        Status.WARNING,
        "workers a, b",
        "records of decisions dropped: 5 in the last five minutes",
    )


def test_a_defect_is_a_failure():
    status, _, text = only(worker(**lately(errors={"select_destinations: InternalError": 1})))
    assert status is Status.FAILED
    assert text.startswith("select_destinations: InternalError: 1 ")


def test_every_section_of_the_runbook_that_is_named_exists():
    errors = {**dict.fromkeys(events.TROUBLES, 1), "m: InternalError": 1}
    bad = PartReport(is_up=False)
    slow = Spread({bucket_of(100.0): 1})
    found = judged(
        worker(feed={"c": bad}, lag_s=9.0, **lately(errors=errors, refused=99, durations=slow))
    )
    named = {name for each in found for name in re.findall(r"runbook.md, (\w+)", each.fix)}
    assert len(named) > 12
    headings = set(re.findall(r"^## (\w+)", RUNBOOK.read_text(), re.MULTILINE))
    assert named <= headings
