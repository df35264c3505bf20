"""What the doctor says of facts."""

from typing import Any

import pytest

from scheduler_worker.doctor import rules
from scheduler_worker.model.feed import ChangedRow, ServiceState, ServiceStates
from scheduler_worker.model.findings import Status, document, failed, ok, summary, warning
from scheduler_worker.model.providers import ProviderEntry
from scheduler_worker.model.worker_reports import WorkerFacts

NOW_S = 1_000_000.0
OVERLAP_S = 10.0


def statuses(findings) -> list[str]:
    return [str(each.status) for each in findings]


def moments(database_s: float, *, took_s: float = 0.0) -> rules.Moments:
    return rules.Moments(NOW_S, database_s, NOW_S + took_s)


@pytest.mark.parametrize(
    ("database_s", "took_s", "expected"),
    [
        (NOW_S, 0.0, "ok"),
        (NOW_S - 0.9, 0.0, "ok"),  # it has whole seconds
        (NOW_S + 20, 30.0, "ok"),  # it was asked at any time in between
        (NOW_S + 2.5, 0.0, "warning"),
        (NOW_S - 3.5, 0.0, "warning"),
    ],
)
def test_a_databases_clock_is_compared_with_ours(database_s, took_s, expected):
    found = rules.clocks("c", moments(database_s, took_s=took_s), None, OVERLAP_S)
    assert statuses(found) == [expected]


@pytest.mark.parametrize(
    ("state_s", "expected", "seem"),
    [
        (NOW_S + 1.5, "ok", ""),
        (NOW_S + 90, "warning", "90 s ahead of this host's: computes that keep the time as this "
         "host does seem down too early"),
        (NOW_S - 91, "warning", "90 s behind this host's"),
    ],
)  # fmt: skip
def test_the_shared_states_clock_is_compared_with_ours(state_s, expected, seem):
    found = rules.state_clock("c", moments(state_s))
    assert str(found.status) == expected
    assert seem in found.message


@pytest.mark.parametrize(
    ("ahead_s", "expected"), [(-30.0, "ok"), (1.0, "ok"), (5.0, "warning"), (11.0, "failed")]
)
def test_heartbeats_from_the_future_show_a_conductors_clock(ahead_s, expected):
    assert statuses(rules.clocks("c", moments(NOW_S), NOW_S + ahead_s, OVERLAP_S)) == [expected]


def compute(*, mapped: str = "", beats: dict[str, float | None], **states) -> rules.Compute:
    services = {
        host: ServiceState(None if ago_s is None else NOW_S - ago_s, **states.get(host, {}))
        for host, ago_s in beats.items()
    }
    nodes = [ChangedRow(f"uuid-{host}", host, NOW_S) for host in ("a", "b")]
    part_of = dict.fromkeys(mapped, "cell")
    return rules.Compute("cell", nodes, part_of, ServiceStates(NOW_S, services))


def test_a_host_without_a_mapping_is_named_with_the_command_that_maps_it():
    [first, second] = rules.computes("c", compute(mapped="a", beats={"a": 1.0, "b": 1.0}), 60.0)
    assert (first.status, second.status) == (Status.WARNING, Status.OK)
    assert "1 hosts have no mapping" in first.message
    assert first.message.endswith(": b")
    assert "discover_hosts" in first.fix


def test_a_mapping_to_another_cell_is_none():
    known = compute(mapped="ab", beats={"a": 1.0, "b": 1.0})._replace(part_id="other")
    assert statuses(rules.computes("c", known, 60.0)) == ["warning", "failed"]


@pytest.mark.parametrize(
    ("beats", "states", "expected"),
    [
        ({"a": 1.0, "b": 1.0}, {}, ("ok", "2 compute services are up")),
        ({"a": 61.0, "b": 1.0}, {}, ("warning", "1 of 2 compute services are down: a")),
        ({"b": 1.0}, {}, ("warning", "1 of 2 compute services are down: a")),
        ({"a": None, "b": 1.0}, {}, ("warning", "1 of 2 compute services are down: a")),
        (
            {"a": 1.0, "b": 1.0},
            {"b": {"forced_down": True}},
            ("warning", "1 of 2 compute services are down: b"),
        ),
        ({"a": 99.0, "b": 99.0}, {}, ("failed", "2 of 2 compute services are down: a, b")),
        (
            {"a": 1.0, "b": 1.0},
            {"a": {"disabled": True}},
            ("ok", "2 compute services are up, 1 disabled"),
        ),
    ],
)
def test_computes_that_are_down_are_named(beats, states, expected):
    [found] = rules.computes("c", compute(mapped="ab", beats=beats, **states), 60.0)
    assert (str(found.status), found.message) == expected


