"""A failing plan with as few deeds as still fail."""

from collections.abc import Callable, Iterator

import msgspec

from tests.simulation.plan import Ask, Deed, Plan

TWISTS = 4
"""In how many other ways the deeds of a shorter plan may interleave to show the failure."""


def shortest(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Drop the deeds that are not needed for a failure, and simplify the others.

    The rest interleaves differently, so the result may be another failure of the same plan.
    """
    size = len(plan.deeds)
    while size >= 1:
        shorter = _first(_parts(plan, size), fails)
        if shorter is None:
            size //= 2
        else:
            plan = shorter
    while (plainer := _first(_plainer(plan), fails)) is not None:
        plan = plainer
    return plan


def _parts(plan: Plan, size: int) -> Iterator[Plan]:
    """The plan without ``size`` deeds in a row."""
    for start in reversed(range(0, len(plan.deeds), size)):
        yield plan.only(plan.deeds[:start] + plan.deeds[start + size :])


def _plainer(plan: Plan) -> Iterator[Plan]:
    for at, deed in enumerate(plan.deeds):
        for plain in _plain(deed):
            if plain != deed:
                yield plan.only((*plan.deeds[:at], plain, *plan.deeds[at + 1 :]))


def _plain(deed: Deed) -> Iterator[Deed]:
    if isinstance(deed, Ask):
        for plain in (
            {"instances": deed.instances[:1]},
            {"then": "forget"},
            {"tries": 1},
            {"is_doubled": False},
            {"hangs_up": False},
            {"priority": 0},
        ):
            yield msgspec.structs.replace(deed, **plain)


def _first(plans: Iterator[Plan], fails: Callable[[Plan], bool]) -> Plan | None:
    """The first plan that fails, as it interleaves or with a twist."""
    for plan in plans:
        for twist in range(TWISTS):
            twisted = msgspec.structs.replace(plan, seed=plan.seed + "'" * twist)
            if fails(twisted):
                return twisted
    return None
