"""The lists of units and of locked policies."""

from collections.abc import Iterator
from typing import Any

from conformance import ovirt
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.scheduling.compiler import compile_policy
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.ovirt.policies import DEFAULT_POLICY, LOCKED_POLICIES

_KINDS = {
    "filter": UnitKind.FILTER,
    "weight": UnitKind.WEIGHT,
    "load_balancing": UnitKind.BALANCE,
    "selector": UnitKind.SELECTOR,
}
_POSITIONS = {-1: "first", 0: "none", 1: "last"}


def recognise(document: Any) -> bool:
    return ovirt.is_case(document, "units", "parameters") or ovirt.is_case(
        document, "policies", "selector_default"
    )


def run(document: Any) -> Iterator[str]:
    if "units" in document:
        for unit in document["units"]:
            yield from _unit(unit, document["parameters"])
        return
    ours = {policy.id: policy for policy in LOCKED_POLICIES}
    for expected in document["policies"]:
        if expected["id"] not in ours:
            yield f"there is no policy {expected['name']} {expected['id']}"
        else:
            yield from _policy(ours[expected["id"]], expected, document["selector_default"])


def _unit(unit: Any, expressions: dict[str, str]) -> Iterator[str]:
    kind = _KINDS[unit["type"]]
    found = ovirt.catalogue().find(unit["name"], kind)
    if found is None:
        yield f"there is no {kind} {unit['name']}"
        return
    if found.id_as(kind) != unit["id"]:
        yield f"{kind} {unit['name']} has the id {found.id_as(kind)}, not {unit['id']}"
    if found.is_mandatory != (unit["state"] == "mandatory"):
        yield f"{kind} {unit['name']} is mandatory: {found.is_mandatory}"
    declared = {
        parameter.name: parameter.ovirt_regex or parameter.regex for parameter in found.parameters
    }
    expected = {name: expressions[name] for name in unit["parameters"]}
    # Mandatory units take no parameters from policies, so ours may have options for some.
    if not found.is_mandatory and declared != expected:
        yield f"{kind} {unit['name']} declares {declared}, not {expected}"


def _policy(policy: ClusterPolicy, expected: Any, selector: str) -> Iterator[str]:
    compile_policy(policy, ovirt.catalogue(), Options())
    units = [(each.unit, each.position) for each in policy.filters]
    wanted = [(each["name"], _POSITIONS[each["position"]]) for each in expected["filters"]]
    factors = {weight.unit: weight.factor for weight in policy.weights}
    found = {
        "name": policy.name,
        "default": policy.name == DEFAULT_POLICY,
        "balance": _id(policy.balance.unit, UnitKind.BALANCE) if policy.balance else None,
        "filters": units,
        "weights": factors,
        "parameters": dict(policy.parameters),
        "selector": _id(policy.selector.unit, UnitKind.SELECTOR),
        "ids": [_id(name, UnitKind.FILTER) for name, _ in units]
        + [_id(name, UnitKind.WEIGHT) for name in factors],
    }
    asked = {
        "name": expected["name"],
        "default": expected["default"],
        "balance": expected["balance"]["id"],
        "filters": wanted,
        "weights": {each["name"]: each["factor"] for each in expected["functions"]},
        "parameters": expected["parameters"],
        "selector": selector,
        "ids": [each["id"] for each in (*expected["filters"], *expected["functions"])],
    }
    for key, value in found.items():
        if value != asked[key]:
            yield f"{policy.name}: {key} is {value}; expected is {asked[key]}"


def _id(name: str, kind: UnitKind) -> str | None:
    entry = ovirt.catalogue().find(name, kind)
    return entry.id_as(kind) if entry else None
