"""Reading records: filters, pages, several logs at once."""

import itertools
from math import inf
from typing import Any

import msgspec
import pytest

from scheduler_worker.backends.decision_log import MemoryDecisionLog
from scheduler_worker.decision_log import LogRecord
from scheduler_worker.model.decision_history import DecisionSummary, Margin
from scheduler_worker.model.decisions import Ranked
from scheduler_worker.observer import Outcome
from scheduler_worker.ports import GLOBAL
from scheduler_worker.service.decisions import kept
from scheduler_worker.service.decisions.kept import DecisionQuery, KeptDecisions
from scheduler_worker.service.decisions.recorder import lead
from tests.support.clock import ManualClock

SCOPES = [GLOBAL, "one", "two"]


class Records:
    """Records in three logs, in the order of their numbers."""

    def __init__(self) -> None:
        self.clock = ManualClock(time_s=1_000.0)
        self.log = MemoryDecisionLog(clock=self.clock)
        self.kept = KeptDecisions(self.log, lambda: SCOPES)
        self._numbers = itertools.count()

    def add(self, scope: str = "one", *, instance: str = "", **fields: Any) -> None:
        number = next(self._numbers)
        known: dict[str, Any] = {"cluster": None if scope == GLOBAL else scope, "result": "placed"}
        outline = DecisionSummary(
            decided_at_s=0.0, worker="w", request_id=str(number), **known | fields
        )
        stored = LogRecord((instance or f"i{number}",), msgspec.json.encode(outline), b"")
        self.log.append(scope, [stored], once=str(number))

    def numbers(self, limit: int = 100, **asked: Any) -> list[int]:
        """Those that all pages have, in their order."""
        found, before = [], None
        while True:
            page = self.kept.page(DecisionQuery(**asked, before=before), limit)
            found += [int(each.outline.request_id) for each in page.decisions]
            assert len(page.decisions) <= limit
            if page.next is None:
                return found
            assert before is None or page.next < before
            before = page.next


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_of_several_logs_have_each_record_once_newest_first(records, limit):
    for moment in range(3):
        records.clock.advance(moment)
        for scope in ("one", GLOBAL, "two", "one"):
            records.add(scope)
    found = records.numbers(limit)
    assert sorted(found) == list(range(12))
    moments = [number // 4 for number in found]
    assert moments == sorted(moments, reverse=True)


@pytest.mark.parametrize("limit", [1, 100])
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"cluster": "one"}, [5, 4, 1, 0]),
        ({"cluster": "two"}, [5, 2]),
        ({"cluster": "three"}, []),
        ({"project": "p"}, [1]),
        ({"result": "refused"}, [3, 2]),
        ({"host": "h2"}, [1]),
        ({"instance": "vm"}, [3, 0]),
        ({"instance": "vm", "result": "refused"}, [3]),
        ({"since_s": 1_002.0}, [5, 4, 3, 2]),
        ({"until_s": 1_002.0}, [1, 0]),
        ({"since_s": 1_001.0, "until_s": 1_003.0}, [2, 1]),
        ({"instance": "vm", "until_s": 1_003.0}, [0]),
    ],
)
def test_records_are_filtered(records, asked, expected, limit):
    for fields in (
        {"instance": "vm"},
        {"project_id": "p", "hosts": ("h1", "h2")},
        {"scope": "two", "result": "refused"},
        {"scope": GLOBAL, "result": "refused", "instance": "vm"},
        {},
        {"scope": GLOBAL, "cluster": "one+two"},
    ):
        records.add(**fields)
        records.clock.advance(1)
    assert records.numbers(limit, **asked) == expected


def test_one_call_looks_at_so_many_records_and_says_where_to_go_on(records, monkeypatch):
    monkeypatch.setattr(kept, "MAX_EXAMINED", 4)
    monkeypatch.setattr(kept, "_READ_AT_ONCE", 3)
    records.add(project_id="p")
    for _ in range(9):
        records.add()
    empty = records.kept.page(DecisionQuery(project="p"))
    assert empty.decisions == [] and empty.next is not None
    assert records.numbers(project="p") == [0]


def test_a_last_page_that_is_full_is_known_to_be_the_last(records):
    records.add()
    records.add()
    assert records.kept.page(DecisionQuery(), 2).next is None


def test_weights_that_are_not_finite_are_read_back(records):
    ranked = Ranked(("A", "B"), ("a", "b"), ("a", "b"), (None, None), ((inf, 1.0), (0.5, -inf)))
    outcome = Outcome(request_id="r", result="placed", hosts=("a",), candidates=9, passed=4)
    records.add(hosts=("a",), lead=lead(outcome, ranked))
    [found] = records.kept.page(DecisionQuery()).decisions
    assert found.outline.reason == "Host a: first of 4 hosts that pass, by A (inf) and B (0.50)."


def test_the_sentence_about_a_host_is_made_when_it_is_read(records):
    records.add(hosts=("a",), lead=Margin(9, 4, (("RAMWeigher", 1.0, 0.5),)))
    records.add(hosts=("a",), reason="As it was stored before.")
    records.add(hosts=("a",), lead=None)
    found = [each.outline.reason for each in records.kept.page(DecisionQuery()).decisions]
    assert found == [
        "It had its hosts already, from an earlier delivery of the request.",
        "As it was stored before.",
        "Host a: first of 4 hosts that pass, by RAMWeigher (1.00).",
    ]


def test_a_page_of_many_logs_reads_little_of_each(monkeypatch):
    scopes = [f"c{number}" for number in range(50)]
    records = Records()
    records.kept = KeptDecisions(records.log, lambda: scopes)
    for number in range(50 * 40):
        records.clock.advance(1)
        records.add(scopes[number % 50])
    newest, read = records.log.newest, []

    def watched(*args: Any, **named: Any) -> Any:
        found = newest(*args, **named)
        read.extend(found)
        return found

    monkeypatch.setattr(records.log, "newest", watched)
    page = records.kept.page(DecisionQuery(), 100)
    assert [int(each.outline.request_id) for each in page.decisions] == list(range(1999, 1899, -1))
    assert len(read) <= 50 * 10
