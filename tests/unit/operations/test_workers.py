"""The state of one worker with its drain, the reports of all, and the health of the whole."""

from typing import Any

import msgspec
import pytest

from scheduler_worker import remedies
from scheduler_worker.errors import Conflict, NotFound, RequestError, StateUnavailable
from scheduler_worker.events import STATE_ERRORS
from scheduler_worker.model.worker_reports import (
    ClusterReport,
    Lately,
    LockTimes,
    PartReport,
    Spread,
    WorkerFacts,
    WorkerReport,
    bucket_of,
)
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.callers import Right
from scheduler_worker.operations.policies import create_policy
from scheduler_worker.operations.workers import (
    dismiss_worker,
    drain_worker,
    get_health,
    get_worker,
    list_workers,
    resume_worker,
)
from scheduler_worker.ports import EngineGuarantees, Put, Transaction
from scheduler_worker.rpc.dispatcher import Message
from scheduler_worker.service.state import presence
from tests.support.archive import MemoryArchive
from tests.support.edges import Edges, OneWorker, filled
from tests.support.interrupted import raising
from tests.support.rest import Rest
from tests.support.services import World


@pytest.mark.parametrize(
    ("operation", "calls"),
    [(get_worker, []), (drain_worker, ["drain"]), (resume_worker, ["resume"])],
)
def test_a_worker_answers_with_its_state_and_only_when_it_is_named(operation, calls):
    world, worker = World(), OneWorker(None)
    services = world.services._replace(worker=worker)
    for name, said in ("w2", "this is w1; send it to scheduler.w2"), (3, "worker"):
        with pytest.raises(RequestError, match=said):
            world.call(operation, worker=name, services=services)
    assert worker.calls == []
    found = world.call(operation, worker="w1", services=services)
    assert (found.name, found.state, found.holds.leases) == ("w1", "serving", ("east",))
    assert worker.calls == calls
    assert operation.right is (Right.DRAIN if calls else Right.READ)


@pytest.mark.parametrize(("roles", "is_answered"), [(["auditor"], True), (["member"], False)])
def test_a_question_is_answered_at_once_unless_its_refusal_has_to_be_recorded(roles, is_answered):
    message = Message(
        method="get_worker", namespace="scheduler_worker", version="1.5", args={"worker": "w1"},
        context={"roles": roles},
    )  # fmt: skip
    assert Edges(filled()).dispatcher.is_non_blocking(message) is is_answered


def test_every_operation_of_one_worker_names_it():
    of_one = [each for each in OPERATIONS if each.home == "worker"]
    assert of_one
    assert all(each.fields[0].name == "worker" for each in of_one)


# Reports of all workers


def add(rest: Rest, name: str, facts: dict[str, Any] | None = None, **report: Any) -> None:
    """A worker that reports this once."""
    known = WorkerFacts(**{"name": name, "version": "1", "topic": "t"} | (facts or {}))
    made = WorkerReport(**report)
    presence.Presence(rest.world.state, known, lambda: made).renew()


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
    first, second = rest.call(list_workers).items
    assert (first.name, first.state, first.age_s) == ("a", "drained", 7.0)
    assert (second.name, second.state) == ("b", "serving")
    report = second.report
    assert (report.slots, report.running, report.lag_s) == (4, 1, 0.5)
    assert msgspec.to_builtins(report.feed) == {"c": {"lag_s": 2.0, "is_up": True, "hosts": 7}}
    requests = report.requests
    assert (requests.placed, requests.refused, requests.over_s) == (3, 1, 290.0)
    duration = requests.duration
    assert (duration.count, duration.median_s, duration.p99_s) == (4, 0.0251, 1.0)
    assert requests.lock_wait.count == 1
    hold = requests.lock_hold
    assert (hold.count, hold.median_s, hold.p99_s) == (0, None, None)
    assert requests.errors == {"update_hosts: RequestError": 2}


def test_a_worker_without_a_report_has_none(rest):
    put = Put("w:a", b'{"name": "a", "version": "0", "topic": "t"}')
    rest.world.state.write(presence.SCOPE, [Transaction([put])])
    [found] = rest.call(list_workers).items
    assert (found.state, found.age_s, found.report) == ("no report", None, None)


# Health

LASTING = EngineGuarantees(spans_processes=True, survives_restart=True)


def test_all_is_well(rest):
    add(rest, "a")
    found = rest.call(get_health)
    assert (found.status, found.findings) == ("ok", [])
    assert (found.workers, found.serving) == (1, 1)


