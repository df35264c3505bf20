"""What requests leave becomes records, behind their answers."""

from typing import Any

import pytest

from scheduler_worker import events
from scheduler_worker.backends.decision_log import MemoryDecisionLog
from scheduler_worker.errors import NoValidHost, StateUnavailable
from scheduler_worker.model.decision_history import (
    ComputeNode,
    DecisionDetails,
    KeptDecision,
    Margin,
)
from scheduler_worker.model.decisions import FilterStep, Ranked
from scheduler_worker.observer import Outcome
from scheduler_worker.ports import GLOBAL
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.service.decisions import recorder
from scheduler_worker.service.decisions.recorder import BATCH, lead, why_placed
from tests.support.decisions import Records
from tests.support.interrupted import raising
from tests.support.observers import CountingObserver
from tests.support.services import World, host


class Log(MemoryDecisionLog):
    """One that can be away."""

    is_away = False

    def append(self, *arguments: Any, **more: Any) -> None:
        if self.is_away:
            raise StateUnavailable("the log is away")
        super().append(*arguments, **more)


class Office:
    """A worker, of whose decisions records are kept."""

    def __init__(self, max_waiting: int = 100) -> None:
        self.world = World()
        self.log = Log(clock=self.world.clock)
        self.counted = CountingObserver()
        made = Records(self.world, log=self.log, max_waiting=max_waiting, observer=self.counted)
        self.recorder, self.kept, self.records = made.recorder, made.kept, made.newest

    def last(self) -> tuple[KeptDecision, DecisionDetails]:
        [newest, *_] = self.records()
        found = self.kept.get(newest.id)
        assert found is not None and found.details is not None
        assert found.outline == newest.outline
        return found, found.details


@pytest.fixture
def office() -> Office:
    return Office()


def test_a_placed_request_is_kept_in_full(office):
    office.world.report(host("a"), host("b", memory_mb=4096), host("c", vcpus_used=4))
    office.world.ask(
        "i1",
        alternates=1,
        request_id="r1",
        global_request_id="g1",
        project_id="p1",
        flavor={"vcpus": 1, "memory_mb": 512, "name": "m1"},
    )
    kept, details = office.last()
    outline = kept.outline
    assert kept.id.scope == "default"
    assert (outline.result, outline.worker, outline.hosts) == ("placed", "w1", ("a",))
    assert (outline.request_id, outline.global_request_id) == ("r1", "g1")
    assert (outline.project_id, outline.cluster, outline.instances) == ("p1", "default", ("i1",))
    assert (outline.flavor, outline.error) == ("m1", None)
    assert outline.policy is not None and outline.policy.startswith("nova@")
    assert outline.decided_at_s == office.world.clock.time_s()
    assert outline.reason == "Host a: first of 2 hosts that pass, by RAMWeigher (1.00)."
    assert details.candidates == 3
    assert FilterStep("CoreFilter", 3, 2) in details.filters
    assert details.selections == ((ComputeNode("a", "a"), ComputeNode("b", "b")),)
    assert details.ranked.weighers == ("RAMWeigher", "CPUWeigher")
    best, second = details.ranked.hosts
    assert (best.host, second.host) == ("a", "b")
    assert best.shares == {"RAMWeigher": 1.0, "CPUWeigher": 1.0}
    assert (best.total, second.total) == (2.0, 1.5)
    assert (details.attempts, details.num_alternates) == (1, 1)


def test_the_same_request_can_be_decided_again(office):
    office.world.report(host("a"), host("b"))
    hints = {"scheduler_hints": {"different_host": ["x"]}, "availability_zone": None}
    decision = office.world.ask("i1", vcpus=2, project_id="p", **hints)
    _, details = office.last()
    request = Request(spec=details.spec, instance_uuids=("another",))
    _, again = office.world.scheduler.rehearse(request, limit=1)
    assert details.spec.project_id == "p"
    assert details.spec.hint("different_host") == "x"
    assert again.reason is None
    assert decision.selections[0][0].service_host in {each.host for each in details.ranked.hosts}


def test_a_refused_request_is_kept_with_the_filter_that_left_nothing(office):
    office.world.report(host("a"), host("b"))
    with pytest.raises(NoValidHost):
        office.world.ask("i1", vcpus=99)
    kept, details = office.last()
    assert (kept.outline.result, kept.outline.error) == ("refused", "NoValidHost")
    assert kept.outline.reason == "No host: of 2 hosts none has 99 vCPUs left."
    assert (kept.outline.hosts, details.ranked.hosts, details.selections) == ((), (), ())
    assert FilterStep("CoreFilter", 2, 0) in details.filters


def test_the_last_of_several_instances_is_what_a_record_tells_of(office):
    office.world.report(host("a"))
    office.world.ask("i1", "i2")
    kept, _ = office.last()
    assert kept.outline.reason == (
        "The last of 2 instances: Host a: the only one of 1 host that passes."
    )
    with pytest.raises(NoValidHost):
        office.world.ask("i3", "i4", "i5")
    kept, _ = office.last()
    assert kept.outline.reason == "No hosts for 3 instances: of 1 host none has 1 vCPU left."


def test_a_host_that_was_drawn_is_kept_with_the_one_that_weighs_more():
    names = ("b", "a")
    ranked = Ranked(("RAMWeigher",), names, names, (None, None), ((None, None),))
    outcome = Outcome(request_id="r", result="placed", hosts=("a",), candidates=9, passed=4)
    said = why_placed(outcome.hosts, lead(outcome, ranked))
    assert said == "Host a: drawn from the best of 4 hosts that pass; b has the highest weight."


