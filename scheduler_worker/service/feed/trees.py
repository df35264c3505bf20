"""The trees of resource providers of hosts: read whole, and stored in the hosts' records.

A tree is listed first, then its use is read, then what those have whose generation is another. So
all that is stored of a provider is known up to the generation that is stored with it, and a reading
of before can be told from one of after, whichever workers read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from scheduler_worker.model.host_records import COMPUTE, HostRecord, HostReport
from scheduler_worker.placement import Providers
from scheduler_worker.service.feed.provider_books import (
    ProviderBooks,
    Tree,
    is_same_but_for_times,
)
from scheduler_worker.service.feed.settings import HOSTS_AT_ONCE
from scheduler_worker.service.state.replica import ClusterReplica, Fleet

_MOST_AT_ONCE = 50
"""Trees that are read in one go: more would make their times differ from those of the report."""


class HostTrees:
    """Reads and stores trees; safe for threads, which have books of their own."""

    def __init__(
        self, fleet: Fleet, update_hosts: Callable[[list[HostReport]], Mapping[str, int]]
    ) -> None:
        self._fleet = fleet
        self._update_hosts = update_hosts

    def read(
        self,
        reader: Providers,
        books: ProviderBooks,
        roots: Iterable[str],
        *,
        demanded: bool = False,
    ) -> dict[str, Tree]:
        """Read trees, and store those that differ; ``demanded``: if only in when they were read.

        Returns the trees by root, without those that are gone. Raises BackendError, Conflict,
        RequestError.
        """
        read: dict[str, Tree] = {}
        left = list(dict.fromkeys(roots))
        while left:
            some, left = left[:_MOST_AT_ONCE], left[_MOST_AT_ONCE:]
            self.refresh()
            read_at_s = self.now_s()
            books.list_trees(reader.trees(some))
            providers = [uuid for root in some for uuid in books.tree_of(root)]
            books.add_uses(reader.uses(providers), read_at_s)
            books.add_facts(reader.facts(books.of_another_time(providers)))
            read |= self.store(books, some, demanded=demanded)
        return read

    def store(
        self, books: ProviderBooks, roots: Iterable[str], *, demanded: bool = False
    ) -> dict[str, Tree]:
        """Store trees as they are in the books, otherwise as :meth:`read` does."""
        found = {root: tree for root in roots if (tree := books.report(root)) is not None}
        reports = []
        for root, record in self.records(found).items():
            known, tree = record.resource_providers, found[root]
            if known != tree and (demanded or not is_same_but_for_times(known, tree)):
                reports.append(_report(record, tree))
        for start in range(0, len(reports), HOSTS_AT_ONCE):
            self._update_hosts(reports[start : start + HOSTS_AT_ONCE])
        return found

    def count(self) -> int:
        """How many hosts this process knows."""
        return sum(len(each.table) for each in self.clusters())

    def hosts(self) -> dict[str, HostRecord]:
        """The hosts by uuid, as this process knows them."""
        found: dict[str, HostRecord] = {}
        for replica in self.clusters():
            with replica.lock:
                found |= {each.uuid: each for each in replica.table.records}
        return found

    def records(self, roots: Collection[str]) -> dict[str, HostRecord]:
        """Those of these hosts that this process knows, by uuid."""
        return {each.uuid: each for each in self._fleet.records_of(roots)}

    def clusters(self) -> Iterable[ClusterReplica]:
        """All that this process knows."""
        return self._fleet.clusters()

    def refresh(self) -> None:
        """Be as current as the store. Raises StateUnavailable."""
        self._fleet.refresh(self._fleet.clusters())

    def now_s(self) -> float:
        """The store's clock a moment ago: of several stores the one that is behind."""
        return min((each.table.now_s for each in self.clusters()), default=0.0)


def _report(record: HostRecord, tree: Tree) -> HostReport:
    return HostReport(
        host=record.host,
        uuid=record.uuid,
        # Of a host that is alive by its own reports this is no heartbeat.
        source=COMPUTE if record.service.get("watched") else "placement",
        resource_providers=list(tree),
    )
