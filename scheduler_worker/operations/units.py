"""Units: filters, weighers, balances and selectors that policies may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from scheduler_worker.conversion import convert
from scheduler_worker.model.policies import ParameterFacts, UnitFacts
from scheduler_worker.operations.callers import Right
from scheduler_worker.operations.operation import Call, Page, PageQuery, operation, page_of

if TYPE_CHECKING:
    from scheduler_worker.service.documents.library import Library
    from scheduler_worker.service.documents.policy_units import PolicyUnit, PolicyUnits


class UnitParameter(ParameterFacts, frozen=True, kw_only=True):
    """A parameter that a unit declares. A value matches the `regex` as a whole."""

    default: str
    """As text, like every value."""


class UnitView(UnitFacts, frozen=True, kw_only=True):
    """A unit in one of its kinds."""

    is_internal: bool
    """Whether it comes with the worker."""
    kind: Literal["filter", "weight", "balance", "selector"]
    can_be_switched: bool
    """Whether administrators enable and disable it: it comes from a file."""
    is_cost: bool
    """Of a weight: whether low scores are better, so that its factor is 0 or above."""
    parameters: list[UnitParameter]


class OneUnit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A unit."""

    id: Annotated[str, Meta(description="The id of a unit.")]


class UnitSwitch(OneUnit, frozen=True, forbid_unknown_fields=True):
    """Whether policies may use a unit."""

    is_enabled: bool


@operation("GET", "/units")
def list_units(call: Call, query: PageQuery) -> Page[UnitView]:
    """List the units that policies may use, by id."""
    units = call.services.administration.library().units
    return page_of(((unit.id, unit) for unit in units), query, lambda unit: _unit(unit, units))


@operation("GET", "/units/{id}")
def get_unit(call: Call, target: OneUnit) -> UnitView:
    """Show a unit."""
    return _find(call.services.administration.library(), target.id)


@operation("PUT", "/units/{id}", right=Right.SWITCH_UNIT, has_condition=True)
def switch_unit(call: Call, asked: UnitSwitch) -> UnitView:
    """Enable or disable a unit from a file."""
    administration = call.services.administration
    administration.switch_unit(
        asked.id,
        call.actor,
        lambda library: call.check_match(_find(library, asked.id)),
        is_enabled=asked.is_enabled,
    )
    return _find(administration.library(), asked.id)


@operation("DELETE", "/units/{id}", right=Right.DELETE_UNIT, has_condition=True)
def remove_unit(call: Call, target: OneUnit) -> None:
    """Remove a unit that is not installed any more, and that no policy uses."""
    call.services.administration.remove_unit(
        target.id, call.actor, lambda library: call.check_match(_find(library, target.id))
    )


def _find(library: Library, id: str) -> UnitView:
    return _unit(library.unit(id), library.units)


def _unit(unit: PolicyUnit, units: PolicyUnits) -> UnitView:
    from scheduler_worker.scheduling.catalogue import UnitKind

    entry = units.catalogue.find(unit.name, unit.kind)
    code = None if entry is None or entry.problem is not None else entry.unit
    return UnitView(
        **{name: getattr(unit, name) for name in UnitFacts.__struct_fields__},
        is_internal=unit.is_internal,
        kind=unit.kind.value,
        can_be_switched=code is not None and code.needs_enabling,
        is_cost=unit.kind is UnitKind.WEIGHT and bool(getattr(code, "lower_is_better", False)),
        parameters=[
            convert(structs.asdict(each) | {"default": _text(each.default)}, UnitParameter)
            for each in unit.parameters
        ],
    )


def _text(value: Any) -> str:
    """A default as a policy would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
