"""The line for each decision."""

import logging

from scheduler_worker.monitoring import journal
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
        journal.write(OUTCOME)
    (record,) = caplog.records
    assert record.extra["cluster"] == "east"
    assert record.getMessage().startswith("request_id=req-1 ")


def test_nothing_is_written_where_nobody_reads(caplog):
    with caplog.at_level(logging.WARNING):
        journal.write(OUTCOME)
    assert not caplog.records
