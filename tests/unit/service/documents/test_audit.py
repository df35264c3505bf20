"""Entries of the audit for changes that are no documents."""

import logging

import pytest

from scheduler_worker.errors import Conflict, StateUnavailable
from scheduler_worker.service.documents.audit import Actor, Audit
from scheduler_worker.service.documents.book import KEEP_S, Book
from tests.support.interrupted import raising

ANNA = Actor("anna", "10.0.0.1")


@pytest.fixture
def book(world) -> Book:
    return Book(world.state)


@pytest.fixture
def audit(world, book) -> Audit:
    return Audit(book, world.clock)


def results(book) -> list[tuple[str, str]]:
    return [(entry.result, entry.reason) for entry in book.audit()]


def test_a_change_is_recorded_before_it_is_made(book, audit):
    with audit.changing(ANNA, "test", "d", before="1", after="2"):
        [entry] = book.audit()
    assert (entry.user, entry.origin, entry.before, entry.after) == ("anna", "10.0.0.1", "1", "2")
    assert results(book) == [("done", "")]


def test_a_change_that_fails_is_recorded_as_refused_too(book, audit):
    with pytest.raises(Conflict), audit.changing(ANNA, "test", "d", before=None, after=None):
        raise Conflict("somebody was first")
    assert results(book) == [
        ("done", ""),
        ("refused", "it was recorded and then failed: somebody was first"),
    ]


def test_the_error_of_a_change_is_raised_though_its_end_cannot_be_recorded(audit, monkeypatch):
    change = audit.changing(ANNA, "test", "d", before=None, after=None)
    with pytest.raises(Conflict, match="somebody was first"), change:
        monkeypatch.setattr(audit, "record", raising(StateUnavailable("no Redis")))
        raise Conflict("somebody was first")


def test_entries_are_in_the_log_too(audit, caplog):
    caplog.set_level(logging.INFO)
    audit.refused(ANNA, "test", "d", "no right to it")
    assert "test of 'd' by anna from 10.0.0.1: refused, no right to it" in caplog.text


def test_entries_of_the_book_expire(world, book, audit):
    for subject in "abc":
        audit.record(audit.entry(ANNA, "test", subject, None, None))
        world.clock.advance(1)
    world.clock.advance(KEEP_S - 2.5)
    assert [entry.subject for entry in Book(world.state).audit()] == ["b", "c"]
