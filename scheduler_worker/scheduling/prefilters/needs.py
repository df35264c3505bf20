"""What a request needs of a host: traits, aggregates, networks, and providers for its groups."""

from __future__ import annotations

from operator import attrgetter, is_
from typing import Any

import msgspec

from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.options import Options
from scheduler_worker.scheduling.pci.requests import pci_requests
from scheduler_worker.scheduling.prefilters.groups import (
    Group,
    flavor_groups,
    isolates,
    requested_group,
)
from scheduler_worker.scheduling.prefilters.traits import DISABLED, root_traits


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """What the providers of a host have to give, all of it at once."""

    groups: tuple[Group, ...] = ()
    """The flavor's own, which has no name, comes first."""
    isolates: bool = False
    """Whether no two groups with a name may share a provider."""
    same_subtree: tuple[frozenset[str], ...] = ()
    """Names of groups, one of whose providers must be above all others, or the same."""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks of a host before any filter is asked."""

    required: frozenset[str] = frozenset()
    """Traits of the compute node."""
    forbidden: frozenset[str] = frozenset()
    zone: str | None = None
    tenant: str | None = None
    """The project, where tenants are kept to their aggregates."""
    traits: frozenset[str] | None = None
    """All required traits of all groups, where aggregates are isolated by them."""
    member_of: tuple[frozenset[str], ...] = ()
    """Uuids of aggregates: one of each set."""
    forbidden_aggregates: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()
    supply: Supply | None = None
    """None: nothing but what columns can tell."""


_fields = attrgetter(
    *("flavor", "image", "is_bfv", "project_id", "availability_zone", "requested_destination"),
    *("requested_resources", "requested_networks", "request_level_params", "pci_requests"),
)
"""All that is read of a request. Its instances share these very objects."""
_last: tuple[tuple[Any, ...], Needs] | None = None


def needs_of(spec: RequestSpec, options: Options) -> Needs:
    """What the request needs; read once for all who ask about the same request in turn.

    Raises:
        RequestError: it makes no sense; says which field.
        NoValidHost: a request filter refuses it.

    """
    global _last  # noqa: PLW0603 - a pair that is replaced whole, whatever thread does
    fields, last = (options, *_fields(spec)), _last
    if last is None or not all(map(is_, last[0], fields)):
        last = _last = fields, _read(spec, options)
    return last[1]


def _read(spec: RequestSpec, options: Options) -> Needs:
    flavor, suffixed = flavor_groups(spec)
    asked = [requested_group(each, at) for at, each in enumerate(spec.requested_resources or ())]
    devices = _device_requests(spec)
    groups = (flavor, *suffixed, *(each for each in asked if not each.name.startswith(devices)))
    supply = None
    if flavor.resources or len(groups) > 1:
        subtrees = spec.request_level_params.same_subtree if spec.request_level_params else ()
        supply = Supply(
            groups=groups,
            isolates=isolates(spec, len(suffixed)),
            same_subtree=tuple(map(frozenset, subtrees)),
        )
    return _of_host(spec, options, groups, supply)


def _of_host(
    spec: RequestSpec,
    options: Options,
    groups: tuple[Group, ...],
    supply: Supply | None,
) -> Needs:
    params, destination = spec.request_level_params, spec.requested_destination
    required, forbidden = root_traits(spec, options), {DISABLED}
    if params is not None:
        required = required.union(params.root_required)
        forbidden.update(params.root_forbidden)
    if supply is None:
        required |= groups[0].required
        forbidden |= groups[0].forbidden
    routed = options.query_placement_for_routed_network_aggregates
    isolated = options.enable_isolated_aggregate_filtering
    return Needs(
        required=required,
        forbidden=frozenset(forbidden),
        zone=spec.availability_zone or None,
        tenant=spec.project_id if options.limit_tenants_to_placement_aggregate else None,
        traits=frozenset().union(*(each.required for each in groups)) if isolated else None,
        member_of=tuple(_uuids(text) for text in (destination and destination.aggregates) or ()),
        forbidden_aggregates=frozenset((destination and destination.forbidden_aggregates) or ()),
        networks=frozenset(_networks(spec)) if routed else frozenset(),
        supply=supply,
    )


def _device_requests(spec: RequestSpec) -> tuple[str, ...]:
    """How the groups are called that stand for PCI requests: hosts' device pools answer those."""
    if not spec.pci_requests or not pci_requests(spec):
        return ()
    requests = spec.pci_requests["requests"]
    return tuple(f"{each['request_id']}-" for each in requests if each.get("request_id"))


def _uuids(text: str) -> frozenset[str]:
    return frozenset(each.strip() for each in text.split(",") if each.strip())


def _networks(spec: RequestSpec) -> list[str]:
    return [each.network_id for each in spec.requested_networks if each.network_id]
