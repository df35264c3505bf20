"""The trees of resource providers of hosts: read whole, and stored in the hosts' records.

A tree is listed first, then its use is read, then what those have whose generation is another. So
all that is stored of a provider is known up to the generation that is stored with it, and a reading
of before can be told from one of after, whichever workers read.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from scheduler_worker.components import Periodic
from scheduler_worker.errors import BackendError, PlacementRefused
from scheduler_worker.model.host_records import COMPUTE
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.model.providers import (
    SHARES,
    ProviderEntry,
    ProviderTraits,
    ResourceProvider,
    SharingProvider,
)
from scheduler_worker.placement import Providers
from scheduler_worker.ports import Clock
from scheduler_worker.service.feed.provider_cache import ProviderCache, Tree, timeless
from scheduler_worker.service.state.replica import Fleet

_MOST_AT_ONCE = 50
"""Trees that are read in one go: more would make their times differ from the report's."""


class HostTrees(NamedTuple):
    """Reads and stores trees; safe for threads, which have books of their own."""

    fleet: Fleet
    update_hosts: Callable[[list[HostReport]], Mapping[str, int]]

    def read(
        self, reader: Providers, books: ProviderCache, roots: Iterable[str], *, forced: bool = False
    ) -> dict[str, Tree]:
        """Read trees, and store trees that differ; ``forced``: if only in when they were read.

        Returns the trees by root, without trees that are gone. Raises BackendError, Conflict,
        RequestError.
        """
        read: dict[str, Tree] = {}
        remaining = iter(dict.fromkeys(roots))
        while chunk := list(islice(remaining, _MOST_AT_ONCE)):
            self.fleet.refresh()
            read_at_s = now_s(self.fleet)
            books.list_trees(reader.trees(chunk))
            providers = [uuid for root in chunk for uuid in books.tree_of(root)]
            books.add_uses(reader.uses(providers), read_at_s)
            books.add_facts(reader.facts(books.of_another_time(providers)))
            read |= self.store(books, chunk, forced=forced)
        return read

    def store(
        self, books: ProviderCache, roots: Iterable[str], *, forced: bool = False
    ) -> dict[str, Tree]:
        """Store trees as they are in the books, otherwise as :meth:`read` does."""
        trees = {root: tree for root in roots if (tree := books.report(root)) is not None}
        reports = []
        for record in self.fleet.records_of(trees):
            known, tree = record.resource_providers, trees[record.uuid]
            if known != tree and (forced or timeless(known) != timeless(tree)):
                report = HostReport(
                    host=record.host,
                    uuid=record.uuid,
                    # Of a host that is alive by its own reports this is no heartbeat.
                    source=COMPUTE if record.service.get("watched") else "placement",
                    resource_providers=list(tree),
                )
                reports.append(report)
        if reports:
            self.update_hosts(reports)
        return trees


def now_s(fleet: Fleet) -> float:
    """The store's clock a moment ago: of several stores the slowest."""
    return min((cluster.table.now_s for cluster in fleet.clusters()), default=0.0)


_MOST_LISTED = 300
"""Hosts of a fleet that are listed by trait; of more each chosen one is asked about."""
_MOST_SEEN = 50_000
"""Providers whose traits are remembered."""


