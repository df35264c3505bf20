"""The ledger of power actions: one at a time, done when a report shows it."""

import pytest

from scheduler_worker.model.cluster_load import PowerAction
from scheduler_worker.model.host_records import UP, HostPower
from scheduler_worker.model.ledgers import MigrationLimits, PowerLedger, Progress

LIMITS = MigrationLimits(begin_within_s=90, end_within_s=600, first_wait_s=100, longest_wait_s=300)
REST = PowerAction(host="a", to="maintenance", reason="it is empty")
DONE, STARTED = Progress(state="done"), Progress(state="started")


def asked(ledger: PowerLedger | None = None, now_s: float = 0.0) -> PowerLedger:
    return (ledger or PowerLedger()).ask(
        REST, id=f"at {now_s:g}", policy="save@1", now_s=now_s, limits=LIMITS
    )


def test_one_is_under_way_at_a_time():
    ledger = asked()
    for host in ("a", "b"):
        other = PowerAction(host=host, to="up", reason="too few")
        assert ledger.why_not(other, 1.0) == "a is being brought into maintenance"
    assert PowerLedger().why_not(REST, 1.0) is None


def test_it_is_done_when_a_report_shows_it_and_not_before():
    ledger = asked().advance("at 0", STARTED, 10.0, LIMITS).advance("at 0", DONE, 20.0, LIMITS)
    assert ledger.settle({"a": "up"}, 30.0, LIMITS).under_way is not None
    assert ledger.settle({"b": "maintenance"}, 30.0, LIMITS).under_way is not None
    assert ledger.settle({"a": "maintenance"}, 30.0, LIMITS) == PowerLedger()
    assert ledger.settle({"a": "maintenance"}, 10_000.0, LIMITS) == PowerLedger()  # seen late


def test_one_that_nobody_begins_is_overdue():
    assert asked().settle({"a": "up"}, 89.0, LIMITS) == asked()
    failed = asked().settle({"a": "up"}, 90.0, LIMITS)
    assert failed.under_way is None
    assert failed.setbacks["a"].why == "nothing was heard of it in time"


def test_one_that_no_report_shows_is_overdue():
    ledger = asked().advance("at 0", DONE, 50.0, LIMITS)
    assert ledger.settle({"a": "up"}, 649.0, LIMITS) == ledger
    failed = ledger.settle({"a": "up"}, 650.0, LIMITS)
    assert failed.setbacks["a"].why == "it is said to be done, and no report shows it"


def test_a_repeated_start_does_not_prolong_it():
    ledger = asked().advance("at 0", STARTED, 10.0, LIMITS)
    assert ledger.advance("at 0", STARTED, 500.0, LIMITS) == ledger


def test_its_host_waits_longer_after_each_failure_and_others_do_not():
    ledger, now_s, waits_s = PowerLedger(), 0.0, []
    for _ in range(4):
        ledger = asked(ledger, now_s)
        ledger = ledger.advance(f"at {now_s:g}", Progress(state="failed", why="x"), now_s, LIMITS)
        until_s = ledger.setbacks["a"].waits_until_s
        waits_s.append(until_s - now_s)
        assert "waits for" in (ledger.why_not(REST, until_s - 1) or "")
        assert ledger.waiting(until_s - 1) == {"a"}
        now_s = until_s
    assert waits_s == [100, 200, 300, 300]
    assert ledger.waiting(now_s) == set()
    assert ledger.why_not(PowerAction(host="b", to="up", reason=""), now_s - 1) is None
    done = asked(ledger, now_s).settle({"a": "maintenance"}, now_s, LIMITS)
    assert done.setbacks == {}, "its failures are over"


def test_answers_to_other_actions_change_nothing():
    ledger = asked()
    for state in ("started", "done", "refused", "failed"):
        assert ledger.advance("another", Progress(state=state), 1.0, LIMITS) == ledger
        assert PowerLedger().advance("at 0", Progress(state=state), 1.0, LIMITS) == PowerLedger()


@pytest.mark.parametrize(
    ("report", "before", "asked_for", "by_policy"),
    [
        (HostPower(state="maintenance"), UP, "maintenance", True),
        (HostPower(state="maintenance"), UP, None, False),
        (HostPower(state="maintenance"), UP, "down", False),
        (HostPower(state="down"), HostPower(state="down", by_policy=True), None, True),
        (HostPower(state="up"), HostPower(state="down", by_policy=True), None, False),
        (HostPower(state="down", by_policy=True), UP, None, True),
        (HostPower(state="down", by_policy=False), UP, "down", False),
    ],
)
def test_who_did_it_is_known_where_the_report_does_not_say(report, before, asked_for, by_policy):
    assert report.after(before, asked_for).by_policy is by_policy
