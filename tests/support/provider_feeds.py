"""A Placement in memory, and hosts that are read there."""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from scheduler_worker.errors import PlacementUnavailable
from scheduler_worker.model.providers import (
    ConsumerAllocation,
    Inventory,
    ProviderEntry,
    ProviderFacts,
    ProviderRoom,
    ProviderSummary,
    ProviderTraits,
    Use,
)
from scheduler_worker.observer import Observer
from scheduler_worker.service.feed.providers import ProviderFeed
from scheduler_worker.service.feed.settings import ProviderSettings
from scheduler_worker.service.feed.trees import SharingProviders
from tests.support.services import World, host

SIZE = {"VCPU": 8, "MEMORY_MB": 8192}


class FakePlacement:
    """Providers of 8 VCPU and 8 GiB; counts what is read, by kind and provider."""

    def close(self) -> None:
        """There is nothing to close."""

    def __init__(self, *names: str) -> None:
        self.generations = {f"uuid-{name}": 1 for name in names}
        self.inventories = {
            uuid: {each: Inventory(total=total) for each, total in SIZE.items()}
            for uuid in self.generations
        }
        self.allocations: dict[str, dict[str, dict[str, int]]] = {
            uuid: {} for uuid in self.generations
        }
        self.parents: dict[str, str] = {}
        self.read: Counter[tuple[str, str]] = Counter()
        self.is_away = False
        self.shares: set[str] = set()
        self.labels: dict[str, ProviderTraits] = {}
        """Traits and aggregates."""

    def label(self, uuid: str, *traits: str, aggregates: tuple[str, ...] = ()) -> None:
        self.labels[uuid] = ProviderTraits(traits=traits, aggregates=aggregates)
        self.generations[uuid] += 1

    def resize(self, name: str, **totals: int) -> None:
        inventories = {each: Inventory(total=total) for each, total in totals.items()}
        self.inventories[f"uuid-{name}"] = self.inventories[f"uuid-{name}"] | inventories
        self.generations[f"uuid-{name}"] += 1

    def add_child(self, uuid: str, parent: str, **totals: int) -> None:
        self.generations[uuid], self.parents[uuid], self.allocations[uuid] = 1, parent, {}
        self.inventories[uuid] = {name: Inventory(total=total) for name, total in totals.items()}

    def allocate(self, name: str, consumer: str, vcpus: int) -> None:
        taken = {"VCPU": vcpus, "MEMORY_MB": 1024 * vcpus}
        self.allocations[f"uuid-{name}"][consumer] = taken
        self.generations[f"uuid-{name}"] += 1

    def delete(self, name: str, consumer: str) -> None:
        """As Placement does it, the generation stays."""
        del self.allocations[f"uuid-{name}"][consumer]

    # The port Providers

    def listed(self) -> Sequence[ProviderEntry]:
        self._count("list", "all")
        return self._list()

    def trees(self, uuids: Sequence[str]) -> Mapping[str, Sequence[ProviderEntry]]:
        self._count("list", *uuids)
        roots = {uuid: self.parents.get(uuid, uuid) for uuid in uuids}
        found = self._list()
        return {
            uuid: [each for each in found if each.root_provider_uuid == root]
            for uuid, root in roots.items()
        }

    def _list(self) -> list[ProviderEntry]:
        return [
            ProviderEntry(
                uuid=uuid,
                name=uuid,
                generation=generation,
                root_provider_uuid=self.parents.get(uuid, uuid),
                parent_provider_uuid=self.parents.get(uuid),
            )
            for uuid, generation in self.generations.items()
        ]

    def having(self, trait: str) -> Sequence[ProviderEntry]:
        if trait == "MISC_SHARES_VIA_AGGREGATE":
            return [each for each in self._list() if each.uuid in self.shares]
        self._count("list", trait)
        return [each for each in self._list() if trait in self._labels(each.uuid).traits]

    def sums(self, query: str) -> Mapping[str, ProviderSummary]:
        """Of trees whose root has all amounts, traits and one of the aggregates."""
        asked = dict(parse_qsl(query))
        self._count("sums", asked["resources"])
        amounts = [each.split(":") for each in asked["resources"].split(",")]
        required = set(filter(None, asked.get("required", "").split(",")))
        some = set(asked.get("member_of", "in:").removeprefix("in:").split(","))
        return {
            each.uuid: self._sum(each)
            for each in self._list()
            if all(self._left(each.root_provider_uuid, n) >= int(amount) for n, amount in amounts)
            and required.issubset(self._labels(each.root_provider_uuid).traits)
            and (
                "member_of" not in asked
                or some & {*self._labels(each.root_provider_uuid).aggregates}
            )
        }

    def _sum(self, provider: ProviderEntry) -> ProviderSummary:
        uuid = provider.uuid
        return ProviderSummary(
            root=provider.root_provider_uuid,
            rooms={
                name: ProviderRoom(each.capacity, self._used(uuid, name))
                for name, each in self.inventories[uuid].items()
            },
            traits=self._labels(uuid).traits,
        )

    def _used(self, uuid: str, name: str) -> int:
        return sum(each.get(name, 0) for each in self.allocations[uuid].values())

    def _left(self, root: str, name: str) -> int:
        """Of a class, in a whole tree."""
        tree = [uuid for uuid in self.inventories if self.parents.get(uuid, uuid) == root]
        found = [(uuid, self.inventories[uuid].get(name, Inventory(total=0))) for uuid in tree]
        return sum(each.capacity - self._used(uuid, name) for uuid, each in found)

    def facts(self, uuids: Sequence[str]) -> Mapping[str, ProviderFacts]:
        self._count("facts", *uuids)
        return {
            uuid: ProviderFacts(
                generation=self.generations[uuid],
                inventories=self.inventories[uuid],
                traits=self._labels(uuid).traits,
                aggregates=self._labels(uuid).aggregates,
            )
            for uuid in uuids
            if uuid in self.generations
        }

    def traits(
        self, uuids: Sequence[str], *, aggregates: bool = True
    ) -> Mapping[str, ProviderTraits]:
        self._count("traits", *uuids)
        return {uuid: self._labels(uuid) for uuid in uuids if uuid in self.generations}

    def _labels(self, uuid: str) -> ProviderTraits:
        return self.labels.get(uuid, ProviderTraits())

    def uses(self, uuids: Sequence[str]) -> Mapping[str, Use]:
        self._count("use", *uuids)
        return {
            uuid: Use(
                generation=self.generations[uuid],
                taken={
                    name: ConsumerAllocation(dict(each))
                    for name, each in self.allocations[uuid].items()
                },
            )
            for uuid in uuids
            if uuid in self.generations
        }

    def usages(self, uuids: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for uuid in uuids:
            used: Counter[str] = Counter()
            for amounts in self.allocations.get(uuid, {}).values():
                used.update(amounts)
            found[uuid] = dict(used)
        return found

    def _count(self, what: str, *of: str) -> None:
        if self.is_away and of:
            raise PlacementUnavailable("it does not answer")
        self.read.update((what, each) for each in of)


class Reading:
    """A world of hosts that are read in Placement, and a clock for both."""

    def __init__(
        self,
        *names: str,
        is_leader: bool = True,
        settings: ProviderSettings | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.world = World(clock=None)
        self.placement = FakePlacement(*names)
        figures = {"vcpus_used": 0, "memory_mb_used": 0}
        for name in names:
            self.world.report(host(name, **figures))
        self.is_leader = is_leader
        self.feed = self._feed(
            self.placement,
            settings=settings or ProviderSettings(),
            is_leader=lambda: self.is_leader,
            observer=observer,
        )
        self.sharing = SharingProviders(
            self.placement, self.world.clock, interval_s=60.0, retry_s=2.0
        )

    def _feed(self, placement: FakePlacement, **options: Any) -> ProviderFeed:
        world = self.world
        update_hosts = world.inventory.update_hosts
        return ProviderFeed(placement, world.fleet, update_hosts, world.clock, **options)

    def run(self, after_s: float = 0.0) -> None:
        self.world.clock.advance(after_s)
        self.feed.run_due()
        self.sharing.run_due()

    def beside(self, answer: Mapping[str, Use] | None = None) -> ProviderFeed:
        """Another worker without the turn, which gets this answer about use."""
        placement = copy.copy(self.placement)
        if answer is not None:
            vars(placement)["uses"] = lambda _: answer
        return self._feed(placement, settings=ProviderSettings(), is_leader=lambda: False)

    def run_for(self, seconds: float) -> None:
        for _ in range(int(seconds / 2)):
            self.run(2)

    def unused(self, name: str) -> int:
        table = self.world.fleet.cluster("default").table
        row = table.row_of(f"uuid-{name}")
        assert row is not None
        return int(table.unused_vcpu[row])

    def record(self, name: str) -> Any:
        [found] = self.world.fleet.cluster("default").table.find(name)
        return found

    def versions(self) -> list[int]:
        return list(self.world.fleet.cluster("default").table.versions)
