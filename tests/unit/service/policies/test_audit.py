"""The audit in the shared state: its entries are moved in their order, and none is lost."""

import pytest
from msgspec import structs

from scheduler_worker.errors import Conflict, PolicyStoreUnavailable, StateUnavailable
from scheduler_worker.service.policies.audit import KEEP_S, Actor, SharedAudit
from tests.support.interrupted import raising

ANNA = Actor("anna")


@pytest.fixture
def audit(world) -> SharedAudit:
    """With the entries of a, b and c, one a second."""
    audit = SharedAudit(world.state, world.clock)
    for subject in "abc":
        audit.record(audit.entry(ANNA, "test", subject, None, None))
        world.clock.advance(1)
    return audit


def moved(audit) -> list[str]:
    """The subjects of what is moved."""
    found: list[str] = []
    assert audit.move(lambda entry: found.append(entry.subject)) == len(found)
    return found


def test_entries_are_moved_once_and_the_oldest_comes_first(audit):
    assert moved(audit) == ["a", "b", "c"]
    assert moved(audit) == []


def test_an_entry_that_was_written_late_is_moved_in_its_place(audit):
    """Of several workers, one may be held up between the time of an entry and its write."""
    late = audit.entry(ANNA, "test", "late", None, None)
    audit.record(structs.replace(late, at_s=late.at_s - 5))
    assert moved(audit) == ["late", "a", "b", "c"]


def test_an_entry_that_cannot_be_recorded_stays_with_those_after_it(audit):
    kept: list[str] = []

    def record(entry):
        if kept:
            raise PolicyStoreUnavailable("no connection")
        kept.append(entry.subject)

    with pytest.raises(PolicyStoreUnavailable):
        audit.move(record)
    assert (kept, moved(audit)) == (["a"], ["b", "c"])


def test_what_another_process_moves_meanwhile_may_be_there_twice(world, audit):
    other, found = SharedAudit(world.state, world.clock), []

    def record(entry):
        if not found:
            found.extend(moved(other))
        found.append(entry.subject)

    audit.move(record)
    assert sorted(found) == ["a", "a", "b", "b", "c", "c"]
    assert moved(audit) == []


def test_an_entry_of_a_process_whose_clock_is_behind_lasts_as_long(world):
    audit = SharedAudit(world.state, world.clock)
    entry = audit.entry(ANNA, "test", "a", None, None)
    audit.record(structs.replace(entry, at_s=entry.at_s - KEEP_S))
    world.clock.advance(KEEP_S - 1)
    assert moved(SharedAudit(world.state, world.clock)) == ["a"]


def test_the_error_of_a_change_is_raised_though_its_end_cannot_be_recorded(audit, monkeypatch):
    change = audit.changing(ANNA, "test", "d", before=None, after=None)
    with pytest.raises(Conflict, match="somebody was first"), change:
        monkeypatch.setattr(audit, "record", raising(StateUnavailable("no Redis")))
        raise Conflict("somebody was first")


def test_entries_that_no_process_moves_expire(world, audit):
    world.clock.advance(KEEP_S - 2.5)
    assert moved(SharedAudit(world.state, world.clock)) == ["b", "c"]
