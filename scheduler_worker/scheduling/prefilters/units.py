"""What Placement would decide about hosts, as units.

:class:`RequestFilters` tests columns, :class:`Inventories` the room in the hosts' own inventories
of vCPUs, memory and disk, :class:`ResourceProviders` the provider tree of each host. If a
request takes from sharing providers the tree of a host does not say what it can have, and Placement
has been asked: :class:`PlacementCandidates`. Its answer does not know what other decisions have
reserved since; so of each provider is taken what our reservations hold and its figures do not
include.

They are asked before the enabled filters, and for forced hosts too, as Placement would be. They are
not asked for a rebuild with a new image.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from scheduler_worker.errors import NoValidHost
from scheduler_worker.model.aggregates import AVAILABILITY_ZONE
from scheduler_worker.model.host_records import out_of_service
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.inventories import UNUSED, use_of_root
from scheduler_worker.model.providers import (
    FLAVOR_CLASSES,
    ROOT,
    AllocationCandidate,
    AllocationCandidates,
    Inventory,
    Providers,
    ProviderTree,
    ProviderUse,
    SharingProvider,
)
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter, only
from scheduler_worker.scheduling.prefilters import hosts as facts
from scheduler_worker.scheduling.prefilters.matching import Chosen, match, uses_of
from scheduler_worker.scheduling.prefilters.needs import Needs, Resources, Supply, needs_of
from scheduler_worker.scheduling.prefilters.traits import DISABLED, RequestFilterParameters


class Inventories(Filter):
    """Passes hosts whose inventories have room for the instance's vCPUs, memory and disk."""

    momentary = True
    runs_on_forced_hosts = True
    parameters_type = RequestFilterParameters

    def applies(self, spec: RequestSpec) -> bool:
        return spec.allocation_candidates is None  # these say what a host's own inventories give

    def reads(self, spec: RequestSpec) -> Hashable:
        needs = needs_of(spec, self.parameters)
        return needs.amounts, needs.amounts_unpinned

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        if not hosts.has_inventories.any():
            return np.ones(len(hosts), bool)
        needs = needs_of(spec, self.parameters)
        passed = _have_room(hosts, needs.amounts)
        if needs.amounts != needs.amounts_unpinned:
            unpinned = facts.lacks_pinned_cpus(hosts)
            if unpinned.any():
                passed = np.where(unpinned, _have_room(hosts, needs.amounts_unpinned), passed)
        return passed

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        if not host_state.has_inventories:
            return True
        amounts = _amounts_on(host_state, needs_of(spec_obj, self.parameters))
        for name, amount in amounts:
            if getattr(host_state, UNUSED[name]) < amount:
                return False
        return facts.allows(host_state.provider_tree.providers[ROOT], amounts)

    def row_check(self, hosts: Hosts, spec: RequestSpec) -> Callable[[int], bool]:
        has_inventories, ask = hosts.has_inventories.item, super().row_check(hosts, spec)
        return lambda row: not has_inventories(row) or ask(row)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        inventories = facts.inventories_of(host_state)
        for name, amount in _amounts_on(host_state, needs_of(spec, self.parameters)):
            unused = getattr(host_state, UNUSED[name])
            if why := _shortage(inventories.get(name), name, amount, unused):
                return why
        return super().reason(host_state, spec)

    def demand(self, spec: RequestSpec) -> str:
        amounts = (f"{n:,} {name}" for name, n in needs_of(spec, self.parameters).amounts)
        return f"have {', '.join(amounts) or 'room'} left in their inventories"

    def shortages(self, hosts: Hosts, spec: RequestSpec) -> Mapping[str, Values]:
        if not hosts.has_inventories.any():
            return {}
        needs = needs_of(spec, self.parameters)
        unpinned = facts.lacks_pinned_cpus(hosts)
        lacking: dict[str, Values] = {}
        for amounts, rows in (needs.amounts, ~unpinned), (needs.amounts_unpinned, unpinned):
            for name, amount in amounts:
                missing = np.where(rows, np.maximum(0, amount - hosts.column(UNUSED[name])), 0)
                lacking[name] = np.maximum(lacking.get(name, 0), missing)
        return lacking

    def taken_in_columns(self, hosts: Hosts, spec: RequestSpec) -> Mapping[str, Values]:
        """Column -> what an instance takes of it on each host, of the hosts' own inventories."""
        if not hosts.has_inventories.any():
            return {}
        needs = needs_of(spec, self.parameters)
        unpinned = facts.lacks_pinned_cpus(hosts)
        amounts, amounts_unpinned = dict(needs.amounts), dict(needs.amounts_unpinned)
        return {
            UNUSED[name]: hosts.has_inventories
            * np.where(unpinned, amounts_unpinned.get(name, 0), amounts.get(name, 0))
            for name in amounts.keys() | amounts_unpinned.keys()
        }

    def taken_by(self, spec: RequestSpec, host_state: HostState) -> tuple[ProviderUse, ...]:
        """What an instance takes of its host's own inventories; nothing if it reports none."""
        if not host_state.has_inventories:
            return ()
        # An empty use counts too: without one, its flavor's sizes would.
        amounts = dict(_amounts_on(host_state, needs_of(spec, self.parameters)))
        return (use_of_root(host_state.uuid, amounts),)


