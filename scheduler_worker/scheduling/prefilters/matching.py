"""Which providers of one host give what a request's groups ask for, all at once.

Every group with a name takes all its resources from one provider; the flavor's own group may take
each class from another. What one group took is not there for the next. Of equal providers one is
tried, so that a host with many equal devices is soon decided; and there is a bound on the tries,
for a request must not occupy a worker: a host where it is reached does not pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import msgspec

from scheduler_worker.model.providers import ROOT, Provider, Providers, ProviderTree, ProviderUse
from scheduler_worker.scheduling.prefilters.groups import Group, Resources
from scheduler_worker.scheduling.prefilters.needs import Supply

MAX_TRIES = 5_000
"""How many times a provider is tried for one host."""

Chosen = tuple[tuple[int, "Wish"], ...]
"""The index of a provider for each wish."""


class Wish(msgspec.Struct, frozen=True):
    """What has to come from one provider."""

    group: Group
    resources: Resources

    def suits(self, provider: Provider, inherited: frozenset[str]) -> bool:
        """Whether a provider could give it, were nothing taken from it yet.

        ``inherited`` are the aggregates of the provider's host.
        """
        group = self.group
        if not group.forbidden.isdisjoint(provider.traits):
            return False
        if group.has_one_provider and not group.required <= provider.traits:
            return False
        aggregates = provider.aggregates | inherited
        if not group.forbidden_aggregates.isdisjoint(aggregates):
            return False
        return not any(each.isdisjoint(aggregates) for each in group.member_of)


def match(providers: Providers, inherited: frozenset[str], supply: Supply) -> Chosen | str:
    """The providers that serve all groups, or why there are none.

    ``inherited`` are the aggregates of the host; all its providers are in them.
    """
    wishes = []
    for wish in _wishes(supply.groups):
        suitable = [
            place
            for place, provider in enumerate(providers)
            if wish.suits(provider, inherited)
            and all(provider.has(name, amount) for name, amount in wish.resources)
        ]
        if not suitable:
            return f"has no provider of {_described(wish)}"
        wishes.append((wish, suitable))
    wishes.sort(key=lambda each: len(each[1]))
    return _Search(providers, supply, wishes).run()


def uses_of(tree: ProviderTree, chosen: Chosen) -> tuple[ProviderUse, ...]:
    """What an instance takes from the providers that were chosen."""
    return tuple(
        ProviderUse(
            provider=tree.uuids[place], resources=dict(wish.resources), group=wish.group.name
        )
        for place, wish in chosen
    )


def _wishes(groups: Iterable[Group]) -> Iterator[Wish]:
    for group in groups:
        if group.has_one_provider:
            yield Wish(group, group.resources)
        else:
            for item in group.resources:
                yield Wish(group, (item,))


def _described(wish: Wish) -> str:
    traits = [*sorted(wish.group.required)] if wish.group.has_one_provider else []
    traits += [f"no {each}" for each in sorted(wish.group.forbidden)]
    amounts = ", ".join(f"{amount} {name}" for name, amount in wish.resources)
    asked = amounts or "nothing"
    return f"{asked} with {', '.join(traits)}" if traits else asked


class _Search:
    """Providers are chosen for one wish after the other; a choice that leads nowhere is undone."""

    def __init__(
        self, providers: Providers, supply: Supply, wishes: Sequence[tuple[Wish, list[int]]]
    ) -> None:
        self._providers = list(providers)
        self._supply = supply
        self._wishes = wishes
        self._chosen: list[tuple[int, Wish]] = []
        self._occupied: set[int] = set()
        self._tries = 0

    def run(self) -> Chosen | str:
        if self._choose(0):
            return tuple(self._chosen)
        if self._tries > MAX_TRIES:
            return f"has more providers than {MAX_TRIES} tries could match"
        return "has providers for each of the groups, but not for all of them together"

    def _choose(self, number: int) -> bool:
        if number == len(self._wishes):
            return self._is_consistent()
        wish, suitable = self._wishes[number]
        alone = self._supply.isolates and wish.group.has_one_provider
        known: set[Hashable] = set()
        for place in suitable:
            before = self._providers[place]
            kind = self._kind(place)
            if kind in known or (alone and place in self._occupied):
                continue
            known.add(kind)
            self._tries += 1
            if self._tries > MAX_TRIES:
                return False
            if not all(before.has(name, amount) for name, amount in wish.resources):
                continue
            self._take(place, wish, alone=alone)
            if self._choose(number + 1):
                return True
            self._give_back(place, before, alone=alone)
        return False

    def _kind(self, place: int) -> Hashable:
        """What makes one provider as good as another; where subtrees matter, each is its own."""
        if self._supply.same_subtree:
            return place
        return self._providers[place], place in self._occupied

    def _take(self, place: int, wish: Wish, *, alone: bool) -> None:
        self._providers[place] = self._providers[place].taken(dict(wish.resources))
        self._chosen.append((place, wish))
        if alone:
            self._occupied.add(place)

    def _give_back(self, place: int, before: Provider, *, alone: bool) -> None:
        self._providers[place] = before
        self._chosen.pop()
        if alone:
            self._occupied.discard(place)

    def _is_consistent(self) -> bool:
        """Traits that those who serve the flavor have between them, and common subtrees."""
        return all(
            group.has_one_provider or self._has_traits(group) for group in self._supply.groups
        ) and all(map(self._is_subtree, self._supply.same_subtree))

    def _has_traits(self, group: Group) -> bool:
        """The host itself serves the flavor, too."""
        places = [ROOT, *(place for place, wish in self._chosen if wish.group is group)]
        found = frozenset[str]().union(*(self._providers[place].traits for place in places))
        return group.required <= found and group.forbidden.isdisjoint(found)

    def _is_subtree(self, names: frozenset[str]) -> bool:
        places = {place for place, wish in self._chosen if wish.group.name in names}
        tops = [top for top in places if all(self._is_below(each, top) for each in places)]
        return bool(tops or not places)

    def _is_below(self, place: int, top: int) -> bool:
        for _ in self._providers:
            if place in {top, ROOT}:
                break
            place = self._providers[place].parent
        return place == top
