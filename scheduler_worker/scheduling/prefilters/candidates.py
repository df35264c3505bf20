"""Hosts for which Placement has allocation candidates, less what is reserved of their providers.

Where a request takes from sharing providers the tree of a host does not say what it can have, and
Placement has been asked. Its answer does not know what other decisions have reserved since; so of
each provider is taken what our reservations hold and its figures do not include.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from scheduler_worker.model.hosts import Hosts, HostState, Mask
from scheduler_worker.model.inventories import UNUSED, use_of_root
from scheduler_worker.model.providers import (
    ROOT,
    AllocationCandidate,
    AllocationCandidates,
    ProviderUse,
    SharingProvider,
)
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.scheduling.prefilters import hosts as facts
from scheduler_worker.scheduling.prefilters.needs import Needs, needs_of
from scheduler_worker.scheduling.prefilters.traits import RequestFilterParameters


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
        found = (
            host.uuid in answer.by_root and rooms.fitting(host) is not None
            for host in hosts.states()
        )
        return np.fromiter(found, bool, len(hosts))

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return _Rooms(host_state.table, _answer(spec_obj)).fitting(host_state) is not None

    def taken_by(self, spec: RequestSpec, host_state: HostState) -> tuple[ProviderUse, ...]:
        """What an instance takes of providers on this host, by the first candidate with room."""
        found = _Rooms(host_state.table, _answer(spec)).fitting(host_state)
        if found is None:
            return ()
        if any(use.provider == host_state.uuid for use in found.uses):
            return found.uses
        # Else its flavor's sizes would count as taken of the compute node.
        return use_of_root(host_state.uuid, {}), *found.uses

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        rooms = _Rooms(host_state.table, _answer(spec))
        for candidate in rooms.candidates(host_state):
            for use in candidate.uses:
                for name, amount in use.resources.items():
                    if (left := rooms.left(host_state, use.provider, name)) < amount:
                        return f"needs {amount} {name}; {rooms.described(use.provider, left)}"
        lacks = _lacks(host_state, needs_of(spec, self.parameters), _answer(spec).sharing)
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
        """Those of a host, in order."""
        for each in self._answer.by_root.get(host.uuid, ()):
            if not each.unpinned or facts.lacks_pinned_cpus_on(host):
                yield each

    def fitting(self, host: HostState) -> AllocationCandidate | None:
        """The first one that has room."""
        return next((each for each in self.candidates(host) if self._has_room(host, each)), None)

    def left(self, host: HostState, provider: str, name: str) -> int:
        """What is left of a class at a provider, as the host knows it, or as Placement said."""
        tree = host.provider_tree
        if provider in tree.uuids:
            place = tree.uuids.index(provider)
            found = tree.providers[place]
            for (known, inventory), used in zip(found.inventories, found.used, strict=True):
                if known == name:
                    if place == ROOT and host.has_inventories and name in UNUSED:
                        return int(getattr(host, UNUSED[name]))
                    return inventory.capacity - used
        room = self._answer.rooms.get(provider, {}).get(name)
        if room is None:
            return 0
        return room.capacity - room.used - self._reserved_of(provider, host.cluster).get(name, 0)

    def described(self, provider: str, left: int) -> str:
        """How much is left of a provider, in words."""
        names = {each.uuid: each.name for each in self._answer.sharing}
        return f"{max(0, left)} are left of {names.get(provider, provider)}, less reservations"

    def _has_room(self, host: HostState, candidate: AllocationCandidate) -> bool:
        wanted: Counter[tuple[str, str]] = Counter()
        for use in candidate.uses:
            for name, amount in use.resources.items():
                wanted[use.provider, name] += amount
        return all(
            self.left(host, provider, name) >= amount for (provider, name), amount in wanted.items()
        )

    def _reserved_of(self, provider: str, cluster: str) -> Mapping[str, int]:
        """What is reserved of a provider, and not known to be in Placement's figures."""
        found = self._reserved.get(provider)
        if found is None:
            total: Counter[str] = Counter()
            for each in self._hosts.reservations_of_provider(provider):
                if each.id not in self._answer.allocated:
                    for use in each.resources.providers:
                        if use.provider == provider:
                            total.update(use.resources)
            for other in self._answer.reserved:
                if other.use.provider == provider and other.cluster != cluster:
                    total.update(other.use.resources)
            found = self._reserved[provider] = total
        return found


def _lacks(host: HostState, needs: Needs, sharing: tuple[SharingProvider, ...]) -> Iterator[str]:
    """What neither the host nor those that share with it have, as far as that is known."""
    tree = host.provider_tree
    own = frozenset(each.uuid for each in host.aggregates).union(
        *(each.aggregates for each in tree.providers)
    )
    with_it = [each for each in sharing if not own.isdisjoint(each.aggregates)]
    amounts = [*needs.amounts, *(item for group in needs.groups for item in group.resources)]
    for name, amount in amounts:
        if any(each.has(name, amount) for each in tree.providers[ROOT + 1 :]):
            continue
        inventories = facts.inventories_of(host)
        if name in inventories:
            left = getattr(host, UNUSED[name]) if name in UNUSED else amount
            if left >= amount and inventories[name].allows(amount):
                continue
        pools = [each for each in with_it if name in each.inventories]
        if any(_left_of(each, name) >= amount for each in pools):
            continue
        if pools:
            yield f"needs {amount} {name}; {', '.join(_described(each, name) for each in pools)}"
        elif name not in inventories:
            yield f"needs {amount} {name}; it has none, and none is known to be shared with it"


def _left_of(pool: SharingProvider, name: str) -> int:
    return pool.inventories[name].capacity - pool.usages.get(name, 0)


def _described(pool: SharingProvider, name: str) -> str:
    used, capacity = pool.usages.get(name, 0), pool.inventories[name].capacity
    return f"of {pool.name}, which shares with it, {used} are used of {capacity}"
