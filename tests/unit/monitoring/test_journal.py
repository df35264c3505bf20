"""The journal: one log line for each decision."""

import io
import logging
import re
import threading
from pathlib import Path

import msgspec
import pytest
from oslo_log.formatters import JSONFormatter

from scheduler_worker.model.decision_history import Waits
from scheduler_worker.monitoring import journal
from scheduler_worker.monitoring.logs import SafeFormatter
from scheduler_worker.observer import Outcome
from tests.support.patience import SOON_S

OUTCOME = Outcome(
    request_id="req-1",
    result="placed",
    cluster="east",
    instances=12,
    hosts=tuple(f"h{number}" for number in range(12)),
    repeated=1,
    instance_uuids=tuple(f"vm-{number}" for number in range(12)),
    project_id="p1",
    global_request_id="req-g",
    candidates=100,
    passed=80,
    rejections=(("ComputeFilter", 5), ("CoreFilter", 0), ("RamFilter", 15)),
    attempts=2,
    waits=Waits(lock_s=0.00123456, hold_s=0.0004),
    token=17,
    duration_s=0.25,
)


def test_the_line_has_its_fields_in_order():
    assert journal.line(journal.fields(OUTCOME)) == (
        "request_id=req-1 global_request_id=req-g project=p1 cluster=east policy=- "
        "result=placed reason=- hosts=h0,h1,h2,h3,h4,h5,h6,h7,h8,h9,+2 instances=12 "
        "instance_uuids=vm-0,vm-1,vm-2,vm-3,vm-4,vm-5,vm-6,vm-7,vm-8,vm-9,+2 "
        "repeated=1 candidates=100 passed=80 rejections=ComputeFilter:5,RamFilter:15 "
        "lock_wait_s=0.001235 hold_s=0.0004 pending_wait_s=0.0 claim_s=0.0 token=17 attempts=2 "
        "duration_s=0.25"
    )


def test_a_long_reason_is_cut_and_marked():
    found = journal.fields(msgspec.structs.replace(OUTCOME, reason="x" * 1000))
    assert found["reason"] == "x" * journal.REASON_CHARACTERS + " ...(cut)"


def test_values_cannot_forge_fields():
    line = journal.line({"cluster": 'a result=placed "', "request_id": "", "token": None})
    assert line == r'cluster="a result=placed \"" request_id=- token=-'


def own(records):
    """The journal's records, without those of threads that other tests have left."""
    return [each for each in records if each.name == journal.LOG.name]


def test_a_decision_is_one_record_with_its_fields_as_extra(caplog):
    with caplog.at_level(logging.INFO):
        journal.Journal().record(OUTCOME)
    (record,) = own(caplog.records)
    assert record.extra["cluster"] == "east"
    assert record.getMessage().startswith("request_id=req-1 ")


def test_nothing_is_logged_above_the_level_info(caplog):
    with caplog.at_level(logging.WARNING):
        journal.Journal().record(OUTCOME)
    assert not own(caplog.records)


class Stream(io.StringIO):
    """Records each write; blocks while the gate is closed."""

    def __init__(self):
        super().__init__()
        self.writes = []
        self.was_called = threading.Event()
        self.gate = threading.Event()

    def write(self, text):
        self.was_called.set()
        assert self.gate.wait(SOON_S)
        self.writes.append(text)
        return len(text)


class Single(logging.Handler):
    """Handles records one by one, as a syslog handler does."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


@pytest.fixture
def stream(monkeypatch):
    """A stream for the journal's logger, which has no handlers but those that the test adds."""
    monkeypatch.setattr(journal.LOG, "propagate", False)
    monkeypatch.setattr(journal.LOG, "handlers", [])
    monkeypatch.setattr(journal, "STOP_S", SOON_S)  # a join that timed out would split the writes
    before = journal.LOG.level
    journal.LOG.setLevel(logging.INFO)  # clears the cache of enabled levels; assignment does not
    yield Stream()
    journal.LOG.setLevel(before)


def write_to_a_slow_log(stream, inner, count=5):
    """The writes of one decision, then of many, to a stream that blocked meanwhile."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(SafeFormatter(inner, 1000))
    journal.LOG.addHandler(handler)
    written = journal.Journal()
    written.start()
    written.record(OUTCOME)
    assert stream.was_called.wait(SOON_S)
    for number in range(count):
        written.record(
            msgspec.structs.replace(OUTCOME, request_id=f"req-{number} token=hunter{number}")
        )
    stream.gate.set()
    written.stop()
    return [text.splitlines() for text in stream.writes if text.strip()]


def test_lines_that_wait_for_a_slow_log_are_written_at_once(stream):
    single = Single()
    journal.LOG.addHandler(single)
    first, rest = write_to_a_slow_log(stream, logging.Formatter("%(asctime)s %(message)s."))
    assert len(first) == 1
    assert [line.split()[2] for line in rest] == [f'request_id="req-{n}' for n in range(5)]
    assert all(line.endswith(" duration_s=0.25.") for line in rest)
    assert not any("hunter" in line for line in rest)
    assert len(single.texts) == 6


def test_json_lines_keep_their_own_fields(stream):
    _, rest = write_to_a_slow_log(stream, JSONFormatter())
    found = [msgspec.json.decode(line)["extra"]["request_id"] for line in rest]
    assert [text.split()[0] for text in found] == [f"req-{n}" for n in range(5)]


def test_a_log_that_blocks_drops_lines_beyond_a_limit(stream, monkeypatch):
    monkeypatch.setattr(journal, "MAX_WAITING", 3)
    _, warning, rest = write_to_a_slow_log(stream, logging.Formatter(), count=5)
    assert len(rest) == 3
    assert warning == ["The log is too slow: 2 lines of decisions were dropped"]


def test_a_stopped_journal_writes_each_line_at_once(stream):
    single = Single()
    journal.LOG.addHandler(single)
    written = journal.Journal()
    written.start()
    written.stop()
    written.stop()
    written.record(OUTCOME)
    assert len(single.texts) == 1


def test_a_journal_can_be_stopped_while_it_starts(monkeypatch):
    written = journal.Journal()

    class Interrupted(threading.Thread):
        def start(self):
            written.stop()
            super().start()

    monkeypatch.setattr(threading, "Thread", Interrupted)
    written.start()
    written.stop()


def test_a_failing_handler_does_not_end_the_journal(stream, monkeypatch):
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
    written.record(OUTCOME)
    written.stop()
    assert single.texts == ["Lines of decisions cannot be written"]
    written.start()
    written.record(OUTCOME)
    written.stop()
    assert single.texts[-1].startswith("request_id=")


def test_every_field_of_the_journal_line_is_documented():
    document = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text()
    table = document.partition("| field | meaning |")[2].partition("\n\n")[0]
    firsts = [row[: row.find("|", 2)] for row in table.splitlines()]
    named = [name for first in firsts for name in re.findall(r"`(\w+)`", first)]
    assert sorted(named) == sorted(journal.fields(OUTCOME))
    example = document.partition("    request_id=")[2].partition("\n\n")[0]
    assert re.findall(r"(\w+)=", f"request_id={example}") == list(journal.fields(OUTCOME))
