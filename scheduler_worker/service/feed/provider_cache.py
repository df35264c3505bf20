"""What is known of resource providers, made into reports: pure, without a clock and without I/O."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from scheduler_worker.model.providers import (
    MAX_CONSUMERS,
    Inventory,
    ProviderEntry,
    ProviderFacts,
    ProviderSummary,
    ResourceProvider,
    Use,
    is_capacity,
)

_NOTHING = Inventory(total=0)

Tree = tuple[ResourceProvider, ...]


class _Usage(msgspec.Struct, frozen=True, gc=False):
    read_at_s: float
    usages: dict[str, int]
    consumers: tuple[str, ...] | None
    generation: int | None = None


class ProviderCache:
    """The providers of all trees, by uuid."""

    def __init__(self) -> None:
        self._listed: dict[str, ProviderEntry] = {}
        self._facts: dict[str, ProviderFacts] = {}
        self._usage: dict[str, _Usage] = {}
        self._trees: dict[str, list[str]] = {}

    def list_all(self, listed: Sequence[ProviderEntry]) -> None:
        """These are all the providers there are."""
        trees: dict[str, list[str]] = {}
        for provider in listed:
            trees.setdefault(provider.root_provider_uuid, []).append(provider.uuid)
        # Replaced whole: another thread asks for trees meanwhile.
        self._listed, self._trees = {provider.uuid: provider for provider in listed}, trees
        for known in (self._facts, self._usage):
            for uuid in known.keys() - self._listed.keys():
                del known[uuid]

    def list_trees(self, trees: Mapping[str, Sequence[ProviderEntry]]) -> None:
        """These are the providers in the trees of some; none: there is no such root any more."""
        for root, tree in trees.items():
            providers = [provider for provider in tree if provider.root_provider_uuid == root]
            for uuid in self._trees.pop(root, ()):
                self._listed.pop(uuid, None)
            if providers:
                self._trees[root] = [provider.uuid for provider in providers]
            self._listed |= {provider.uuid: provider for provider in providers}

    def add_known(self, tree: Iterable[ResourceProvider]) -> None:
        """Take in what a host's record has of its tree, as far as that is exact."""
        for provider in tree:
            if provider.uuid in self._listed and provider.generation is not None:
                self._facts[provider.uuid] = ProviderFacts(
                    generation=provider.generation,
                    inventories=provider.inventories,
                    traits=provider.traits,
                    aggregates=provider.aggregates,
                )
                self._usage[provider.uuid] = _Usage(
                    provider.read_at_s, provider.usages, provider.consumers, provider.generation
                )

    def add_sums(self, sums: Mapping[str, ProviderSummary], read_at_s: float) -> None:
        """Take in capacity and use of providers of which nothing better is known."""
        for uuid, summed in sums.items():
            if uuid in self._listed and uuid not in self._facts:
                rooms = summed.rooms.items()
                inventories = {name: Inventory(total=room.capacity) for name, room in rooms}
                self._facts[uuid] = ProviderFacts(
                    generation=None, inventories=inventories, traits=tuple(sorted(summed.traits))
                )
                usages = {name: room.used for name, room in rooms}
                self._usage[uuid] = _Usage(read_at_s, usages, None)

    def add_facts(self, facts: Mapping[str, ProviderFacts]) -> None:
        self._facts.update(facts)

    def add_uses(self, uses: Mapping[str, Use], read_at_s: float) -> None:
        """Take in who takes what of providers."""
        for uuid, use in uses.items():
            usages: Counter[str] = Counter()
            for held in use.taken.values():
                usages.update(held.resources)
            consumers = tuple(sorted(use.taken)) if len(use.taken) <= MAX_CONSUMERS else None
            self._usage[uuid] = _Usage(read_at_s, usages, consumers, use.generation)

    def roots(self) -> Collection[str]:
        """The uuids of the roots of all trees."""
        return self._trees.keys()

    def root_of(self, provider: str) -> str | None:
        """The root of a provider's tree; None: there is no such provider."""
        listed = self._listed.get(provider)
        return listed.root_provider_uuid if listed else None

    def tree_of(self, root: str) -> Sequence[str]:
        """The uuids of the providers in a tree."""
        return self._trees.get(root, ())

    def is_known(self, root: str) -> bool:
        """Whether it is known what the root has, at least roughly."""
        return root in self._facts and root in self._usage

    def suits(self, provider: str, summed: ProviderSummary) -> bool:
        """Whether a provider has at least this room, and these traits, by what is known of it."""
        facts, usage = self._facts.get(provider), self._usage.get(provider)
        if facts is None or usage is None or set(facts.traits) != set(summed.traits):
            return False
        known = {name: inventory.capacity for name, inventory in facts.inventories.items()}
        return all(
            room.capacity - room.used <= known.get(name, 0) - usage.usages.get(name, 0)
            for name, room in summed.rooms.items()
        )

    def aggregates_of(self, root: str) -> set[str]:
        """The aggregates that the providers of a tree are known to be in."""
        facts = filter(None, map(self._facts.get, self.tree_of(root)))
        return {uuid for fact in facts for uuid in fact.aggregates}

    def of_another_time(self, providers: Iterable[str]) -> list[str]:
        """The providers among these whose facts are not as of when their use was read."""
        return [
            uuid
            for uuid in providers
            if (use := self._usage.get(uuid)) is not None
            and ((facts := self._facts.get(uuid)) is None or facts.generation != use.generation)
        ]

    def is_current(self, root: str, known: Collection[str]) -> bool:
        """Whether a tree is known as it was listed; a host's record knows these providers of it."""
        tree = self.tree_of(root)
        return set(tree) == set(known) and all(
            self._generation(uuid) == self._listed[uuid].generation for uuid in tree
        )

    def is_rough(self, root: str) -> bool:
        """Whether something, but nothing exact, is known of the root."""
        return self.is_known(root) and self._generation(root) is None

    def _generation(self, uuid: str) -> int | None:
        """Up to which everything is known of a provider."""
        facts, usage = self._facts.get(uuid), self._usage.get(uuid)
        if facts is None or usage is None or None in {facts.generation, usage.generation}:
            return None
        return min(facts.generation or 0, usage.generation or 0)

    def report(self, root: str) -> Tree | None:
        """The tree as a host reports it; None: not known.

        A provider below the root of which nothing is known is left out: nobody takes from it then.
        """
        if not self.is_known(root):
            return None
        known = (uuid for uuid in self.tree_of(root) if uuid in self._facts)
        return tuple(self._provider(uuid) for uuid in sorted(known, key=lambda uuid: uuid != root))

    def _provider(self, uuid: str) -> ResourceProvider:
        listed, facts = self._listed[uuid], self._facts[uuid]
        usage = self._usage.get(uuid, _Usage(0.0, {}, None))
        inventories, is_root = facts.inventories, listed.parent_provider_uuid is None
        if is_root and not is_capacity(inventories):
            # A host of which nothing can be taken but whole (bare metal) is judged by that, too.
            inventories = inventories | {"MEMORY_MB": _NOTHING}
        return ResourceProvider(
            uuid=uuid,
            name=listed.name,
            parent_provider_uuid=listed.parent_provider_uuid,
            inventories=inventories,
            usages={name: amount for name, amount in sorted(usage.usages.items()) if amount},
            traits=facts.traits,
            aggregates=facts.aggregates,
            consumers=usage.consumers,
            read_at_s=usage.read_at_s,
            generation=self._generation(uuid),
        )


def timeless(tree: Iterable[ResourceProvider]) -> list[ResourceProvider]:
    """A reading of a tree, to be compared with another but for when they were read."""
    return [msgspec.structs.replace(provider, read_at_s=0.0) for provider in tree]
