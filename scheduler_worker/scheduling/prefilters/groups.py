"""Granular request groups: resources that must come from one provider.

Extra specs with the same suffix (:mod:`~scheduler_worker.scheduling.extra_specs`) are a group,
which comes from one provider. Items without a suffix may come from several. ``VCPU``, ``MEMORY_MB``
and ``DISK_GB`` of either kind are what Placement counts instead of the flavor's fields; the
instance has the size of these all the same. The extra spec ``group_policy`` (``none`` or
``isolate``) says whether groups may share a provider.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.model.requests import Flavor, RequestGroup, RequestSpec
from scheduler_worker.scheduling.extra_specs import parsed
from scheduler_worker.scheduling.prefilters.traits import derived_traits, encrypts_memory

OF_FLAVOR = frozenset({"VCPU", "MEMORY_MB", "DISK_GB"})
"""The classes of a flavor's fields, which are not matched with provider trees."""

_NOT_OF_CLASSES = re.compile(r"[^A-Z0-9_]")

Resources = tuple[tuple[str, int], ...]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Requested resources, and the traits and aggregates that their providers must have."""

    name: str = ""
    """A suffix, or a ``requester_id``; empty: the flavor's items without a suffix."""
    resources: Resources = ()
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()
    """Uuids of aggregates: the provider must be in one of each set."""
    forbidden_aggregates: frozenset[str] = frozenset()
    in_tree: str | None = None
    """The uuid of a provider in the tree that all resources must come from."""

    @property
    def has_one_provider(self) -> bool:
        """Whether all its resources must come from one provider."""
        return bool(self.name)


def flavor_groups(spec: RequestSpec) -> tuple[Group, tuple[Group, ...]]:
    """The groups of flavor and image: without a suffix, and with one. Raises RequestError."""
    resources, traits = parsed(spec.flavor.extra_specs)
    flat = resources.pop("", {}) | Counter(_derived_resources(spec))
    wanted = traits.pop("", {})
    own = Group(
        resources=_amounts(item for item in flat.items() if item[0] not in OF_FLAVOR),
        required=_with_value(wanted, "required") | derived_traits(spec),
        forbidden=_with_value(wanted, "forbidden"),
    )
    named = tuple(
        Group(
            name=suffix,
            resources=_amounts(resources.get(suffix, {}).items()),
            required=_with_value(traits.get(suffix, {}), "required"),
            forbidden=_with_value(traits.get(suffix, {}), "forbidden"),
        )
        for suffix in sorted(resources.keys() | traits.keys())
    )
    return own, tuple(each for each in named if each.resources or each.required)


def requested_group(asked: RequestGroup, number: int) -> Group:
    """A group that the caller sent, for a port or a device.

    Raises:
        RequestError: it has no ``requester_id``.

    """
    if not asked.requester_id:
        raise RequestError(f"spec_obj.requested_resources[{number}].requester_id", "is missing")
    return Group(
        name=asked.requester_id,
        resources=_amounts(asked.resources.items()),
        required=frozenset(asked.required_traits),
        forbidden=frozenset(asked.forbidden_traits),
        member_of=tuple(map(frozenset, asked.aggregates)),
        forbidden_aggregates=frozenset(asked.forbidden_aggregates),
        in_tree=asked.in_tree,
    )


def isolates(spec: RequestSpec, suffixes: int) -> bool:
    """Whether each of the groups must have a provider of its own.

    Raises:
        RequestError: there are several suffixes and no policy.

    """
    policy = spec.flavor.extra_specs.get("group_policy")
    if suffixes > 1 and policy not in {"none", "isolate"}:
        problem = f"must be none or isolate, as there are {suffixes} granular groups"
        raise RequestError("spec_obj.flavor.extra_specs.group_policy", problem)
    return policy == "isolate"


def unsuffixed(flavor: Flavor) -> Mapping[str, int]:
    """The amounts that ``resources:CLASS`` sets, zeros included."""
    return parsed(flavor.extra_specs)[0].get("", {})


def suffixed(flavor: Flavor) -> frozenset[str]:
    """The classes that ``resourcesS:CLASS`` sets, those that it sets to 0 included."""
    found = parsed(flavor.extra_specs)[0].items()
    return frozenset(name for suffix, amounts in found if suffix for name in amounts)


def _derived_resources(spec: RequestSpec) -> Iterator[str]:
    """The resource classes that other extra specs request, one for each unit."""
    for label in spec.flavor.extra_specs.get("hw:pmem", "").split(","):
        if label.strip():
            yield f"CUSTOM_PMEM_NAMESPACE_{_NOT_OF_CLASSES.sub('_', label.strip().upper())}"
    if encrypts_memory(spec):
        yield "MEM_ENCRYPTION_CONTEXT"


def _amounts(resources: Iterable[tuple[str, int]]) -> Resources:
    return tuple(sorted(item for item in resources if item[1] > 0))


def _with_value(traits: Mapping[str, str], value: str) -> frozenset[str]:
    return frozenset(name for name, each in traits.items() if each == value)