def test_a_state_that_may_lose_policies_is_found_once_there_are_some(rest, monkeypatch):
    add(rest, "a")
    rest.call(create_policy, name="packing")
    [found] = rest.call(get_health).findings
    assert (found.status, found.check) == ("warning", "the book of policies")
    assert "memory://: a restart may lose all policies; no archive has a copy" in found.message
    monkeypatch.setattr(rest.office.parts.copies, "_open", MemoryArchive)
    assert rest.call(get_health).findings == []  # they come back
    monkeypatch.setattr(rest.world.state, "loses", lambda: "Redis keeps no append-only file")
    monkeypatch.setattr(rest.world.state, "characteristics", LASTING)
    [found] = rest.call(get_health).findings
    assert "no append-only file: a restart may lose all policies; they are" in found.message
    monkeypatch.setattr(rest.world.state, "loses", lambda: None)
    assert rest.call(get_health).findings == []


def test_a_lost_worker_counts_and_its_figures_do_not(rest):
    add(rest, "a")
    add(
        rest, "b", clusters=(ClusterReport(name="east", held_s=1.0),),
        lately=Lately(placed=9), feed={"c": PartReport(lag_s=1.0)},
    )  # fmt: skip
    rest.clock.advance(presence.LOST_S + 1)
    add(rest, "a")
    found = rest.call(get_health)
    assert (found.status, found.workers, found.serving) == ("warning", 2, 1)
    assert "worker dismiss b" in found.findings[0].fix
    assert (found.requests.placed, found.clusters, found.feed) == (0, [], {})
    before = rest.state()
    for name, error in ("a", Conflict), ("x", NotFound):
        with pytest.raises(error):
            rest.call(dismiss_worker, worker=name)
    assert (rest.state(), rest.world.audited()) == (before, [])  # it was refused, so not done
    assert rest.call(dismiss_worker, worker="b") is None
    assert [each.name for each in rest.call(list_workers).items] == ["a"]


def test_what_is_wrong_is_listed_with_the_worst_first(rest):
    add(rest, "a", facts={"is_drained": True})
    add(rest, "b", facts={"version": "2"}, missing=("the bus cannot reach amqp://u:secret@r",))
    add(rest, "c", lately=Lately(errors={STATE_ERRORS.troubles[""].text: 2}))
    rest.problems = {"state": [], "archive of policies": ["no connection"]}
    found = rest.call(get_health)
    assert (found.status, found.workers, found.serving) == ("failed", 3, 1)
    assert [(each.status, each.check) for each in found.findings] == [
        ("failed", "the archive of policies, from this API process"),
        ("failed", "worker b"),
        ("warning", "the workers"),
        ("warning", "the workers"),
        ("warning", "worker c"),
    ]
    assert found.findings[0].fix.startswith("See [policy_store] connection")
    assert "secret" not in found.findings[1].message
    assert found.findings[-1].fix == f"{remedies.STATE} (docs/runbook.md, SchedulerStateOutage)"


def test_clusters_are_added_up_over_workers(rest):
    add(rest, "a", clusters=(
        east(durations(0.001), durations(0.002), in_line=2, oldest_s=0.4, reservations=5),
        ClusterReport(name="west"),
    ))  # fmt: skip
    add(rest, "b", clusters=(
        east(durations(0.001, 0.5), in_line=1, oldest_s=1.5, reservations=6, held_s=0.1),
    ))  # fmt: skip
    found, west = rest.call(get_health).clusters
    assert (found.cluster, found.in_line, found.oldest_s) == ("east", 3, 1.5)
    assert (found.reservations, found.holder, found.held_s) == (6, "b", 0.1)
    wait = found.lock_wait
    assert (wait.count, wait.median_s, wait.p99_s) == (3, 0.001, 0.501)
    assert found.lock_hold.count == 1
    assert (west.cluster, west.holder, west.held_s) == ("west", None, None)


def test_health_is_answered_while_the_workers_cannot_be_read(rest, monkeypatch):
    away = raising(StateUnavailable("Redis does not answer"))
    monkeypatch.setattr(rest.world.state, "changes", away)
    health = rest.call(get_health)
    assert (health.workers, health.serving, health.requests) == (None, None, None)
    [found] = health.findings
    assert (found.status, found.message) == ("failed", "Redis does not answer")
    assert "redis-cli" in found.fix
    rest.problems = {"state": ["Redis does not answer"]}
    assert len(rest.call(get_health).findings) == 1
