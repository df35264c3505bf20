"""The request filters as units: one tests columns, the other the provider tree of each host.

They are asked before the enabled filters, and for forced hosts too, as Placement would be. They are
not asked for a rebuild with a new image.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.aggregates import AVAILABILITY_ZONE
from scheduler_worker.model.host_records import out_of_service
from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.providers import ProviderTree, ProviderUse
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter, only
from scheduler_worker.scheduling.prefilters import hosts as facts
from scheduler_worker.scheduling.prefilters.capacity import amounts_on
from scheduler_worker.scheduling.prefilters.matching import Chosen, match, uses_of
from scheduler_worker.scheduling.prefilters.needs import Needs, Supply, needs_of
from scheduler_worker.scheduling.prefilters.traits import DISABLED, RequestFilterParameters

NO_TENANT = "Scheduling failed: No hosts available for tenant"


class RequestFilters(Filter):
    """Passes hosts with the traits, aggregates, zone, networks and node that the request needs."""

    run_filter_once_per_request = True
    runs_on_forced_hosts = True
    reads_use = False
    parameters_type = RequestFilterParameters

    def reads(self, spec: RequestSpec) -> Hashable:
        return needs_of(spec, self.parameters), _node(spec), spec.allocation_candidates is None

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        passed = np.ones(len(hosts), bool)
        for mask, _ in _checks(hosts, spec, self.parameters):
            passed &= mask
        return passed

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return self._rejection(host_state, spec_obj) is None

    def demand(self, spec: RequestSpec) -> str:
        needs = needs_of(spec, self.parameters)
        found = ["are enabled"]
        if needs.required:
            found.append(f"with trait {' and '.join(sorted(needs.required))}")
        if needs.zone:
            found.append(f"in zone {needs.zone}")
        others = (needs.forbidden - {DISABLED}, needs.member_of, needs.forbidden_aggregates)
        if any((*others, needs.tenant, needs.traits, needs.networks, needs.supply)):
            found.append("with all else that is asked of traits, aggregates and providers")
        return " ".join(found)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        if host_state.service_disabled:
            return out_of_service(host_state.record) or ""
        return self._rejection(host_state, spec) or super().reason(host_state, spec)

    def _rejection(self, host: HostState, spec: RequestSpec) -> str | None:
        checks = _checks(only(host), spec, self.parameters)
        return next((why for mask, why in checks if not mask[0]), None)


_BY_TRAIT = f"its compute service is disabled (its provider has the trait {DISABLED})"

Check = tuple[Mask, str]
"""The hosts that pass, and the reason for the others."""


def _node(spec: RequestSpec) -> str | None:
    """The node of a destination without a host; RequestedDestination handles one with a host."""
    destination = spec.requested_destination
    return destination.node if destination and not destination.host else None


def _checks(
    hosts: Hosts, spec: RequestSpec, parameters: RequestFilterParameters
) -> Iterator[Check]:
    needs, node = needs_of(spec, parameters), _node(spec)
    if node:
        yield facts.is_node(hosts, node), f"is not node {node}"
    required, forbidden, supply = needs.required, needs.forbidden, needs.supply
    if spec.allocation_candidates is not None:  # which answer for all that providers give
        (required, forbidden), supply = needs.of_root, None
    elif any(needs.threads):
        yield from _thread_checks(hosts, *needs.threads)
    for trait in forbidden:
        why = _BY_TRAIT if trait == DISABLED else f"has trait {trait}"
        yield ~facts.has_trait(hosts, trait), why
    for trait in required:
        yield facts.has_trait(hosts, trait), f"lacks trait {trait}"
    for network in needs.networks:
        yield facts.has_network(hosts, network), f"does not report network {network}"
    yield from _aggregate_checks(hosts, needs, parameters)
    if supply is not None:
        yield from _supply_checks(hosts, supply)


def _thread_checks(
    hosts: Hosts, required: frozenset[str], forbidden: frozenset[str]
) -> Iterator[Check]:
    """Of hosts without an inventory of pinned CPUs, NUMATopologyFilter knows the threads."""
    others = ~facts.gives_pinned_cpus(hosts)
    for trait in required:
        yield others | facts.has_trait(hosts, trait), f"lacks trait {trait}"
    for trait in forbidden:
        yield others | ~facts.has_trait(hosts, trait), f"has trait {trait}"


def _aggregate_checks(
    hosts: Hosts, needs: Needs, parameters: RequestFilterParameters
) -> Iterator[Check]:
    for some in needs.member_of:
        yield facts.is_member(hosts, some), f"is in no aggregate of {', '.join(sorted(some))}"
    if needs.forbidden_aggregates:
        yield ~facts.is_member(hosts, needs.forbidden_aggregates), "is in a forbidden aggregate"
    if needs.zone is not None and (AVAILABILITY_ZONE, needs.zone) in hosts.metadata_items:
        yield facts.is_in_zone(hosts, needs.zone), f"is in no aggregate of zone {needs.zone}"
    if needs.tenant is not None:
        if facts.names_tenant(hosts.metadata_items, needs.tenant):
            yield facts.is_of_tenant(hosts, needs.tenant), "is in no aggregate of the tenant"
        elif parameters.placement_aggregate_required_for_tenants:
            raise NoValidHost(NO_TENANT)
    if needs.traits is not None:
        yield (
            ~facts.is_isolated(hosts, needs.traits),
            "is in an aggregate for traits that are not requested",
        )


def _supply_checks(hosts: Hosts, supply: Supply) -> Iterator[Check]:
    for group in supply.groups:
        for name, amount in group.resources:
            yield facts.could_give(hosts, name, amount), f"has no provider of {amount} {name}"
        if group.in_tree is not None:
            yield facts.has_provider(hosts, group.in_tree), f"has no provider {group.in_tree}"


class ResourceProviders(Filter):
    """Passes hosts whose free resource providers match the request's groups, all together."""

    momentary = True
    looks_at_rows = True
    runs_on_forced_hosts = True
    parameters_type = RequestFilterParameters

    def applies(self, spec: RequestSpec) -> bool:
        if spec.allocation_candidates is not None:
            return False
        return needs_of(spec, self.parameters).supply is not None

    def reads(self, spec: RequestSpec) -> Hashable:
        return needs_of(spec, self.parameters).supply

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        supply = needs_of(spec, self.parameters).supply or Supply()
        known: dict[Hashable, bool] = {}
        passed = np.empty(len(hosts), bool)
        kinds = zip(self._trees(hosts, spec, supply), _inherited(hosts, supply), strict=True)
        for row, (tree, inherited) in enumerate(kinds):
            kind = tree.providers, inherited
            fits = known.get(kind)
            if fits is None:
                fits = known[kind] = not isinstance(match(*kind, supply), str)
            passed[row] = fits
        return passed

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return not isinstance(self._matched(host_state, spec_obj), str)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        found = self._matched(host_state, spec)
        return found if isinstance(found, str) else super().reason(host_state, spec)

    def taken_by(self, spec: RequestSpec, host_state: HostState) -> tuple[ProviderUse, ...]:
        """What an instance takes from the providers of its host."""
        found = self._matched(host_state, spec)
        return () if isinstance(found, str) else uses_of(host_state.provider_tree, found)

    def _matched(self, host: HostState, spec: RequestSpec) -> Chosen | str:
        supply = needs_of(spec, self.parameters).supply or Supply()
        [inherited] = _inherited(only(host), supply)
        [tree] = self._trees(only(host), spec, supply)
        return match(tree.providers, inherited, supply)

    def _trees(self, hosts: Hosts, spec: RequestSpec, supply: Supply) -> Sequence[ProviderTree]:
        """The hosts' providers, with the use of their own inventories where groups ask for it."""
        if not (supply.asks_for_flavor_classes and hosts.has_inventories.any()):
            trees: list[ProviderTree] = hosts.provider_tree.tolist()
            return trees
        needs = needs_of(spec, self.parameters)
        return [facts.whole_tree(host, amounts_on(host, needs)) for host in hosts.states()]


def _inherited(hosts: Hosts, supply: Supply) -> list[frozenset[str]]:
    """The aggregates that all providers of each host inherit; empty where no group needs them."""
    if any(each.member_of or each.forbidden_aggregates for each in supply.groups):
        return facts.memberships(hosts)
    return [frozenset()] * len(hosts)