class Verifier:
    """Compares trees with Placement's, for requests that wait for it; safe for threads.

    A listing has the providers of a tree and their generations. Of one whose generation the host's
    record does not have, the traits and aggregates are read. It is remembered which generation they
    are of, since each claim makes another one that changes nothing else.
    """

    def __init__(self, reader: Providers, fleet: Fleet, trees: HostTrees) -> None:
        self._reader = reader
        self._fleet = fleet
        self._trees = trees
        self._seen: dict[str, tuple[int, ProviderTraits]] = {}
        """Provider -> a generation that it had, and what it had then."""

    def verify(
        self, roots: Collection[str], traits: Collection[str] | None = None
    ) -> Mapping[str, Tree]:
        """Implements the port ``ProviderTrees``."""
        before = {host.uuid: host.resource_providers for host in self._fleet.records_of(roots)}
        doubtful = self._doubtful(before) if traits is None else self._by_traits(before, traits)
        trees = self._trees.read(self._reader, ProviderCache(), doubtful) if doubtful else {}
        return before | {root: trees.get(root, ()) for root in doubtful}

    def _by_traits(self, before: Mapping[str, Tree], traits: Collection[str]) -> list[str]:
        """The hosts whose compute nodes have one of these and should not, or the reverse."""
        known = {
            provider.uuid: provider.traits for root, tree in before.items() for provider in tree
            if provider.uuid == root
        }  # fmt: skip
        owners = self._owners(traits, list(known))
        return [
            root
            for root, known_traits in known.items()
            if any((trait in known_traits) != (root in owners[trait]) for trait in traits)
        ]

    def _owners(self, traits: Collection[str], hosts: Sequence[str]) -> dict[str, set[str]]:
        """Which of the hosts, and perhaps which others, have each trait."""
        hosts_known = sum(len(cluster.table) for cluster in self._fleet.clusters())
        if len(traits) < len(hosts) and hosts_known <= _MOST_LISTED:
            with contextlib.suppress(PlacementRefused):  # there may be no such trait
                return {
                    trait: {provider.uuid for provider in self._reader.having(trait)}
                    for trait in traits
                }
        facts = self._reader.traits(hosts, aggregates=False)
        return {
            trait: {uuid for uuid, fact in facts.items() if trait in fact.traits}
            for trait in traits
        }

    def _doubtful(self, before: Mapping[str, Tree]) -> list[str]:
        """The hosts whose trees are others, with the least questions."""
        listed = self._reader.trees(list(before))
        known = {
            provider.uuid: ProviderTraits(traits=provider.traits, aggregates=provider.aggregates)
            for tree in before.values()
            for provider in tree
        }
        changed = self._changed(
            known,
            {
                provider.uuid: provider.generation
                for root, tree in before.items()
                for provider in _moved(listed[root], tree)
            },
        )
        return [
            root
            for root, tree in before.items()
            if _parents(listed[root]) != _parents(tree)
            or not changed.isdisjoint(provider.uuid for provider in tree)
        ]

    def _changed(self, known: dict[str, ProviderTraits], generations: dict[str, int]) -> set[str]:
        """The providers among these that have other traits or aggregates than is known."""
        unseen = [
            uuid
            for uuid, generation in generations.items()
            if self._seen.get(uuid) != (generation, known[uuid])
        ]
        traits = self._reader.traits(unseen) if unseen else {}
        changed = {uuid for uuid in unseen if traits.get(uuid) != known[uuid]}
        for uuid in unseen:
            if uuid not in changed:
                self._seen[uuid] = (generations[uuid], known[uuid])
        if len(self._seen) > _MOST_SEEN:
            self._seen = {}
        return changed


def _moved(
    listed: Iterable[ProviderEntry], tree: Iterable[ResourceProvider]
) -> Iterator[ProviderEntry]:
    """Providers that the record has with another generation, or with none."""
    before = {provider.uuid: provider.generation for provider in tree}
    return (now for now in listed if before.get(now.uuid, now.generation) != now.generation)


def _parents(tree: Iterable[ProviderEntry | ResourceProvider]) -> dict[str, str | None]:
    return {provider.uuid: provider.parent_provider_uuid for provider in tree}


LOG = logging.getLogger(__name__)


class SharingProviders(Periodic):
    """A short list that every process reads for itself, again every ``interval_s``; for threads.

    Which resource classes they give decides which requests Placement is asked about; what they have
    left of these tells explanations what a host lacks.
    """

    def __init__(
        self, reader: Providers, clock: Clock, *, interval_s: float, retry_s: float
    ) -> None:
        """A reading that failed is tried again after ``retry_s``; closes its reader at its stop."""
        super().__init__("sharing providers", self.run_due, retry_s)
        self._reader = reader
        self._clock = clock
        self._every_s, self._retry_s = interval_s, retry_s
        self._reading = threading.Lock()
        self._providers: tuple[SharingProvider, ...] | None = None
        self._due_s = float("-inf")
        self._problem = ""

    def run_due(self) -> float:
        """Read them if it is time; returns the seconds until the next call. Raises nothing."""
        if (wait_s := self._due_s - self._clock.monotonic_s()) > 0:
            return wait_s
        try:
            self.read()
        except BackendError as error:
            if not self._problem and not self.is_stopping:
                LOG.warning("Sharing providers were not read, and will be: %s", error)
            self._problem = str(error)
            return self._retry_s
        self._problem = ""
        return self._every_s

    def stop(self) -> None:
        super().stop()
        self._reader.close()

    def known(self) -> Sequence[SharingProvider] | None:
        """As they were last read; None: not yet. Does not block."""
        return self._providers

    def read(self) -> Sequence[SharingProvider]:
        """As they are now. Raises PlacementUnavailable, PlacementRefused."""
        with self._reading:
            providers = self._read()
            before, self._providers = self._providers, providers
            self._due_s = self._clock.monotonic_s() + self._every_s
        names = [provider.name for provider in providers]
        if names != [provider.name for provider in before or ()]:
            LOG.info(
                "Placement is asked about requests for what these resource providers share: %s",
                ", ".join(names) or "none any more",
            )
        return providers

    def _read(self) -> tuple[SharingProvider, ...]:
        listed = sorted(self._reader.having(SHARES), key=lambda provider: provider.name)
        if not listed:
            return ()
        uuids = [provider.uuid for provider in listed]
        facts, usages = self._reader.facts(uuids), self._reader.usages(uuids)
        return tuple(
            SharingProvider(
                uuid=provider.uuid,
                name=provider.name,
                inventories=facts[provider.uuid].inventories,
                usages=usages.get(provider.uuid, {}),
                aggregates=frozenset(facts[provider.uuid].aggregates),
            )
            for provider in listed
            if provider.uuid in facts
        )
