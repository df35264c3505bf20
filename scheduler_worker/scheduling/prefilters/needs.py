"""Computes what a request needs of a host: traits, aggregates, networks, providers for groups, and
amounts: the part of Nova's Placement request without a suffix.

``VCPU``, ``MEMORY_MB`` and ``DISK_GB`` come from the flavor: its root disk unless the instance
boots from a volume, its ephemeral disk, and its swap, rounded up to GiB. CPUs that the request pins
are ``PCPU``, with one more for emulator threads of their own. The others stay ``VCPU``. Extra specs
``resources:`` override the fields, also with 0. One with a suffix takes the class from a group of
its own instead, and ``PCPU`` stands in for ``VCPU`` and for what a CPU policy pins. If a policy
pins all CPUs, a host that has ``VCPU`` to give and no ``PCPU`` at all gives ``VCPU``.

Extra specs with the same suffix (:mod:`~scheduler_worker.scheduling.extra_specs`) are a *granular
group*, which comes from one provider. Items without a suffix may come from several. The extra spec
``group_policy`` (``none`` or ``isolate``) says whether groups may share a provider. ``VCPU``,
``MEMORY_MB`` and ``DISK_GB`` of either kind are what Placement counts instead of the flavor's
fields; the instance has the size of these all the same.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter, is_
from typing import Any

import msgspec

from scheduler_worker.errors import RequestError
from scheduler_worker.model.requests import RequestGroup, RequestSpec
from scheduler_worker.scheduling.extra_specs import parsed
from scheduler_worker.scheduling.numa.constraints import wanted
from scheduler_worker.scheduling.pci.pools import pci_requests
from scheduler_worker.scheduling.prefilters.traits import (
    DISABLED,
    RequestFilterParameters,
    derived_traits,
    encrypts_memory,
    root_traits,
    thread_traits,
)
from scheduler_worker.wording import cut

OF_FLAVOR = frozenset({"VCPU", "MEMORY_MB", "DISK_GB"})
"""The classes of a flavor's fields, which are not matched with provider trees."""

_NO_TRAITS = frozenset[str](), frozenset[str]()
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


