"""What the simulator is worth: each of these builds is broken in one place, and it finds out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler_worker.backends import memory
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.rpc.amqp.ledger import Ledger
from scheduler_worker.service import ground, inventory, promises, records
from scheduler_worker.service.whereabouts import Whereabouts
from tests.simulation import runs
from tests.simulation.plan import make

WITHIN = 400
"""So many seeds at most until a broken build is found out."""


def found_out(what: str) -> str:
    """The first thing of that kind which must not be so."""
    for seed in range(WITHIN):
        for violation in runs.violations(make(str(seed))):
            if what in violation.what:
                return f"{seed}: {violation}"
    pytest.fail(f"{WITHIN} seeds showed nothing of: {what}")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, Any], None]:
    return monkeypatch.setattr


def test_a_commit_that_asks_for_no_hold(broken):
    broken(memory._Scope, "is_held_by", lambda *_: True)
    assert found_out("did not hold it")


def test_a_hold_that_never_ends(broken):
    broken(memory._Scope, "is_held_by", lambda self, owner, _: self.holder == owner)
    assert found_out("after the end of its hold")


def test_a_release_by_anybody(broken):
    def release(self, grant):
        with self._opened(grant.scope) as state:
            state.holder = None
            self._condition.notify_all()

    broken(MemoryState, "release", release)
    assert found_out("while somebody held it")


def test_a_commit_that_looks_at_no_guard(broken):
    broken(memory._Scope, "_holds", lambda *_: True)
    assert found_out("owes")


def test_tokens_that_stand_still(broken):
    real = MemoryState._grant

    def grant(self, scope, state, *rest):
        granted = real(self, scope, state, *rest)
        state.token -= 1
        return granted

    broken(MemoryState, "_grant", grant)
    assert found_out("came after")


def test_a_second_commit_of_a_hold_that_is_taken_for_the_first(broken):
    real = MemoryState.commit

    def commit(self, grant, transactions, *, keep_at=None):
        first = msgspec.structs.replace(grant, turn=0)
        return real(self, first, transactions, keep_at=keep_at)

    broken(MemoryState, "commit", commit)
    assert found_out("never promised")


def test_a_promise_that_is_answered_and_not_made(broken):
    real = MemoryState.commit

    def commit(self, grant, transactions, *, keep_at=None):
        written = real(self, grant, transactions, keep_at=keep_at)
        return written._replace(applied=tuple(True for _ in written.applied))

    broken(MemoryState, "commit", commit)
    assert found_out("never promised")


def test_a_message_that_is_acknowledged_when_it_comes(broken):
    real = Ledger.take

    def take(self, delivery):
        real(self, delivery)
        self._settle(delivery.tag)

    broken(Ledger, "take", take)
    assert found_out("had no effect")


def test_a_message_that_is_lost_with_its_worker(broken):
    real = Ledger.take

    def take(self, delivery):
        real(self, delivery)
        self._settle(delivery.tag)

    broken(Ledger, "take", take)
    assert found_out("was never answered")


def test_work_that_a_stopping_worker_acknowledges_and_does_not_do(broken):
    def give_back(self, work):
        self._drop(work)
        self._settle(*work.tags)

    broken(Ledger, "give_back", give_back)
    assert found_out("had no effect")


def test_an_announcement_that_frees_a_promise(broken):
    def announced(promised, seen, now_s):
        return [
            records.gone(records.PROMISE + each.id)
            for each in promised
            if each.instance_uuid in set(seen)
        ]

    broken(promises, "announced", announced)
    assert found_out("freed by an announcement")


def test_use_that_is_older_than_the_instance_and_frees_its_promise(broken):
    def absorbed(promises, said, listed, updated_at_s):
        return [each for each in promises if each.announced_at_s or each.state == "confirmed"]

    broken(inventory, "absorbed", absorbed)
    assert found_out("absorbed by use without it")


def test_a_confirmation_that_brings_a_promise_back(broken):
    broken(promises, "guards", lambda *_: [])
    assert found_out("without the lock")


def test_promises_that_are_forgotten_when_asked_again(broken):
    broken(ground, "promised_rows", lambda *_: {})
    assert found_out("was promised to it")


def test_clusters_that_do_not_know_what_others_decide(broken):
    broken(Whereabouts, "claim", lambda self, store, wishes, **_: [True] * len(wishes))
    assert found_out("was promised to it")


def test_an_instance_that_is_led_away_from_another_copy(broken):
    broken(Whereabouts, "said_by_others", lambda *_: {})
    assert found_out("was promised to it")


def test_promises_that_do_not_expire(broken):
    broken(memory._Scope, "end_expired", lambda *_: None)
    assert found_out("never ended")
