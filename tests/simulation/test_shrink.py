"""Failing plans get shorter, and fail still."""

from __future__ import annotations

import msgspec

from tests.simulation.plan import Ask, Crash, Plan, make
from tests.simulation.shrink import shortest


def seed_with_a_crash() -> Plan:
    return next(plan for plan in map(make, map(str, range(50))) if of_kind(plan, Crash))


def of_kind(plan: Plan, kind: type) -> list[object]:
    return [deed for deed in plan.deeds if isinstance(deed, kind)]


def test_deeds_that_the_failure_does_not_need_are_dropped():
    def fails(plan: Plan) -> bool:
        return bool(of_kind(plan, Crash) and of_kind(plan, Ask))

    assert len(shortest(seed_with_a_crash(), fails).deeds) == 2


def test_the_remaining_deeds_are_simplified():
    [ask] = shortest(make("1"), lambda plan: bool(of_kind(plan, Ask))).deeds
    assert (ask.tries, len(ask.instances), ask.then) == (1, 1, "forget")  # type: ignore[attr-defined]


def test_a_plan_that_cannot_be_shrunk_stays():
    plan = make("1")
    assert shortest(plan, lambda each: each.deeds == plan.deeds) == plan


def test_a_shorter_plan_may_fail_with_another_interleaving_only():
    plan = msgspec.structs.replace(make("1"), seed="1")
    found = shortest(plan, lambda each: each is plan or each.seed.endswith("'"))
    assert (found.deeds, found.seed) == ((), "1'")
