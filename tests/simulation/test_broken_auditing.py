"""Mutation tests of the scene with an audit: each break is noticed by its checker."""

import contextlib

import pytest

from scheduler_worker.service.policies.audit import Audit, SharedAudit

SCENE = "auditing"


def test_a_change_that_is_recorded_after_it_was_made(broken, found_out):
    @contextlib.contextmanager
    def changing(self, actor, action, subject, *, before, after):
        yield
        self.record(self.entry(actor, action, subject, before, after))

    broken(Audit, "changing", changing)
    assert found_out("the audit does not have it", scene=SCENE)


@pytest.mark.parametrize(
    ("violation", "name", "old", "new"),
    [
        ("is not in SQL", "move", "record(entry)\n", "pass\n"),
        ("is not in SQL", "record", "now_s + KEEP_S", "now_s + 0.5"),
        ("never got into SQL", "move", "sorted(self._entries.items())", "[]"),
        ("does not have it", "record", 'f"{entry.at_s:017.6f} {unique_hex()}"', "entry.subject"),
    ],
)
def test_an_entry_that_is_lost(rebuilt, found_out, violation, name, old, new):
    rebuilt(SharedAudit, name, old, new)
    assert found_out(violation, scene=SCENE)


def test_an_entry_that_is_deleted_before_it_is_in_sql(broken, found_out):
    def move(self, record):
        moved = []
        real(self, moved.append)
        for entry in moved:
            record(entry)
        return len(moved)

    real = SharedAudit.move
    broken(SharedAudit, "move", move)
    assert found_out("is not in SQL", scene=SCENE)
