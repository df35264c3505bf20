"""Policies, units and clusters as resources, and the fields of resources in the worker's form.
Pure.

Filters, weights and balances have the ids of their units, so a member is found by the id of
the unit. A cluster's id is its name if that is a UUID, else a UUID made of the name.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from scheduler_worker.api import resource_types as types
from scheduler_worker.errors import Invalid
from scheduler_worker.model.documents import Attachment, StoredPolicy
from scheduler_worker.model.policies import Position, UnitUse
from scheduler_worker.scheduling.catalogue import UnitKind
from scheduler_worker.service.documents.policy_units import PolicyUnit, PolicyUnits

_CLUSTERS = uuid.UUID("6f1cf3b4-1f0a-5f53-8c39-0b7d6c3f6f52")
KIND_NAMES = {
    UnitKind.FILTER: "filter",
    UnitKind.WEIGHT: "weight",
    UnitKind.BALANCE: "load_balancing",
}
"""What oVirt calls the kinds; it has no name for selectors."""
POSITIONS: Mapping[int, Position] = {-1: "first", 0: "none", 1: "last"}
_NUMBERS = {position: number for number, position in POSITIONS.items()}
_REGEXES = {
    "integer": "^-?[0-9]+$",
    "number": r"^-?[0-9]+(\.[0-9]+)?$",
    "boolean": "^(true|false)$",
}
"""What is shown as the regex of a parameter whose unit declares a type only."""
HIGH, LOW, MINUTES = "HighUtilization", "LowUtilization", "CpuOverCommitDurationMinutes"
"""The parameters that version 3 calls thresholds."""
_MINUTES = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")


class ShownCluster(NamedTuple):
    """A cluster with the policy that it is attached to."""

    id: str
    name: str
    policy: StoredPolicy
    attachment: Attachment | None


def cluster_id(name: str) -> str:
    """The id of a cluster."""
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return str(uuid.uuid5(_CLUSTERS, name))


class Presentation:
    """Makes resources whose links begin with ``base``, in a version of the API."""

    def __init__(self, base: str, version: int, units: PolicyUnits) -> None:
        self._base = base
        self._version = version
        self._units = units

    def href(self, *parts: str) -> str:
        """The path of a resource."""
        return "/".join((self._base, *parts))

    # Units

    def unit(self, unit: PolicyUnit) -> types.Unit:
        """A unit with all its fields."""
        return types.Unit(
            href=self._unit_href(unit),
            id=unit.id,
            name=unit.name,
            description=unit.description,
            enabled=unit.is_enabled,
            internal=unit.is_internal,
            properties=tuple(
                types.Property(
                    name=parameter.name,
                    value=parameter.ovirt_regex
                    or parameter.regex
                    or _REGEXES.get(parameter.type, "^.*$"),
                )
                for parameter in sorted(unit.parameters, key=lambda parameter: parameter.name)
            )
            or None,
            type=KIND_NAMES.get(unit.kind),
        )

    def _unit_href(self, unit: PolicyUnit) -> str:
        return self.href("schedulingpolicyunits", unit.id)

    def _member(self, use: UnitUse, kind: UnitKind, inline: bool) -> dict[str, Any]:
        """The fields of every member: its id, and its unit as a link, or all of it."""
        unit = self._units.used(use.unit, kind)
        if unit is None:  # not installed any more
            shown = types.Unit(id=use.unit, name=use.unit, enabled=False)
        elif inline:
            shown = self.unit(unit)
        else:
            shown = types.Unit(href=self._unit_href(unit), id=unit.id)
        return {"id": shown.id, "scheduling_policy_unit": shown}

    # Policies

    def policy(self, stored: StoredPolicy) -> types.Policy:
        """A policy with links to its collections."""
        document = stored.document
        href = self.href("schedulingpolicies", document.id)
        links = [("filters",) * 2, ("weights",) * 2, ("weight", "weights"), ("balances",) * 2]
        if self._version == 3:
            links.append(("clusters", "clusters"))
        return types.Policy(
            href=href,
            id=document.id,
            name=document.name,
            description=document.description or None,
            link=tuple(types.Link(href=f"{href}/{path}", rel=rel) for rel, path in links),
            default_policy=stored.is_default,
            locked=stored.is_locked,
            properties=properties(document.parameters) or None,
        )

    def members(
        self, stored: StoredPolicy, kind: UnitKind, *, inline: bool = False
    ) -> Sequence[types.Filter | types.Weight | types.Balance]:
        """The filters of a policy in the order of their evaluation, its weights, or its balance.

        Their units come as links, or ``inline`` with all their fields.
        """
        document = stored.document
        if kind is UnitKind.FILTER:
            return tuple(
                types.Filter(position=_NUMBERS[use.position], **self._member(use, kind, inline))
                for use in document.ordered_filters
            )
        if kind is UnitKind.WEIGHT:
            return tuple(
                types.Weight(factor=use.factor, **self._member(use, kind, inline))
                for use in document.weights
            )
        use = document.balance
        return (types.Balance(**self._member(use, kind, inline)),) if use is not None else ()

    # Clusters

    def cluster(self, view: ShownCluster) -> types.Cluster:
        """A cluster with its policy: by reference and own properties, or as in version 3."""
        own = view.attachment.parameters if view.attachment else {}
        policy_id = view.policy.document.id
        reference = types.Policy(href=self.href("schedulingpolicies", policy_id), id=policy_id)
        cluster = types.Cluster(href=self.href("clusters", view.id), id=view.id, name=view.name)
        if self._version == 3:
            nested = structs.replace(
                reference,
                name=view.policy.document.name,
                policy=view.policy.document.name,
                thresholds=thresholds(own),
                properties=properties(own) or None,
            )
            return structs.replace(cluster, scheduling_policy=nested)
        return structs.replace(
            cluster,
            custom_scheduling_policy_properties=properties(own) or None,
            scheduling_policy=reference,
        )


def properties(parameters: Mapping[str, str]) -> tuple[types.Property, ...]:
    """Parameters as properties, by name."""
    return tuple(types.Property(name=name, value=parameters[name]) for name in sorted(parameters))


def parameters_of(field: str, sent: types.Properties) -> dict[str, str] | None:
    """Properties as parameters; None if there are none given. Raises Invalid."""
    if sent is None:
        return None
    parameters: dict[str, str] = {}
    for item in sent:
        if item.name is None:
            raise Invalid(field, "a property has no name; add one")
        if item.name in parameters:
            raise Invalid(f"{field}.{item.name}", "the property is given twice")
        parameters[item.name] = item.value or ""
    return parameters


def thresholds(parameters: Mapping[str, str]) -> types.Thresholds | None:
    """The parameters that are thresholds in version 3; durations in seconds."""
    known = (name for name in (HIGH, LOW) if parameters.get(name, "").isdecimal())
    numbers = {name: int(parameters[name]) for name in known}
    if _MINUTES.fullmatch(minutes := parameters.get(MINUTES, "")):
        numbers[MINUTES] = round(float(minutes) * 60)
    if not numbers:
        return None
    high, low, duration = map(numbers.get, (HIGH, LOW, MINUTES))
    return types.Thresholds(high=high, low=low, duration=duration)


def own_parameters(cluster: types.Cluster) -> dict[str, str] | None:
    """The parameters that a client gives a cluster; None if it gives none.

    Properties win over thresholds, as in oVirt. Raises Invalid.
    """
    field = "custom_scheduling_policy_properties"
    own = parameters_of(field, cluster.custom_scheduling_policy_properties)
    policy = cluster.scheduling_policy
    if policy is None:
        return own
    nested = parameters_of("scheduling_policy.properties", policy.properties)
    limits = _limits(policy.thresholds)
    if own is None and nested is None and limits is None:
        return None
    return {**(limits or {}), **(nested or {}), **(own or {})}


def _limits(sent: types.Thresholds | None) -> dict[str, str] | None:
    if sent is None:
        return None
    minutes = None if sent.duration is None else f"{sent.duration / 60:.10g}"
    limits = {HIGH: sent.high, LOW: sent.low, MINUTES: minutes}
    return {name: str(value) for name, value in limits.items() if value is not None}