def listed(uuid: str, generation: int = 3) -> ProviderEntry:
    return ProviderEntry(uuid=uuid, name=uuid, generation=generation, root_provider_uuid=uuid)


def test_computes_without_a_provider_cannot_be_claimed():
    nodes = {"u1": "a", "u2": "b"}
    assert statuses(rules.providers("p", nodes, [listed("u1"), listed("u2")])) == ["ok"]
    [missing] = rules.providers("p", nodes, [listed("u1")])
    assert missing.status is Status.FAILED
    assert missing.message.startswith("1 of 2 compute nodes have no resource provider")
    assert missing.message.endswith(": b")
    [untouched] = rules.providers("p", nodes, [listed("u1", 0), listed("u2")])
    assert (untouched.status, untouched.message[-3:]) == (Status.WARNING, ": a")


US = WorkerFacts(name="me", version="1", topic="t", is_claiming=True, is_feeding=True)


def worker(name: str = "w", **facts) -> WorkerFacts:
    plain: dict[str, Any] = {"version": "1", "topic": "t", "is_claiming": True, "is_feeding": True}
    return WorkerFacts(**plain | {"name": name} | facts)


@pytest.mark.parametrize(
    ("facts", "status", "message"),
    [
        ({}, "ok", "2 workers share the state: a, b"),
        ({"topic": "other", "is_claiming": False}, "ok", "2 workers share the state: a, b"),
        ({"topic": "other", "is_drained": True}, "ok", "2 workers share the state: a, b"),
        ({"is_dry_run": True, "is_claiming": False}, "ok", "2 workers share the state: a, b"),
        ({"version": "2"}, "warning", "versions 1, 2 are in use at the same time"),
        (
            {"is_claiming": False},
            "failed",
            "[nova_claims] enabled is on for b, this configuration, and off for a",
        ),
    ],
)
def test_workers_are_compared_with_each_other_and_this_configuration(facts, status, message):
    [found] = rules.workers("w", US, [worker("a", **facts), worker("b")])
    assert (str(found.status), found.message) == (status, message)


def test_drained_workers_are_named_and_do_not_count_as_consumers():
    found = [worker("a"), worker("b", is_drained=True)]
    [warned] = rules.workers("w", US, found)
    assert (warned.status, warned.fix) == (Status.WARNING, "scheduler-workerctl worker resume b")
    assert warned.message == "drained workers take no requests: b"
    assert rules.consumers("q", US, found, 1, 0).status is Status.OK
    assert rules.consumers("q", US, found, 2, 0).status is Status.FAILED


@pytest.mark.parametrize(
    ("count", "found", "expected"),
    [
        (0, [], "ok"),
        (1, [], "warning"),  # nova-scheduler alone, before the switch
        (1, ["a"], "ok"),
        (2, ["a"], "failed"),  # both at once
        (0, ["a"], "warning"),
    ],
)
def test_who_consumes_is_known(count, found, expected):
    workers = [worker(each) for each in found]
    assert str(rules.consumers("q", US, workers, count, 0).status) == expected


def test_a_dry_run_is_meant_to_be_beside_nova_scheduler():
    dry = worker("me", is_dry_run=True)
    assert rules.consumers("q", dry, [dry], 1, 0).status is Status.OK


def test_findings_are_shown_without_secrets():
    found = [
        ok("a", "fine"),
        warning("b", "mysql://u:p@db/nova is slow", "Buy another"),
        failed("c", "password = hunter2"),
    ]
    assert [str(each) for each in found] == [
        "ok      a: fine",
        "warning b: mysql://***@db/nova is slow. Buy another",
        "failed  c: password = ***",
    ]
    assert summary(found) == "1 failed, 1 warnings, 1 ok"
    assert document(found)[1] == {
        "status": "warning",
        "check": "b",
        "message": "mysql://***@db/nova is slow",
        "fix": "Buy another",
    }
