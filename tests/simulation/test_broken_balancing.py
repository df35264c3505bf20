"""Mutation tests of the scene in which workers balance: each break is noticed by its checker."""

from types import MappingProxyType

import pytest

from scheduler_worker.model.ledgers import MigrationLedger
from scheduler_worker.ports import Transaction
from scheduler_worker.service.balancing import power
from scheduler_worker.service.balancing.ledgers import Ledgers
from scheduler_worker.service.balancing.situation import Situation
from scheduler_worker.service.requests import lease
from scheduler_worker.service.state import leadership
from scheduler_worker.service.state.leadership import LeadershipRecords
from tests.simulation.conftest import in_module

SCENE = "balancing"
OFTEN = in_module("service.balancing.ledgers")
"""Threads lose their turn between a ledger's reading and its writing."""


@pytest.mark.parametrize(
    ("violation", "owner", "name", "old", "new", "seed"),
    [
        ("came back", Ledgers, "change", "replica.guards((put.key, *CONDITIONS))", "[]", 34),
        ("was begun", Ledgers, "change", "(put.key, *CONDITIONS)", "(put.key,)", 170),
        ("was begun", Ledgers, "change_power_alone", "replica.guards(keys)", "[]", 79),
        ("was begun", Ledgers, "change_power_alone", "records.POWER, *CONDITIONS, ", "", 79),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_a_method_that_is_broken(rebuilt, found_out, violation, owner, name, old, new, seed):
    rebuilt(owner, name, old, new)
    assert found_out(violation, scene=SCENE, seed=seed, **OFTEN)


def test_an_action_that_is_asked_for_and_not_written_down(broken, found_out):
    def change(self, cluster, form, change, answers=MappingProxyType({})):
        before = form()
        replica = self._fleet.cluster(cluster)
        return before, change(before, replica, replica.table.now_s)

    broken(Ledgers, "change", change)
    assert found_out("written down", scene=SCENE, seed=3)


@pytest.mark.parametrize(
    ("violation", "owner", "name", "instead", "seed"),
    [
        ("led after", LeadershipRecords, "replacing", lambda _, put: Transaction([put]), 8),
        ("there", power, "why_not_now", lambda *_: None, 58),
        ("got a place on", lease, "narrowed", lambda _, request: request, 0),
        ("was begun", Situation, "holds", lambda *_: True, 3),
        ("led after", leadership, "lapse_s", lambda interval_s: interval_s, 0),
        ("was forgotten", MigrationLedger, "overdue", lambda self, _: self.under_way.values(), 4),
        ("was forgotten", MigrationLedger, "why_not", lambda *_: None, 720),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_function_that_is_broken(broken, found_out, violation, owner, name, instead, seed):
    broken(owner, name, instead)
    assert found_out(violation, scene=SCENE, seed=seed, **OFTEN)