def _amounts_on(host: HostState, needs: Needs) -> Resources:
    if needs.amounts != needs.amounts_unpinned and facts.lacks_pinned_cpus_on(host):
        return needs.amounts_unpinned
    return needs.amounts


def _have_room(hosts: Hosts, amounts: Resources) -> Mask:
    passed = facts.allow(hosts, amounts)
    for name, amount in amounts:
        passed = passed & (hosts.column(UNUSED[name]) >= amount)
    return passed


def _shortage(inventory: Inventory | None, name: str, amount: int, unused: int) -> str | None:
    if inventory is None:
        return f"needs {amount} {name}; its compute node has no inventory of that"
    if not inventory.min_unit <= amount <= inventory.max_unit:
        bounds = f"{inventory.min_unit} to {inventory.max_unit}"
        return f"needs {amount} {name}; one instance may take {bounds}"
    if amount % inventory.step_size:
        return f"needs {amount} {name}, which is no multiple of {inventory.step_size}"
    if amount > unused:
        capacity, ratio = inventory.capacity, inventory.allocation_ratio
        of = f"({inventory.total} - {inventory.reserved} reserved) x {ratio:g}"
        return f"needs {amount} {name}; {capacity - unused} are used of {of} = {capacity}"
    return None


class PlacementCandidates(Filter):
    """Passes hosts with an allocation candidate of Placement that still has room.

    Applies where Placement was asked, and decides there instead of ``Inventories`` and
    ``ResourceProviders``.
    """

    of_one_request = True
    runs_on_forced_hosts = True
    parameters_type = RequestFilterParameters

    def applies(self, spec: RequestSpec) -> bool:
        return spec.allocation_candidates is not None

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        answer = _answer(spec)
        rooms = _Rooms(hosts, answer)
        answers = (
            host.uuid in answer.by_root and rooms.fitting(host) is not None
            for host in hosts.states()
        )
        return np.fromiter(answers, bool, len(hosts))

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return _Rooms(host_state.table, _answer(spec_obj)).fitting(host_state) is not None

    def taken_by(self, spec: RequestSpec, host_state: HostState) -> tuple[ProviderUse, ...]:
        """What an instance takes of providers on this host, by the first candidate with room."""
        candidate = _Rooms(host_state.table, _answer(spec)).fitting(host_state)
        if candidate is None:
            return ()
        if any(use.provider == host_state.uuid for use in candidate.uses):
            return candidate.uses
        # Else its flavor's sizes would count as taken of the compute node.
        return use_of_root(host_state.uuid, {}), *candidate.uses

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        rooms, sharing = _Rooms(host_state.table, _answer(spec)), _answer(spec).sharing
        names = {pool.uuid: pool.name for pool in sharing}
        for candidate in rooms.candidates(host_state):
            for use in candidate.uses:
                for name, amount in use.resources.items():
                    if (room := rooms.left(host_state, use.provider, name)) < amount:
                        left = f"{max(0, room)} are left of {names.get(use.provider, use.provider)}"
                        return f"needs {amount} {name}; {left}, less reservations"
        lacks = _lacks(host_state, needs_of(spec, self.parameters), sharing)
        return next(lacks, "Placement has no allocation candidate on it")


def _answer(spec: RequestSpec) -> AllocationCandidates:
    return spec.allocation_candidates or AllocationCandidates()


