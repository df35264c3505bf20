"""The line for each decision."""

import io
import logging
import threading

import msgspec
import pytest
from oslo_log.formatters import JSONFormatter

from scheduler_worker.monitoring import journal
from scheduler_worker.monitoring.logs import CarefulFormatter
from scheduler_worker.ports import Outcome

OUTCOME = Outcome(
    request_id="req-1",
    result="placed",
    cluster="east",
    instances=7,
    hosts=tuple(f"h{number}" for number in range(7)),
    repeated=1,
    candidates=100,
    passed=80,
    rejections=(("ComputeFilter", 5), ("CoreFilter", 0), ("RamFilter", 15)),
    attempts=2,
    lock_wait_s=0.00123456,
    hold_s=0.0004,
    token=17,
    duration_s=0.25,
)


def test_the_line_has_its_fields_in_order():
    assert journal.line(journal.fields(OUTCOME)) == (
        "request_id=req-1 cluster=east result=placed hosts=h0,h1,h2,h3,h4,+2 instances=7 "
        "repeated=1 candidates=100 passed=80 rejections=ComputeFilter:5,RamFilter:15 "
        "lock_wait_s=0.001235 hold_s=0.0004 pending_wait_s=0.0 token=17 attempts=2 duration_s=0.25"
    )
    assert tuple(journal.fields(OUTCOME)) == journal.FIELDS


def test_values_cannot_pretend_to_be_fields():
    line = journal.line({"cluster": 'a result=placed "', "request_id": "", "token": None})
    assert line == r'cluster="a result=placed \"" request_id=- token=-'


def test_a_decision_is_one_line_with_its_fields_beside_it(caplog):
    with caplog.at_level(logging.INFO):
        journal.Journal().tell(OUTCOME)
    (record,) = caplog.records
    assert record.extra["cluster"] == "east"
    assert record.getMessage().startswith("request_id=req-1 ")


def test_nothing_is_written_where_nobody_reads(caplog):
    with caplog.at_level(logging.WARNING):
        journal.Journal().tell(OUTCOME)
    assert not caplog.records


class Stream(io.StringIO):
    """Notes what is written at a time; takes nothing while the gate is closed."""

    def __init__(self):
        super().__init__()
        self.pieces = []
        self.is_asked = threading.Event()
        self.gate = threading.Event()

    def write(self, text):
        self.is_asked.set()
        assert self.gate.wait(20)
        self.pieces.append(text)
        return len(text)


class Single(logging.Handler):
    """Takes records one by one, as a syslog does."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


@pytest.fixture
def stream(monkeypatch):
    monkeypatch.setattr(journal.LOG, "level", logging.INFO)
    monkeypatch.setattr(journal.LOG, "propagate", False)
    monkeypatch.setattr(journal.LOG, "handlers", [])
    return Stream()


def told_while_the_log_is_slow(stream, inner, count=5):
    """The pieces that are written of one decision, and then of many."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(CarefulFormatter(inner, 1000))
    journal.LOG.addHandler(handler)
    written = journal.Journal()
    written.start()
    written.tell(OUTCOME)
    assert stream.is_asked.wait(20)
    for number in range(count):
        written.tell(
            msgspec.structs.replace(OUTCOME, request_id=f"req-{number} token=hunter{number}")
        )
    stream.gate.set()
    written.stop()
    return [piece.splitlines() for piece in stream.pieces if piece.strip()]


def test_what_comes_while_the_log_is_slow_is_written_in_one_piece(stream):
    single = Single()
    journal.LOG.addHandler(single)
    first, rest = told_while_the_log_is_slow(stream, logging.Formatter("%(asctime)s %(message)s."))
    assert len(first) == 1
    assert [line.split()[2] for line in rest] == [f'request_id="req-{n}' for n in range(5)]
    assert all(line.endswith(" duration_s=0.25.") for line in rest)
    assert not any("hunter" in line for line in rest)
    assert len(single.texts) == 6


def test_structured_lines_keep_their_own_fields(stream):
    _, rest = told_while_the_log_is_slow(stream, JSONFormatter())
    told = [msgspec.json.decode(line)["extra"]["request_id"] for line in rest]
    assert [text.split()[0] for text in told] == [f"req-{n}" for n in range(5)]


def test_a_log_that_takes_nothing_costs_lines_and_not_memory(stream, monkeypatch):
    monkeypatch.setattr(journal, "MOST_WAITING", 3)
    _, warning, rest = told_while_the_log_is_slow(stream, logging.Formatter(), count=5)
    assert len(rest) == 3
    assert warning == ["The log is too slow: 2 lines of decisions were left out"]


def test_after_its_end_each_is_written_at_once(stream):
    single = Single()
    journal.LOG.addHandler(single)
    written = journal.Journal()
    written.start()
    written.stop()
    written.stop()
    written.tell(OUTCOME)
    assert len(single.texts) == 1


def test_a_handler_that_breaks_does_not_end_the_journal(stream, monkeypatch):
    single, broken = Single(), Single()
    is_broken = iter([True])

    def breaks(record):
        if next(is_broken, False):
            raise ZeroDivisionError
        return True

    broken.addFilter(breaks)
    journal.LOG.addHandler(broken)
    journal.LOG.addHandler(single)
    written = journal.Journal()
    written.start()
    written.tell(OUTCOME)
    written.stop()
    assert single.texts == ["Lines of decisions cannot be written"]
    written.start()
    written.tell(OUTCOME)
    written.stop()
    assert single.texts[-1].startswith("request_id=")
