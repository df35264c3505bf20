"""What a policy must fulfil before it is stored: oVirt's checks, in oVirt's order.

All of them are pure. The first that fails raises :class:`~scheduler_worker.errors.Invalid`, which
names the field, or NameTaken.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import structs

from scheduler_worker.errors import ClusterPolicyError, InUse, Invalid, NameTaken, NotFound
from scheduler_worker.model.policies import MAX_VALUE, ClusterPolicy, UnitUse, check_bounds
from scheduler_worker.scheduling.catalogue import Parameter, UnitKind, parameter_values
from scheduler_worker.service.documents.policy_units import PolicyUnit, PolicyUnits
from scheduler_worker.wording import cut, listed

_PARAMETER_NAME = re.compile(r"[a-z_A-Z0-9]{1,128}")
_MOST_FACTOR = 2**31 - 1
"""oVirt's factors are whole numbers of 32 bits; above, sums of scores lose all others."""
_UNSTORABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
"""Characters that not every database and no XML document can carry; newlines and tabs are fine."""


def check_policy(policy: ClusterPolicy, units: PolicyUnits, names: Mapping[str, str]) -> None:
    """Check a policy before it is stored.

    ``names`` has the names of all policies, by id. Raises Invalid or NameTaken.
    """
    _check_texts(policy)
    check_name(policy, names)
    _check_units("filters", UnitKind.FILTER, policy.filters, units)
    _check_positions(policy)
    _check_units("weights", UnitKind.WEIGHT, policy.weights, units)
    _check_factors(policy, units)
    if policy.balance is not None:
        _check_units("balance", UnitKind.BALANCE, [policy.balance], units)
    _check_units("selector", UnitKind.SELECTOR, [policy.selector], units)
    check_parameters(policy, policy.parameters, units)


def check_name(policy: ClusterPolicy, names: Mapping[str, str]) -> None:
    """Raises NameTaken where another policy has the name, in any letter case."""
    for policy_id, name in names.items():
        if policy_id != policy.id and name.casefold() == policy.name.casefold():
            raise NameTaken(policy.name)


def check_enabled(policy: ClusterPolicy, units: PolicyUnits) -> None:
    """Raises Invalid with all units of the policy that cannot be used, and why."""
    problems = [
        f"{kind} {use.unit} {problem}"
        for kind, use in uses(policy)
        if (problem := units.problem(use.unit, kind)) is not None
    ]
    if problems:
        raise Invalid("policy", "; ".join(problems))


def check_parameters(
    policy: ClusterPolicy,
    parameters: Mapping[str, str],
    units: PolicyUnits,
    *,
    known: Collection[str] = (),
) -> None:
    """Check values of the policy's parameters, its own or a cluster's.

    Names that are ``known`` need not be declared.

    Raises Invalid: no unit of the policy declares one of them, or a value does not fit.
    """
    declared = declarations(policy, units)
    for name, value in sorted(parameters.items()):
        if not _PARAMETER_NAME.fullmatch(name):
            field = f"properties.{cut(name)}"
            raise Invalid(field, "a name consists of up to 128 letters a-z and A-Z, digits and _")
        field = f"properties.{name}"
        _check_value(field, value)
        if name not in declared and name not in known:
            names = listed(sorted(declared), 20) or "none, for the policy has no such unit"
            raise Invalid(field, f"no unit of the policy declares it; declared are: {names}")
        for declaration in declared.get(name, ()):
            declaration.check(field, value)


def cluster_parameters(
    policy: ClusterPolicy, own: Mapping[str, str], units: PolicyUnits
) -> dict[str, str]:
    """A cluster's parameters under a policy: its own values, else the policy's.

    Names that the policy does not know are dropped. It knows parameters that its units declare, and
    parameters that it sets: a built-in one may set what a unit of a later version reads.
    """
    known = declarations(policy, units).keys() | policy.parameters.keys()
    return {name: value for name, value in {**policy.parameters, **own}.items() if name in known}


class Declaration(NamedTuple):
    """A parameter as one unit declares it."""

    unit: str
    parameter: Parameter
    declared_in: type | None

    def check(self, field: str, value: str) -> None:
        """Raises Invalid when the value does not fit."""
        regex = self.parameter.regex
        if regex is not None and not re.fullmatch(regex, value):
            raise Invalid(field, f"{cut(value)!r} does not match {regex}, as {self.unit} demands")
        if self.declared_in is None:
            return
        try:
            parameter_values(self.declared_in, [{self.parameter.name: value}])
        except ValueError as error:
            raise Invalid(field, f"{cut(value)!r} is refused by {self.unit}: {error}") from None