class _Rooms:
    """What is left of providers, for the hosts of one table."""

    def __init__(self, hosts: Hosts, answer: AllocationCandidates) -> None:
        self._hosts = hosts
        self._answer = answer
        self._reserved: dict[str, Mapping[str, int]] = {}

    def candidates(self, host: HostState) -> Iterator[AllocationCandidate]:
        """The candidates of a host, in order."""
        for candidate in self._answer.by_root.get(host.uuid, ()):
            if not candidate.unpinned or facts.lacks_pinned_cpus_on(host):
                yield candidate

    def fitting(self, host: HostState) -> AllocationCandidate | None:
        """The first one that has room."""
        return next((each for each in self.candidates(host) if self._has_room(host, each)), None)

    def left(self, host: HostState, provider: str, name: str) -> int:
        """What is left of a class at a provider, as the host knows it, or as Placement said."""
        tree = host.provider_tree
        if provider in tree.uuids:
            place = tree.uuids.index(provider)
            entry = tree.providers[place]
            for (known, inventory), used in zip(entry.inventories, entry.used, strict=True):
                if known == name:
                    if place == ROOT and host.has_inventories and name in UNUSED:
                        return int(getattr(host, UNUSED[name]))
                    return inventory.capacity - used
        room = self._answer.rooms.get(provider, {}).get(name)
        if room is None:
            return 0
        return room.capacity - room.used - self._reserved_of(provider, host.cluster).get(name, 0)

    def _has_room(self, host: HostState, candidate: AllocationCandidate) -> bool:
        needed: Counter[tuple[str, str]] = Counter()
        for use in candidate.uses:
            needed.update({(use.provider, name): n for name, n in use.resources.items()})
        return all(self.left(host, *what) >= amount for what, amount in needed.items())

    def _reserved_of(self, provider: str, cluster: str) -> Mapping[str, int]:
        """What is reserved of a provider, and not known to be in Placement's figures."""
        if provider not in self._reserved:
            total: Counter[str] = Counter()
            for reservation in self._hosts.reservations_of_provider(provider):
                if reservation.id not in self._answer.allocated:
                    for use in reservation.resources.providers:
                        if use.provider == provider:
                            total.update(use.resources)
            for reserved in self._answer.reserved:
                if reserved.use.provider == provider and reserved.cluster != cluster:
                    total.update(reserved.use.resources)
            self._reserved[provider] = total
        return self._reserved[provider]


def _lacks(host: HostState, needs: Needs, sharing: tuple[SharingProvider, ...]) -> Iterator[str]:
    """What neither the host nor its sharing providers have, as far as that is known."""
    tree = host.provider_tree
    own = frozenset(aggregate.uuid for aggregate in host.aggregates).union(
        *(provider.aggregates for provider in tree.providers)
    )
    with_it = [pool for pool in sharing if not own.isdisjoint(pool.aggregates)]
    amounts = [*needs.amounts, *(item for group in needs.groups for item in group.resources)]
    for name, amount in amounts:
        if any(provider.has(name, amount) for provider in tree.providers[ROOT + 1 :]):
            continue
        inventories = facts.inventories_of(host)
        if name in inventories:
            unused = getattr(host, UNUSED[name]) if name in UNUSED else amount
            if unused >= amount and inventories[name].allows(amount):
                continue
        pools = [pool for pool in with_it if name in pool.inventories]
        if any(
            pool.inventories[name].capacity - pool.usages.get(name, 0) >= amount for pool in pools
        ):
            continue
        if pools:
            yield f"needs {amount} {name}; {', '.join(_described(pool, name) for pool in pools)}"
        elif name not in inventories:
            yield f"needs {amount} {name}; it has none, and none is known to be shared with it"


def _described(pool: SharingProvider, name: str) -> str:
    used, capacity = pool.usages.get(name, 0), pool.inventories[name].capacity
    return f"of {pool.name}, which shares with it, {used} are used of {capacity}"


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
        clauses = ["are enabled"]
        if needs.required:
            clauses.append(f"with trait {' and '.join(sorted(needs.required))}")
        if needs.zone:
            clauses.append(f"in zone {needs.zone}")
        rest = (needs.forbidden - {DISABLED}, needs.member_of, needs.forbidden_aggregates)
        if any((*rest, needs.tenant, needs.traits, needs.networks, needs.supply)):
            clauses.append("with all else that is asked of traits, aggregates and providers")
        return " ".join(clauses)

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


def _checks(hosts: Hosts, spec: RequestSpec, options: RequestFilterParameters) -> Iterator[Check]:
    needs, node = needs_of(spec, options), _node(spec)
    if node:
        yield facts.has(hosts, "node", node), f"is not node {node}"
    required, forbidden, supply = needs.required, needs.forbidden, needs.supply
    if spec.allocation_candidates is not None:  # which answer for all that providers give
        (required, forbidden), supply = needs.of_root, None
    elif any(needs.threads):
        yield from _thread_checks(hosts, *needs.threads)
    for trait in forbidden:
        why = _BY_TRAIT if trait == DISABLED else f"has trait {trait}"
        yield ~facts.has(hosts, "trait", trait), why
    for trait in required:
        yield facts.has(hosts, "trait", trait), f"lacks trait {trait}"
    for network in needs.networks:
        yield facts.has(hosts, "network", network), f"does not report network {network}"
    yield from _aggregate_checks(hosts, needs, options)
    if supply is not None:
        yield from _supply_checks(hosts, supply)