def _flavor_groups(spec: RequestSpec) -> tuple[Group, tuple[Group, ...]]:
    """The groups of flavor and image: without a suffix, and with one."""
    resources, traits = parsed(spec.flavor.extra_specs)
    threads = thread_traits(spec) if _asks_pcpu(resources) else _NO_TRAITS
    flat = resources.pop("", {}) | Counter(_derived_resources(spec))
    flat_traits = traits.pop("", {})
    own = Group(
        resources=_amounts(item for item in flat.items() if item[0] not in OF_FLAVOR),
        required=_with_value(flat_traits, "required") | derived_traits(spec) | threads[0],
        forbidden=_with_value(flat_traits, "forbidden") | threads[1],
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
    return own, tuple(group for group in named if group.resources or group.required)


def _requested_group(asked: RequestGroup, number: int) -> Group:
    """A group that the caller sent, for a port or a device."""
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


def _isolates(spec: RequestSpec, suffixes: int) -> bool:
    """Whether each of the groups must have a provider of its own."""
    policy = spec.flavor.extra_specs.get("group_policy")
    if suffixes > 1 and policy not in {"none", "isolate"}:
        problem = f"must be none or isolate, as there are {suffixes} granular groups"
        raise RequestError("spec_obj.flavor.extra_specs.group_policy", problem)
    return policy == "isolate"


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
    return frozenset(name for name, trait in traits.items() if trait == value)


def _asks_pcpu(by_suffix: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether extra specs request ``PCPU``, which is a resource of its group like any other."""
    return any(amounts.get("PCPU") for amounts in by_suffix.values())


def amounts_of(spec: RequestSpec, *, has_pcpu: bool = True) -> Resources:
    """The amounts by resource class, without zeros.

    ``has_pcpu`` false: of a host without ``PCPU``. Raises RequestError for an invalid topology.
    """
    flavor, by_suffix = spec.flavor, parsed(spec.flavor.extra_specs)[0]
    set_by_spec = by_suffix.get("", {})
    disk_gb = flavor.ephemeral_gb + -(-flavor.swap // 1024)
    amounts = {
        "VCPU": flavor.vcpus,
        "MEMORY_MB": flavor.memory_mb,
        "DISK_GB": disk_gb if spec.is_bfv else disk_gb + flavor.root_gb,
    }
    for name in chain.from_iterable(by_suffix.values()):  # also those that are set to 0
        amounts.pop("VCPU" if name == "PCPU" else name, None)
    amounts |= {name: set_by_spec[name] for name in OF_FLAVOR & set_by_spec.keys()}
    if not _asks_pcpu(by_suffix):
        amounts |= _pinned(spec, has_pcpu=has_pcpu)
    return _amounts(amounts.items())


def _pinned(spec: RequestSpec, *, has_pcpu: bool) -> dict[str, int]:
    """The vCPUs of a request with pinned ones, and what their emulator threads need."""
    asked = wanted(spec)
    cells = asked.topology.cells if asked is not None else ()
    pinned = sum(len(cell.pcpuset) for cell in cells)
    if asked is None or not pinned or not (has_pcpu or any(cell.cpuset for cell in cells)):
        return {}
    emulator = int(asked.topology.emulator_threads_policy == "isolate")
    return {"VCPU": spec.flavor.vcpus - pinned, "PCPU": pinned + emulator}


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """What the providers of a host have to give, all together."""

    groups: tuple[Group, ...] = ()
    """The flavor's own, which has no name, is the first."""
    isolates: bool = False
    """Whether no two groups with a name may share a provider."""
    same_subtree: tuple[frozenset[str], ...] = ()
    """Names of groups: one of their providers must be the ancestor of all others, or the same."""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a request needs of a host, before any filter of the policy."""

    required: frozenset[str] = frozenset()
    """Traits of the compute node."""
    forbidden: frozenset[str] = frozenset()
    of_root: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
    """Of these the required and forbidden ones that hold for the compute node itself, wherever the
    flavor's resources come from."""
    groups: tuple[Group, ...] = (Group(),)
    """What is asked of providers; the flavor's own group, which has no name, is the first."""
    zone: str | None = None
    tenant: str | None = None
    """The project, where tenants are limited to their aggregates."""
    traits: frozenset[str] | None = None
    """All traits that are required of providers, by groups that device pools serve and by thread
    policies too, where aggregates are isolated by traits."""
    member_of: tuple[frozenset[str], ...] = ()
    """Uuids of aggregates: the host must be in one of each set."""
    forbidden_aggregates: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()
    threads: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
    """Required and forbidden traits of compute nodes that give ``PCPU``."""
    amounts: Resources = ()
    """What it takes of the inventories of the compute node: vCPUs, memory and disk."""
    amounts_unpinned: Resources = ()
    """The same where there are no inventories of pinned CPUs."""
    supply: Supply | None = None
    """None: columns suffice, no provider tree has to be matched."""


_fields = attrgetter(
    *("flavor", "image", "is_bfv", "project_id", "availability_zone", "requested_destination"),
    *("requested_resources", "requested_networks", "request_level_params", "pci_requests"),
    "numa_topology",
)
"""Everything that is read of a request. All its instances share these objects."""
_last: tuple[RequestFilterParameters, tuple[Any, ...], Needs] | None = None


def needs_of(spec: RequestSpec, parameters: RequestFilterParameters) -> Needs:
    """What the request needs; computed once for consecutive questions about the same request.

    Raises:
        RequestError: a field is invalid; names it.
        NoValidHost: a request filter refuses the request.
    """
    global _last  # noqa: PLW0603 - one triple, which threads replace as a whole
    fields, last = _fields(spec), _last
    # Parameters are equal and not the same: each unit that asks has its own.
    if last is None or last[0] != parameters or not all(map(is_, last[1], fields)):
        last = _last = parameters, fields, _read(spec, parameters)
    return last[2]


def _read(spec: RequestSpec, parameters: RequestFilterParameters) -> Needs:
    flavor, suffixed = _flavor_groups(spec)
    requested = enumerate(spec.requested_resources or ())
    asked = [_requested_group(resource, number) for number, resource in requested]
    devices = _device_requests(spec)
    groups = (flavor, *suffixed, *(group for group in asked if not group.name.startswith(devices)))
    _check_names(asked, {group.name for group in suffixed})
    supply = None
    if flavor.resources or len(groups) > 1:
        subtrees = spec.request_level_params.same_subtree if spec.request_level_params else ()
        supply = Supply(
            groups=groups,
            isolates=_isolates(spec, len(suffixed)),
            same_subtree=tuple(map(frozenset, subtrees)),
        )
    traits = frozenset[str]().union(*(group.required for group in (flavor, *suffixed, *asked)))
    return _of_host(spec, parameters, groups, traits, supply)


def _of_host(
    spec: RequestSpec,
    parameters: RequestFilterParameters,
    groups: tuple[Group, ...],
    traits: frozenset[str],
    supply: Supply | None,
) -> Needs:
    params, destination = spec.request_level_params, spec.requested_destination
    required, forbidden = root_traits(spec, parameters), {DISABLED}
    if params is not None:
        required = required.union(params.root_required)
        forbidden.update(params.root_forbidden)
    of_root = required, frozenset(forbidden)
    if supply is None:
        required |= groups[0].required
        forbidden |= groups[0].forbidden
    amounts = amounts_of(spec)
    pins = any(name == "PCPU" for name, _ in amounts)
    threads = thread_traits(spec) if pins else _NO_TRAITS
    routed = parameters.query_placement_for_routed_network_aggregates
    networks = {asked.network_id for asked in spec.requested_networks if routed}
    isolated = parameters.enable_isolated_aggregate_filtering
    return Needs(
        required=required,
        forbidden=frozenset(forbidden),
        of_root=of_root,
        groups=groups,
        zone=spec.availability_zone or None,
        tenant=spec.project_id if parameters.limit_tenants_to_placement_aggregate else None,
        traits=traits | threads[0] if isolated else None,
        member_of=tuple(
            frozenset(filter(None, map(str.strip, text.split(","))))
            for text in (destination and destination.aggregates) or ()
        ),
        forbidden_aggregates=frozenset((destination and destination.forbidden_aggregates) or ()),
        networks=frozenset(filter(None, networks)),
        threads=threads,
        amounts=amounts,
        amounts_unpinned=amounts_of(spec, has_pcpu=False),
        supply=supply,
    )


def _check_names(asked: list[Group], suffixes: set[str]) -> None:
    """Callers are told the provider of each group by its name, so there is one of each."""
    for number, group in enumerate(asked):
        if group.name in suffixes:
            problem = f"{cut(repr(group.name))} names another group too; each needs one of its own"
            raise RequestError(f"spec_obj.requested_resources[{number}].requester_id", problem)
        suffixes.add(group.name)


def _device_requests(spec: RequestSpec) -> tuple[str, ...]:
    """The name prefixes of groups that stand for PCI requests, which device pools serve."""
    if not spec.pci_requests or not pci_requests(spec):
        return ()
    requests = spec.pci_requests["requests"]
    return tuple(f"{request['request_id']}-" for request in requests if request.get("request_id"))
