"""Changes that depend on what was read: one by another user before the write is noticed."""

from typing import Any

import pytest

from scheduler_worker.errors import Conflict, EditConflict
from scheduler_worker.model.worker_reports import WorkerFacts, WorkerReport
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.balancing import set_balancing_mode, withdraw_balancing_mode
from scheduler_worker.operations.forms import parsed
from scheduler_worker.operations.operation import Call, Operation
from scheduler_worker.operations.policies import attach_cluster, put_policy, remove_policy
from scheduler_worker.operations.reservations import release_reservation
from scheduler_worker.operations.rights import Access, Rights
from scheduler_worker.operations.tuning import (
    reset_tuning_policies,
    set_tuning_policy,
    withdraw_tuning_policy,
)
from scheduler_worker.operations.workers import dismiss_worker
from scheduler_worker.service.documents.audit import Audit
from scheduler_worker.service.state.presence import Presence
from tests.support.edges import filled
from tests.support.services import ADMINISTRATOR
from tests.support.tuners import BALLOON

PACKING = {"id": "packing", "name": "packing"}
EAST = {"name": "east", "policy": "packing"}
MODE = {"cluster": "east", "mode": "dry_run"}
TUNED = {"name": "balloon", "text": BALLOON.replace("10", "20")}
NEW = {"name": "new", "text": BALLOON}


def also(operation, **given):
    """Another user's change by this operation."""
    return lambda rest: rest.call(operation, **given)


def confirm(rest):
    rest.clock.advance(1)
    rest.world.inventory.confirm(["one"])


def come_back(rest):
    facts = WorkerFacts(name="w0", version="1", topic="scheduler")
    Presence(rest.world.state, facts, WorkerReport).renew()


EDITED = also(put_policy, **PACKING, description="d")
SWITCH_OFF = also(set_balancing_mode, cluster="east", mode="off")
ATTACHED = also(attach_cluster, **EAST)
CASES: list[tuple[Operation[Any, Any], dict[str, Any], Any, type[Exception]]] = [
    (
        put_policy,
        {"id": "packing", "name": "packed"},
        EDITED,
        EditConflict,
    ),
    (remove_policy, {"id": "packing"}, EDITED, EditConflict),
    (remove_policy, {"id": "packing"}, ATTACHED, EditConflict),
    (attach_cluster, {"name": "east", "policy": "nova"}, ATTACHED, EditConflict),
    (set_tuning_policy, TUNED, also(set_tuning_policy, **TUNED), Conflict),
    (set_tuning_policy, TUNED, also(reset_tuning_policies), Conflict),
    (set_tuning_policy, NEW, also(set_tuning_policy, **NEW), Conflict),
    (withdraw_tuning_policy, {"name": "balloon"}, also(set_tuning_policy, **TUNED), Conflict),
    (reset_tuning_policies, {}, also(set_tuning_policy, **TUNED), Conflict),
    (set_balancing_mode, MODE, SWITCH_OFF, Conflict),
    (withdraw_balancing_mode, {"cluster": "east"}, SWITCH_OFF, Conflict),
    (release_reservation, {"id": "one"}, confirm, Conflict),
    (dismiss_worker, {"worker": "w0"}, come_back, Conflict),
]
INDEPENDENT = {"switch_unit", "remove_unit"}
"""Conditional changes whose effect is the same after whichever other one."""


class Interrupted(Audit):
    """An audit that keeps nothing, and a check of what was seen: before both, once, ``act``."""

    def __init__(self, world, act) -> None:
        super().__init__(world.desk.book, world.clock)
        self._act = act
        self._seen: object = None

    def record(self, _entry) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()

    def check_match(self, resource, is_needed=True) -> None:
        self._seen = self._seen or resource
        self.record(None)
        if resource != self._seen:  # it is asked again on what is there then
            raise EditConflict("it", "anna", 2)


@pytest.mark.parametrize(
    ("operation", "given", "other", "error"), CASES, ids=[case[0].name for case in CASES]
)
def test_a_change_by_another_user_since_the_reading_stays(operation, given, other, error):
    rest, after = filled(), []

    def act():
        other(rest)
        after.append(rest.state())

    audit = Interrupted(rest.world, act)
    access = Access(Rights(), audit)
    call = Call(operation, rest.services, ADMINISTRATOR, access, check_match=audit.check_match)
    with pytest.raises(error):
        operation.serve(call, parsed(operation, given))
    assert [rest.state()] == after


def test_every_conditional_change_is_among_them():
    conditional = {each.name for each in OPERATIONS if each.has_condition}
    assert conditional - {operation.name for operation, *_ in CASES} == INDEPENDENT
