"""The life of migrations that were asked for."""

import pytest

from scheduler_worker.model.cluster_load import BalanceMemory, BegunMigration, Migration
from scheduler_worker.model.ledgers import MigrationLedger, MigrationLimits, Progress

LIMITS = MigrationLimits(
    most=2, begin_within_s=10, end_within_s=100, first_wait_s=60, longest_wait_s=200
)


def proposed(vm: str = "v", source: str = "a", *destinations: str) -> Migration:
    return Migration(vm=vm, source=source, destinations=destinations or ("b",), reason="too busy")


def asked(vm: str = "v", *, now_s: float = 0.0, ledger: MigrationLedger | None = None):
    return (ledger or MigrationLedger()).ask(
        proposed(vm), id=f"m-{vm}", policy="p@1", now_s=now_s, limits=LIMITS
    )


def began(destination: str) -> Progress:
    return Progress(state="started", destination=destination)


def done(destination: str | None) -> Progress:
    return Progress(state="done", destination=destination)


def failed(why: str) -> Progress:
    return Progress(state="failed", why=why)


def test_a_vm_under_way_is_not_moved_again():
    assert asked().why_not(proposed(), 1.0, LIMITS) == "the VM is being moved"
    begun = asked().advance("m-v", began("b"), 1.0, LIMITS)
    assert begun.why_not(proposed("v", "b", "a"), 2.0, LIMITS) == "the VM is being moved"


def test_a_cluster_has_only_so_many_at_a_time():
    ledger = asked("w", ledger=asked())
    assert "2 migrations are under way" in str(ledger.why_not(proposed("x"), 1.0, LIMITS))
    assert ledger.advance("m-w", done("b"), 2.0, LIMITS).why_not(proposed("x"), 3.0, LIMITS) is None


def test_a_migration_needs_a_destination():
    nowhere = Migration(vm="v", source="a", destinations=(), reason="")
    assert "no host" in str(MigrationLedger().why_not(nowhere, 0.0, LIMITS))


def test_each_failure_doubles_the_wait_up_to_a_bound():
    ledger, now_s, waits = MigrationLedger(), 0.0, []
    for _ in range(5):
        ledger = asked(ledger=ledger, now_s=now_s).advance("m-v", failed("no host"), now_s, LIMITS)
        until_s = ledger.setbacks["v"].waits_until_s
        waits.append(until_s - now_s)
        assert "no host" in str(ledger.why_not(proposed(), until_s - 0.1, LIMITS))
        assert ledger.why_not(proposed(), until_s, LIMITS) is None
        now_s = until_s
    assert waits == [60, 120, 200, 200, 200]


def test_the_wait_stays_finite_after_any_number_of_failures():
    assert LIMITS.wait_s(10**9) == 200


def test_a_vm_that_failed_to_move_does_not_rest():
    begun = asked().advance("m-v", began("b"), 1.0, LIMITS)
    assert begun.advance("m-v", failed("cancelled"), 2.0, LIMITS).moves == {}


def test_a_refusal_keeps_the_move_before():
    ledger = asked().advance("m-v", began("b"), 1.0, LIMITS).advance("m-v", done(None), 2.0, LIMITS)
    refused = asked(ledger=ledger, now_s=100.0).advance("m-v", failed("no host"), 101.0, LIMITS)
    assert refused.moves == {"v": BegunMigration("a", "b", 2.0)}


@pytest.mark.parametrize("progress", [began("b"), done("b"), failed("late")])
def test_answers_about_another_migration_change_nothing(progress):
    ledger = asked()
    assert ledger.advance("m-old", progress, 1.0, LIMITS) is ledger


def test_silence_is_bounded_before_and_after_the_begin():
    ledger = asked(now_s=0.0)
    assert not list(ledger.overdue(9.9))
    assert [each.vm for each in ledger.overdue(10.0)] == ["v"]
    begun = ledger.advance("m-v", began("b"), 9.0, LIMITS)
    assert not list(begun.overdue(108.9))
    assert [each.vm for each in begun.overdue(109.0)] == ["v"]


def test_what_nobody_needs_is_trimmed():
    ledger = asked().advance("m-v", began("b"), 1.0, LIMITS).advance("m-v", done(None), 2.0, LIMITS)
    ledger = asked("w", ledger=ledger, now_s=3.0).advance("m-w", failed("no host"), 3.0, LIMITS)
    ledger = asked("x", ledger=ledger, now_s=4.0).advance("m-x", began("b"), 4.0, LIMITS)
    forgotten = ledger.trimmed(BalanceMemory(), 3.0 + 60 + 200, LIMITS)
    assert set(forgotten.moves) == {"x"}, "a migration under way is remembered in any case"
    assert forgotten.setbacks == {}
    kept = ledger.trimmed(BalanceMemory(moves=ledger.moves), 10.0, LIMITS)
    assert kept == ledger
