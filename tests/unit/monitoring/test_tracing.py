"""Traces: spans of a request and of the parts of its way, in its caller's trace."""

import threading
import time
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import StatusCode

from scheduler_worker.monitoring import tracing
from scheduler_worker.monitoring.tracing import Tracing, parent_of
from scheduler_worker.observer import Outcome, Phase
from tests.support.interrupted import raising

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
NOT_SAMPLED = f"00-{TRACE}-{SPAN}-00"


class Collector(SpanExporter):
    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.spans: list[ReadableSpan] = []
        self.result = result
        self.is_shut_down = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return self.result

    def shutdown(self) -> None:
        self.is_shut_down = True


class Traced:
    """What is sent for requests until the end."""

    def __init__(self, collector: Collector, ratio: float = 1.0) -> None:
        self.collector = collector
        self.counts: Counter[str] = Counter()
        self.is_started = False
        self.tracing = Tracing(collector, self._count, worker="w1", ratio=ratio)

    def _count(self, result: str, count: int) -> None:
        self.counts[result] += count

    def start(self) -> None:
        """Begin to send; idempotent."""
        if not self.is_started:
            self.is_started = True
            self.tracing.start()

    def record(self, *outcomes: Outcome) -> list[ReadableSpan]:
        self.start()
        for each in outcomes:
            self.tracing.record(each)
        self.tracing.stop()
        return self.collector.spans


def outcome(**fields: object) -> Outcome:
    now_s = time.monotonic()
    found = {
        "request_id": "req-1",
        "result": "placed",
        "hosts": ("a",),
        "cluster": "east",
        "duration_s": 3.0,
        "ended_s": now_s,
        "phases": (Phase("lock", now_s - 3, now_s - 2), Phase("claim", now_s - 2, now_s)),
    }
    return Outcome(**found | fields)  # type: ignore[arg-type]


@pytest.fixture
def traced() -> Traced:
    return Traced(Collector())


def test_a_request_is_a_span_with_one_for_each_part_of_its_way(traced):
    root, lock, claim = traced.record(outcome())
    assert [each.name for each in (root, lock, claim)] == ["select_destinations", "lock", "claim"]
    assert root.parent is None
    assert lock.parent == claim.parent == root.context
    assert {each.context.trace_id for each in (root, lock, claim)} == {root.context.trace_id}
    assert len({each.context.span_id for each in (root, lock, claim)}) == 3
    assert (root.end_time - root.start_time) / 1e9 == pytest.approx(3.0, abs=1e-3)
    assert lock.start_time == pytest.approx(root.start_time, abs=1e6)
    assert claim.end_time == pytest.approx(root.end_time, abs=1e6)
    assert abs(root.end_time / 1e9 - time.time()) < 60
    assert root.attributes["scheduler.hosts"] == ("a",)
    assert root.attributes["openstack.request_id"] == "req-1"
    assert "openstack.project_id" not in root.attributes
    assert root.resource.attributes["service.instance.id"] == "w1"
    assert traced.counts == {"exported": 1}
    assert traced.collector.is_shut_down


def test_the_wait_for_a_slot_comes_first_and_the_answer_last(traced):
    found = outcome()
    began_s = found.ended_s - found.duration_s
    phases = (Phase("wait", began_s - 5, began_s), *found.phases)
    traced.tracing.record(msgspec.structs.replace(found, phases=phases))
    traced.tracing.answered("req-of-another")
    traced.tracing.answered("req-1")
    root, *inside = traced.record()
    assert [each.name for each in inside] == ["wait", "lock", "claim", "answer"]
    assert root.start_time == inside[0].start_time
    assert (root.end_time - root.start_time) / 1e9 >= 8.0
    assert root.end_time == inside[-1].end_time
    assert inside[-1].start_time == inside[-2].end_time


def test_one_whose_answer_may_come_yet_waits_for_it(traced):
    traced.tracing.record(outcome())
    assert list(traced.tracing._complete()) == []
    traced.tracing.answered("req-1")
    [left] = traced.tracing._complete()
    assert left.answered_s is not None
    assert traced.tracing._unanswered == {}


def test_it_goes_on_with_its_callers_trace(traced):
    root, *_ = traced.record(outcome(traceparent=PARENT))
    assert f"{root.context.trace_id:032x}" == TRACE
    assert f"{root.parent.span_id:016x}" == SPAN


def test_what_its_caller_does_not_trace_is_not_traced(traced):
    assert traced.record(outcome(traceparent=NOT_SAMPLED)) == []


@pytest.mark.parametrize(
    "text",
    [None, "", "00-0-0-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{'0' * 32}-{SPAN}-01", "x" * 5000],
)
def test_what_is_no_trace_context_is_ignored(text):
    assert parent_of(text) is None


def test_none_are_traced_with_the_ratio_0():
    assert Traced(Collector(), ratio=0.0).record(outcome()) == []


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ("placed", StatusCode.UNSET),
        ("NoValidHost", StatusCode.UNSET),
        ("Conflict", StatusCode.ERROR),
    ],
)
def test_a_refusal_is_no_error(traced, result, code):
    root, *_ = traced.record(outcome(result=result, reason="why"))
    assert root.status.status_code is code


@pytest.mark.parametrize("is_broken", [True, False])
def test_what_the_collector_does_not_take_is_counted(caplog, is_broken):
    collector = Collector(SpanExportResult.FAILURE)
    if is_broken:
        collector.export = raising(OSError("away"))
    traced = Traced(collector)
    traced.record(outcome(), outcome())
    assert traced.counts == {"dropped": 2}
    assert [each.message for each in caplog.records if "dropped" in each.message]


def test_requests_do_not_wait_for_a_slow_collector(monkeypatch):
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Collector):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            entered.set()
            assert go_on.wait(60)
            return super().export(spans)

    monkeypatch.setattr(tracing, "INTERVAL_S", 0.01)
    monkeypatch.setattr(tracing, "MAX_WAITING", 2)
    traced = Traced(Slow())
    traced.start()
    traced.tracing.record(outcome(ended_s=0.0))
    assert entered.wait(60)
    for _ in range(5):
        traced.tracing.record(outcome())
    assert traced.counts == {"dropped": 3}
    go_on.set()
    assert len(traced.record()) == 9
    assert traced.counts == {"dropped": 3, "exported": 3}