def declarations(policy: ClusterPolicy, units: PolicyUnits) -> dict[str, list[Declaration]]:
    """The parameters that units of the policy declare, by name."""
    declared: dict[str, list[Declaration]] = {}
    for kind, use in uses(policy):
        unit, entry = units.used(use.unit, kind), units.catalogue.entries.get((kind, use.unit))
        declared_in = None if entry is None else entry.unit.parameters_type
        for parameter in () if unit is None else unit.parameters:
            declaration = Declaration(use.unit, parameter, declared_in)
            declared.setdefault(parameter.name, []).append(declaration)
    return declared


def switchable(units: PolicyUnits, name: str) -> list[PolicyUnit]:
    """The units of this id or name, all of which an administrator may enable and disable.

    Raises:
        NotFound: there is none.
        Invalid: one is always enabled, or cannot be used.
    """
    named = [unit for unit in units if name in {unit.id, unit.name}]
    if not named:
        raise NotFound("unit", name)
    for unit in named:
        entry = units.catalogue.entries.get((unit.kind, unit.name))
        if entry is None:
            raise Invalid("unit", f"{unit.name} is not installed any more")
        if entry.problem is not None:
            raise Invalid("unit", unit.description)
        if not entry.unit.needs_enabling:
            raise Invalid("unit", f"{unit.name} comes from no file and is always enabled")
    return named


def check_unused(units: Iterable[PolicyUnit], policies: Mapping[str, ClusterPolicy]) -> None:
    """Raises InUse where policies use one of the units; names them by their keys."""
    for unit in units:
        users = [
            name
            for name, policy in policies.items()
            if (unit.kind, unit.name) in {(kind, use.unit) for kind, use in uses(policy)}
        ]
        if users:
            raise InUse(f"Unit {unit.name}", users)


def uses(policy: ClusterPolicy) -> Iterator[tuple[UnitKind, UnitUse]]:
    """Every use of a unit in the policy, with the kind that it is used as."""
    yield from ((UnitKind.FILTER, use) for use in policy.filters)
    yield from ((UnitKind.WEIGHT, weight) for weight in policy.weights)
    if policy.balance is not None:
        yield UnitKind.BALANCE, policy.balance
    yield UnitKind.SELECTOR, policy.selector


def _check_texts(policy: ClusterPolicy) -> None:
    for _, use in uses(policy):
        for name, value in use.parameters.items():
            _check_value(f"{use.unit}.{name}", value)
    for field in ("id", "name", "description"):
        _check_characters(field, getattr(policy, field))
    for _, use in uses(policy):
        _check_characters(f"{use.unit} name", use.name or "")
    try:
        # A struct that was made by hand may be out of bounds; parameters have their turn later.
        check_bounds(structs.replace(policy, parameters={}))
    except ClusterPolicyError as error:
        raise Invalid("policy", str(error)) from None
    if policy.name != policy.name.strip():
        raise Invalid("name", "begins or ends with a space")


def _check_characters(field: str, text: str) -> None:
    if match := _UNSTORABLE.search(text):
        raise Invalid(field, f"contains the character {match.group()!r}, which cannot be stored")


def _check_value(field: str, value: str) -> None:
    _check_characters(field, value)
    if len(value) > MAX_VALUE:
        raise Invalid(field, f"is longer than {MAX_VALUE} characters")
    if ";" in value:
        raise Invalid(field, f"{cut(value)!r} contains a semicolon, which no value may")


def _check_units(field: str, kind: UnitKind, used: Iterable[UnitUse], units: PolicyUnits) -> None:
    seen: set[str] = set()
    for use in used:
        problem = units.problem(use.unit, kind)
        if use.unit in seen:
            problem = f"the unit is used twice; a policy uses a {kind} once"
        if problem is not None:
            raise Invalid(f"{field}.{cut(use.unit)}", problem)
        seen.add(use.unit)


def _check_positions(policy: ClusterPolicy) -> None:
    for position in ("first", "last"):
        names = [use.unit for use in policy.filters if use.position == position]
        if len(names) > 1:
            raise Invalid("filters", f"only one filter can be {position}, not {listed(names)}")


def _check_factors(policy: ClusterPolicy, units: PolicyUnits) -> None:
    """A negative factor inverts one of Nova's weighers; of a cost it would prefer the worst."""
    for weight in policy.weights:
        entry = units.catalogue.entries.get((UnitKind.WEIGHT, weight.unit))
        is_cost = entry is None or getattr(entry.unit, "lower_is_better", False)
        problem = ""
        if not math.isfinite(weight.factor):
            problem = f"factor {weight.factor} is no finite number"
        elif abs(weight.factor) > _MOST_FACTOR:
            problem = f"factor {weight.factor:g} is not between +/-{_MOST_FACTOR}"
        elif weight.factor < 0 and is_cost:
            problem = f"factor {weight.factor:g} of a cost is not 0 or above"
        if problem:
            raise Invalid(f"weights.{cut(weight.unit)}", problem)