def _thread_checks(
    hosts: Hosts, required: frozenset[str], forbidden: frozenset[str]
) -> Iterator[Check]:
    """Of hosts without an inventory of pinned CPUs, NUMATopologyFilter knows the threads."""
    unpinned = ~hosts.derived(
        "PCPU", lambda host: host.has_inventories and "PCPU" in facts.inventories_of(host), "?"
    )
    for trait in required:
        yield unpinned | facts.has(hosts, "trait", trait), f"lacks trait {trait}"
    for trait in forbidden:
        yield unpinned | ~facts.has(hosts, "trait", trait), f"has trait {trait}"


def _aggregate_checks(
    hosts: Hosts, needs: Needs, parameters: RequestFilterParameters
) -> Iterator[Check]:
    for uuids in needs.member_of:
        yield facts.is_member(hosts, uuids), f"is in no aggregate of {', '.join(sorted(uuids))}"
    if needs.forbidden_aggregates:
        yield ~facts.is_member(hosts, needs.forbidden_aggregates), "is in a forbidden aggregate"
    zone, tenant, traits = (AVAILABILITY_ZONE, needs.zone), needs.tenant, needs.traits
    if zone in hosts.metadata_items:
        in_zone = facts.has_metadata(hosts, lambda items: zone in items)
        yield in_zone, f"is in no aggregate of zone {needs.zone}"
    if tenant is not None:
        if facts.names_tenant(hosts.metadata_items, tenant):
            of_tenant = facts.has_metadata(hosts, lambda items: facts.names_tenant(items, tenant))
            yield of_tenant, "is in no aggregate of the tenant"
        elif parameters.placement_aggregate_required_for_tenants:
            raise NoValidHost("Scheduling failed: No hosts available for tenant")
    if traits is not None:
        isolated = facts.has_metadata(hosts, lambda items: facts.isolates(items, traits))
        yield ~isolated, "is in an aggregate for traits that are not requested"


def _supply_checks(hosts: Hosts, supply: Supply) -> Iterator[Check]:
    for group in supply.groups:
        for name, amount in group.resources:
            yield facts.could_give(hosts, name, amount), f"has no provider of {amount} {name}"
        if group.in_tree is not None:
            yield facts.has(hosts, "provider", group.in_tree), f"has no provider {group.in_tree}"


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

        @cache
        def fits(providers: Providers, of_host: frozenset[str]) -> bool:
            return not isinstance(match(providers, of_host, supply), str)

        trees, of_hosts = self._trees(hosts, spec, supply), _aggregates(hosts, supply)
        answers = map(fits, (tree.providers for tree in trees), of_hosts)
        return np.fromiter(answers, bool, len(hosts))

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return not isinstance(self._matched(host_state, spec_obj), str)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        chosen = self._matched(host_state, spec)
        return chosen if isinstance(chosen, str) else super().reason(host_state, spec)

    def taken_by(self, spec: RequestSpec, host_state: HostState) -> tuple[ProviderUse, ...]:
        """What an instance takes from the providers of its host."""
        chosen = self._matched(host_state, spec)
        return () if isinstance(chosen, str) else uses_of(host_state.provider_tree, chosen)

    def _matched(self, host: HostState, spec: RequestSpec) -> Chosen | str:
        supply = needs_of(spec, self.parameters).supply or Supply()
        [of_host] = _aggregates(only(host), supply)
        [tree] = self._trees(only(host), spec, supply)
        return match(tree.providers, of_host, supply)

    def _trees(self, hosts: Hosts, spec: RequestSpec, supply: Supply) -> Sequence[ProviderTree]:
        """The hosts' providers, with the use of their own inventories where groups ask for it."""
        asked = {name for group in supply.groups for name, _ in group.resources}
        if asked.isdisjoint(FLAVOR_CLASSES) or not hosts.has_inventories.any():
            trees: list[ProviderTree] = hosts.provider_tree.tolist()
            return trees
        needs = needs_of(spec, self.parameters)
        return [facts.whole_tree(host, _amounts_on(host, needs)) for host in hosts.states()]


def _aggregates(hosts: Hosts, supply: Supply) -> list[frozenset[str]]:
    """The aggregates that each host is in; empty where no group needs them."""
    if not any(group.member_of or group.forbidden_aggregates for group in supply.groups):
        return [frozenset()] * len(hosts)
    numbers, members = hosts.by_aggregates()
    uuids = [frozenset(aggregate.uuid for aggregate in aggregates) for aggregates in members]
    return [uuids[number] for number in numbers.tolist()]