@pytest.mark.parametrize(
    ("given", "leads"),
    [
        ((1.0, 0.5), True),
        ((0.5, 0.5), False),
        ((0.5, 1.0), False),
        ((None, 0.5), False),
        ((0.5, None), False),
        ((1.0,), False),
        ((), False),
    ],
)
def test_a_weigher_leads_to_a_host_where_it_gives_it_more_than_the_next(given, leads):
    ranked = Ranked(("RAMWeigher",), ("a", "b"), ("a", "b"), (1.0, 0.5), (given,))
    outcome = Outcome(request_id="r", result="placed", hosts=("a",), candidates=9, passed=4)
    found = lead(outcome, ranked)
    assert found == Margin(9, 4, (("RAMWeigher", 1.0, 0.5),) if leads else ())


def test_a_request_that_failed_is_kept_with_its_error(office, monkeypatch):
    office.world.report(host("a"))

    away = raising(StateUnavailable("The shared state is away"))
    monkeypatch.setattr(office.world.state, "acquire", away)
    with pytest.raises(StateUnavailable):
        office.world.ask("i1")
    kept, _ = office.last()
    assert (kept.outline.result, kept.outline.error) == ("failed", "StateUnavailable")
    assert kept.outline.reason == "The shared state is away"


def test_what_belongs_to_no_cluster_is_kept_too_and_is_found(office):
    with pytest.raises(NoValidHost):
        office.world.ask("i1")
    kept, _ = office.last()
    assert kept.id.scope == GLOBAL
    assert [each.id for each in office.records(instance="i1")] == [kept.id]


def test_a_decision_over_two_clusters_is_found_by_each(office):
    office.world.report(host("a", vcpus=1, cluster="one"), host("b", vcpus=1, cluster="two"))
    office.world.ask("i1", "i2")
    [kept] = office.records(cluster="one")
    assert kept.outline.cluster == "one+two"
    assert [each.id for each in office.records(cluster="two")] == [kept.id]
    assert office.records(cluster="default") == []


def test_records_wait_while_the_log_is_away_and_none_is_written_twice(office, caplog):
    office.world.report(host("a"))
    office.log.is_away = True
    office.world.ask("i1")
    office.recorder.write()
    office.world.ask("i2")
    office.recorder.write()
    assert office.recorder.waiting == 2
    assert caplog.text.count("Records of decisions wait until they can be written") == 1
    office.log.is_away = False
    assert [each.outline.instances for each in office.records()] == [("i2",), ("i1",)]
    assert office.counted.of(events.DECISION_RECORDS) == {"written": 2}


def test_records_without_room_are_dropped_and_counted_and_the_request_is_served(caplog):
    office = Office(max_waiting=2)
    office.world.report(host("a"))
    office.log.is_away = True
    for number in range(4):
        assert office.world.place(f"i{number}") == ["a"]
    assert office.counted.of(events.DECISION_RECORDS) == {"dropped": 2}
    for _ in range(2):
        office.recorder.write()
    assert caplog.text.count("dropped, as too many wait: 2") == 1
    office.log.is_away = False
    assert [each.outline.instances for each in office.records()] == [("i1",), ("i0",)]


def test_a_record_that_cannot_be_made_costs_no_other(office, caplog, monkeypatch):
    office.world.report(host("a"))
    for number in range(3):
        office.world.ask(f"i{number}", request_id=f"r{number}")
    make = recorder._outline

    def outline(left: Any, worker: str, why: str) -> Any:
        if left.outcome.request_id == "r1":
            raise ValueError("odd")
        return make(left, worker, why)

    monkeypatch.setattr(recorder, "_outline", outline)
    assert [each.outline.request_id for each in office.records()] == ["r2", "r0"]
    assert "No record can be made of request r1" in caplog.text
    assert office.counted.of(events.DECISION_RECORDS) == {"written": 2, "dropped": 1}


def test_a_batch_that_always_fails_is_dropped_and_the_next_is_written(office, caplog, monkeypatch):
    office.world.report(host("a"))
    monkeypatch.setattr(office.log, "append", raising(ValueError("odd")))
    office.world.ask("i1")
    office.recorder.write()
    monkeypatch.undo()
    office.world.ask("i2")
    assert [each.outline.instances for each in office.records()] == [("i2",)]
    assert "cannot be written and are dropped" in caplog.text
    assert office.counted.of(events.DECISION_RECORDS) == {"written": 1, "dropped": 1}


def test_a_full_batch_is_written_at_once(office, monkeypatch):
    woken = []
    monkeypatch.setattr(office.recorder, "wake", lambda: woken.append(True))
    office.world.report(host("a", vcpus=10_000, memory_mb=10_000, local_gb=10))
    office.recorder._max_waiting = 10_000
    decided = office.world.ask("i0", memory_mb=1)
    [left] = office.recorder._waiting
    for _ in range(BATCH - 2):
        office.recorder.keep(left.request, left.outcome, decided)
    assert not woken
    office.recorder.keep(left.request, left.outcome, decided)
    assert woken


def test_a_stop_says_what_is_lost(office, caplog):
    office.world.report(host("a"))
    office.log.is_away = True
    office.world.ask("i1")
    office.recorder.stop()
    assert "could not be written before the end: 1" in caplog.text
