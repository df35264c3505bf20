"""Matches a request's groups with the providers of one host, all groups together.

A group with a name takes all its resources from one provider; the flavor's own group may take each
class from another. Resources that one group took are not there for the next, and count for it of
what one instance may take (``max_unit``), as Placement's claim adds them up. The search backtracks.
Of equal providers it tries one, and equal demands take providers in ascending order, so that hosts
with many equal devices are quickly decided. The number of tries is bounded, so that no request can
occupy a worker: a host that reaches the bound does not pass.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence

import msgspec
from msgspec import structs

from scheduler_worker.model.providers import ROOT, Provider, Providers, ProviderTree, ProviderUse
from scheduler_worker.scheduling.prefilters.needs import Group, Resources, Supply

MAX_TRIES = 500
"""How many providers are tried for one host, in all."""

Chosen = tuple[tuple[int, "Demand"], ...]
"""The index of a provider, and what is taken from it."""


class Demand(msgspec.Struct, frozen=True):
    """Resources of a group that have to come from one provider."""

    group: Group
    resources: Resources

    def suits(self, provider: Provider, of_host: frozenset[str]) -> bool:
        """Whether the provider has the right traits and aggregates.

        ``of_host`` are its aggregates as a compute node; those below it have their own alone.
        """
        group = self.group
        if not group.forbidden.isdisjoint(provider.traits):
            return False
        if group.has_one_provider and not group.required <= provider.traits:
            return False
        aggregates = provider.aggregates | of_host
        if not group.forbidden_aggregates.isdisjoint(aggregates):
            return False
        return not any(uuids.isdisjoint(aggregates) for uuids in group.member_of)


def match(providers: Providers, of_host: frozenset[str], supply: Supply) -> Chosen | str:
    """The providers that serve all groups; else why there are none.

    ``of_host`` are the aggregates of the host, which its compute node is in.
    """
    demands = []
    for demand in _demands(supply.groups):
        suitable = [
            place
            for place, provider in enumerate(providers)
            if demand.suits(provider, of_host if place == ROOT else frozenset())
            and all(provider.has(name, amount) for name, amount in demand.resources)
        ]
        if not suitable:
            return f"has no provider of {_described(demand)}"
        demands.append((demand, suitable))
    demands.sort(key=lambda pair: len(pair[1]))
    return _Search(providers, supply, demands).run()


def uses_of(tree: ProviderTree, chosen: Chosen) -> tuple[ProviderUse, ...]:
    """What an instance takes from the chosen providers."""
    return tuple(
        ProviderUse(
            provider=tree.uuids[place], resources=dict(demand.resources), group=demand.group.name
        )
        for place, demand in chosen
    )


def _demands(groups: Iterable[Group]) -> Iterator[Demand]:
    for group in groups:
        if group.has_one_provider:
            yield Demand(group, group.resources)
        else:
            for item in group.resources:
                yield Demand(group, (item,))


def _described(demand: Demand) -> str:
    traits = [*sorted(demand.group.required)] if demand.group.has_one_provider else []
    traits += [f"no {trait}" for trait in sorted(demand.group.forbidden)]
    asked = ", ".join(f"{amount} {name}" for name, amount in demand.resources) or "nothing"
    return f"{asked} with {', '.join(traits)}" if traits else asked


class _Search:
    """Backtracking: chooses a provider for one demand after the other, scarce ones first."""

    def __init__(
        self, providers: Providers, supply: Supply, demands: Sequence[tuple[Demand, list[int]]]
    ) -> None:
        self._providers = list(providers)
        self._supply = supply
        self._demands = demands
        self._twins = list(self._equal_before())
        self._chosen: list[tuple[int, Demand]] = []
        self._tries = 0

    def run(self) -> Chosen | str:
        if self._choose(0, frozenset()):
            return tuple(self._chosen)
        if self._tries > MAX_TRIES:
            return f"has more providers than {MAX_TRIES} tries could match"
        return "has providers for each of the groups, but not for all of them together"

    def _equal_before(self) -> Iterator[int | None]:
        """For each demand the last one before it that is equal in all but its name."""
        last: dict[Hashable, int] = {}
        for number, (demand, _) in enumerate(self._demands):
            group = demand.group
            subtrees = tuple(group.name in names for names in self._supply.same_subtree)
            key = (structs.replace(group, name=""), demand.resources, subtrees)
            yield last.get(key) if group.has_one_provider else None
            last[key] = number

    def _choose(self, number: int, occupied: frozenset[int]) -> bool:
        if number == len(self._demands):
            return self._is_consistent()
        demand, suitable = self._demands[number]
        alone = self._supply.isolates and demand.group.has_one_provider
        known: set[Hashable] = set()
        twin = self._twins[number]
        least = ROOT if twin is None else self._chosen[twin][0]
        for place in suitable:
            if place < least:
                continue
            before = self._providers[place]
            # Providers are interchangeable if they are equal, but none are where subtrees matter.
            kind = place if self._supply.same_subtree else (before, place in occupied)
            if kind in known or (alone and place in occupied):
                continue
            known.add(kind)
            self._tries += 1
            if self._tries > MAX_TRIES:
                return False
            if not all(before.has(name, amount) for name, amount in demand.resources):
                continue
            self._providers[place] = before.taken_by_one(dict(demand.resources))
            self._chosen.append((place, demand))
            if self._choose(number + 1, occupied | {place} if alone else occupied):
                return True
            self._providers[place] = before
            self._chosen.pop()
        return False

    def _is_consistent(self) -> bool:
        """Whether the flavor's providers together have its traits, and subtrees are common."""
        return all(
            group.has_one_provider or self._has_traits(group) for group in self._supply.groups
        ) and all(map(self._is_subtree, self._supply.same_subtree))

    def _has_traits(self, group: Group) -> bool:
        """The root counts too: it serves the flavor's vCPUs, memory and disk."""
        places = [ROOT, *(place for place, demand in self._chosen if demand.group is group)]
        traits = frozenset[str]().union(*(self._providers[place].traits for place in places))
        return group.required <= traits and group.forbidden.isdisjoint(traits)

    def _is_subtree(self, names: frozenset[str]) -> bool:
        places = {place for place, demand in self._chosen if demand.group.name in names}
        tops = [top for top in places if all(self._is_below(place, top) for place in places)]
        return bool(tops or not places)

    def _is_below(self, place: int, top: int) -> bool:
        for _ in self._providers:
            if place in {top, ROOT}:
                break
            place = self._providers[place].parent
        return place == top
