"""Reads policies of an oVirt engine as the worker's. Pure.

Units are found by their ids, which are oVirt's; one that users installed is found by its name and
kind. A unit that is evaluated here under every policy is left out, and so is the balance that moves
nothing.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from msgspec import structs

from scheduler_worker.api import resource_types as types
from scheduler_worker.api.engine_client import EnginePolicy
from scheduler_worker.api.presentation import POSITIONS, parameters_of
from scheduler_worker.errors import ClusterPolicyError, Invalid
from scheduler_worker.model.policies import (
    BalanceUse,
    ClusterPolicy,
    FilterUse,
    SelectorUse,
    UnitUse,
    WeightUse,
    from_plain,
    to_plain,
)
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.scheduling.selectors import RankSelector
from scheduler_worker.service.policies.policy_rules import declarations
from scheduler_worker.service.policies.policy_units import PolicyUnits

NO_BALANCE = "38440000-8cf0-14bd-c43e-10b96e4ef00a"
"""The id of oVirt's balance that moves nothing."""

AnyUse = TypeVar("AnyUse", bound=UnitUse)


class Imported(NamedTuple):
    """A policy of an engine in the worker's form."""

    document: ClusterPolicy
    unknown: list[str]
    """The units that are not known here, as words for people; the document is without them."""
    notes: list[str]
    """What else was left out, and why."""


class EngineUnits:
    """Finds the unit that an engine means by an id."""

    def __init__(self, engine_units: Iterable[types.Unit], ours: PolicyUnits) -> None:
        self._of_engine = {unit.id: unit for unit in engine_units}
        self.ours = ours
        """The units that are known here."""
        self._mandatory = {
            entry.id_as(kind)
            for entry in ours.catalogue
            if entry.is_mandatory
            for kind in entry.kinds
        }

    def name(self, unit_id: str, kind: UnitKind) -> str | None:
        """Our name of a unit; None if there is none of that kind."""
        unit = self.ours.find(unit_id)
        if unit is None:
            engine_unit = self._of_engine.get(unit_id)
            name = engine_unit.name if engine_unit and not engine_unit.internal else None
            unit = self.ours.used(name, kind) if name else None
        return unit.name if unit and unit.kind is kind and unit.is_enabled else None

    def is_mandatory(self, unit_id: str) -> bool:
        """Whether the unit is evaluated here under every policy."""
        return unit_id in self._mandatory

    def described(self, unit_id: str, kind: UnitKind) -> str:
        """A unit as an engine's administrator knows it."""
        unit = self._of_engine.get(unit_id)
        name = unit.name if unit and unit.name else "without a name"
        origin = "external " if unit and unit.internal is False else ""
        return f"the {origin}{kind} {name} ({unit_id})"


def imported(engine: EnginePolicy, units: EngineUnits, before: ClusterPolicy | None) -> Imported:
    """An engine's policy in the worker's form; in the order of the stored ``before`` if possible.

    Engines return filters and weights in any order, which means nothing to either.

    Raises Invalid: the engine's answer has no id, no name, or a value that no policy has.
    """
    policy = engine.policy
    unknown: list[str] = []
    notes: list[str] = []

    def known(member: types.Filter | types.Weight | types.Balance, kind: UnitKind) -> str | None:
        unit_id = _unit_id(policy, member)
        name = units.name(unit_id, kind)
        if name is not None or unit_id == NO_BALANCE:
            return name
        if units.is_mandatory(unit_id):
            notes.append(f"{units.described(unit_id, kind)}: is evaluated under every policy here")
        else:
            unknown.append(units.described(unit_id, kind))
        return None

    filters = [
        FilterUse(unit=name, position=POSITIONS.get(member.position or 0, "none"))
        for member in engine.filters
        if (name := known(member, UnitKind.FILTER)) is not None
    ]
    weights = [
        WeightUse(unit=name, factor=1.0 if weight.factor is None else weight.factor)
        for weight in engine.weights
        if (name := known(weight, UnitKind.WEIGHT)) is not None
    ]
    balances = [
        BalanceUse(unit=name)
        for balance in engine.balances
        if (name := known(balance, UnitKind.BALANCE)) is not None
    ]
    document = ClusterPolicy(
        id=policy.id or "",
        name=policy.name or "",
        version=1,
        description=policy.description or "",
        filters=_ordered(filters, before.filters if before else ()),
        weights=_ordered(weights, before.weights if before else ()),
        balance=balances[0] if balances else None,
        selector=SelectorUse(unit=RankSelector.__name__),
        parameters=parameters_of("properties", policy.properties) or {},
    )
    # A built-in policy may set what only a unit of a later version declares.
    declared = declarations(document, units.ours).keys() | (before.parameters if before else {})
    parameters = document.parameters
    notes += [
        f"the property {name}: no unit of it that is known here has it"
        for name in sorted(parameters.keys() - declared)
    ]
    order = [*(before.parameters if before else ()), *sorted(parameters)]
    kept = {name: parameters[name] for name in order if name in parameters and name in declared}
    return Imported(_checked(structs.replace(document, parameters=kept)), unknown, notes)


def _checked(document: ClusterPolicy) -> ClusterPolicy:
    try:
        return from_plain(to_plain(document))
    except ClusterPolicyError as error:
        raise Invalid(f"the engine's policy {document.name or document.id}", str(error)) from None


def _unit_id(policy: types.Policy, member: types.Filter | types.Weight | types.Balance) -> str:
    unit = member.scheduling_policy_unit
    unit_id = (unit.id if unit else None) or member.id
    if not unit_id:
        raise Invalid(f"the engine's policy {policy.name}", "one of its units has no id")
    return unit_id


def _ordered(uses: Sequence[AnyUse], before: Sequence[UnitUse]) -> tuple[AnyUse, ...]:
    places = {use.unit: place for place, use in enumerate(before)}
    return tuple(sorted(uses, key=lambda use: places.get(use.unit, len(places))))
