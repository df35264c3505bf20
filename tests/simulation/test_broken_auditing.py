"""Mutation tests of the scene with an audit: each break is noticed by its checker."""

import contextlib

import pytest

from scheduler_worker.service.documents import copies
from scheduler_worker.service.documents.audit import Audit
from scheduler_worker.service.documents.book import Book
from scheduler_worker.service.documents.copies import Copies
from scheduler_worker.service.documents.upkeep import Upkeep

SCENE = "auditing"


def test_a_change_that_is_recorded_after_it_was_made(broken, found_out):
    @contextlib.contextmanager
    def changing(self, actor, action, subject, *, before, after):
        yield
        self.record(self.entry(actor, action, subject, before, after))

    broken(Audit, "changing", changing)
    assert found_out("the audit does not have it", seed=1, scene=SCENE)


@pytest.mark.parametrize(
    ("seed", "violation", "owner", "name", "old", "new"),
    [
        (97, "did not see the edit", Book, "rewrite", "[Guard(_HEAD, seen)]", "[]"),
        (1, "never got into SQL", Book, "rewrite", "now_s + KEEP_S", "now_s + 0.5"),
        (2, "never got into SQL", Upkeep, "_run_led", "self._copies.is_configured", "False"),
        (46, "another policy in force", Upkeep, "_run_led", 'self._leads("documents")', "False"),
        (177, "the archive ends at", Copies, "_go_past", "renumbers=True", "renumbers=False"),
    ],
)
def test_an_edit_that_is_lost_or_not_seen(
    rebuilt, found_out, seed, violation, owner, name, old, new
):
    rebuilt(owner, name, old, new)
    assert found_out(violation, seed=seed, scene=SCENE)


def test_lost_edits_that_are_not_noticed(broken, found_out):
    broken(copies, "_is_ahead", lambda *_: False)
    assert found_out("the archive ends at", seed=32, scene=SCENE)
