"""Compares trees of resource providers with Placement's, for requests that wait for it.

A listing has the providers of a tree and their generations. Of one whose generation the host's
record does not have, the traits and aggregates are read. It is remembered which generation they
are of, since each claim makes another one that changes nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from scheduler_worker.errors import PlacementRefused
from scheduler_worker.model.providers import Listed, ProviderTraits, ResourceProvider
from scheduler_worker.placement import Providers
from scheduler_worker.service.feed.provider_books import ProviderBooks, Tree
from scheduler_worker.service.feed.trees import HostTrees

_MOST_LISTED = 300
"""Hosts of a fleet that are listed by trait; of more each chosen one is asked about."""
_MOST_SEEN = 50_000
"""Providers whose traits are remembered."""


class Verifier:
    """Implements ``verify`` of the port ``ProviderTrees``; safe for threads."""

    def __init__(self, reader: Providers, trees: HostTrees) -> None:
        self._reader = reader
        self._trees = trees
        self._seen: dict[str, tuple[int, ProviderTraits]] = {}
        """Provider -> a generation that it had, and what it had then."""

    def verify(
        self, roots: Collection[str], traits: Collection[str] | None = None
    ) -> Mapping[str, Tree]:
        records = self._trees.records(roots)
        before = {root: each.resource_providers for root, each in records.items()}
        doubtful = self._doubtful(before) if traits is None else self._by_traits(before, traits)
        found = self._trees.read(self._reader, ProviderBooks(), doubtful) if doubtful else {}
        return before | {root: found.get(root, ()) for root in doubtful}

    def _by_traits(self, before: Mapping[str, Tree], traits: Collection[str]) -> list[str]:
        """The hosts whose compute nodes have one of these and should not, or the reverse."""
        known = {
            each.uuid: each.traits for root, tree in before.items() for each in tree
            if each.uuid == root
        }  # fmt: skip
        owners = self._owners(traits, list(known))
        return [
            root
            for root, known_traits in known.items()
            if any((each in known_traits) != (root in owners[each]) for each in traits)
        ]

    def _owners(self, traits: Collection[str], hosts: Sequence[str]) -> dict[str, set[str]]:
        """Which of the hosts, and perhaps which others, have each trait."""
        if len(traits) < len(hosts) and self._trees.count() <= _MOST_LISTED:
            with contextlib.suppress(PlacementRefused):  # there may be no such trait
                return {each: {one.uuid for one in self._reader.having(each)} for each in traits}
        found = self._reader.traits(hosts, aggregates=False)
        return {
            each: {uuid for uuid, one in found.items() if each in one.traits} for each in traits
        }

    def _doubtful(self, before: Mapping[str, Tree]) -> list[str]:
        """The hosts whose trees are others, with the least questions."""
        listed = self._reader.trees(list(before))
        known = {each.uuid: _traits(each) for tree in before.values() for each in tree}
        others = self._others(
            known,
            {
                each.uuid: each.generation
                for root, tree in before.items()
                for each in _moved(listed[root], tree)
            },
        )
        return [
            root
            for root, tree in before.items()
            if _parents(listed[root]) != _parents(tree)
            or not others.isdisjoint(each.uuid for each in tree)
        ]

    def _others(self, known: dict[str, ProviderTraits], generations: dict[str, int]) -> set[str]:
        """Those of these providers that have other traits or aggregates than is known."""
        unseen = [
            uuid
            for uuid, generation in generations.items()
            if self._seen.get(uuid) != (generation, known[uuid])
        ]
        found = self._reader.traits(unseen) if unseen else {}
        others = {uuid for uuid in unseen if found.get(uuid) != known[uuid]}
        for uuid in unseen:
            if uuid not in others:
                self._seen[uuid] = (generations[uuid], known[uuid])
        if len(self._seen) > _MOST_SEEN:
            self._seen = {}
        return others


def _moved(listed: Iterable[Listed], tree: Iterable[ResourceProvider]) -> Iterator[Listed]:
    """Those that the record has with another generation, or with none."""
    before = {each.uuid: each.generation for each in tree}
    return (each for each in listed if before.get(each.uuid, each.generation) != each.generation)


def _traits(provider: ResourceProvider) -> ProviderTraits:
    return ProviderTraits(traits=provider.traits, aggregates=provider.aggregates)


def _parents(tree: Iterable[Listed | ResourceProvider]) -> dict[str, str | None]:
    return {each.uuid: each.parent_provider_uuid for each in tree}
