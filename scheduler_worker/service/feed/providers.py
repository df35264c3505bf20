"""Keeps what is known of resource providers true, and reports it of the hosts they are of.

The generations of all are listed regularly, and trees with another one than is known are read. So
are, for their use, trees

* after Placement refused a claim (:meth:`ProviderFeed.read_again`), at once, and a moment after
  instances came to a host or left it, and again when their deletion must be through;
* of hosts on which something stays reserved, until the reading has it;
* that would not do for a request as they are known, before it is refused (:meth:`look`).

A deleted allocation leaves the generation: it is found when its instance leaves, by the next claim
on the host, or by a refresh.

The worker that feeds reads all of this. Any other reads what it was refused, and what it verifies.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from scheduler_worker import events
from scheduler_worker.components import Periodic
from scheduler_worker.errors import BackendError, Conflict, PlacementRefused, RequestError
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.observer import Observer
from scheduler_worker.placement import Providers
from scheduler_worker.ports import Clock
from scheduler_worker.scheduling.prefilters.candidates_query import suits
from scheduler_worker.service.feed.provider_cache import ProviderCache, Tree
from scheduler_worker.service.feed.settings import ProviderSettings
from scheduler_worker.service.feed.trees import HostTrees, Verifier, now_s
from scheduler_worker.service.state.replica import Fleet

LOG = logging.getLogger(__name__)

_BULK = ("VCPU", "PCPU")
"""Trees that have some of this left are known from one answer each."""


_ASKED = {"listed": "list", "trees": "list", "having": "list", "uses": "use", "usages": "use"}
"""How questions are counted that have no name of their own."""


class _CountedProviders:
    def __init__(self, inner: Providers, observer: Observer) -> None:
        self._inner = inner
        self._observer = observer

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            what = _ASKED.get(name, name)
            try:
                answer = getattr(self._inner, name)(*args, **kwargs)
            except BackendError:
                self._observer.count(events.PROVIDER_FAILURES, what)
                raise
            is_of_many = args and not isinstance(args[0], str)
            self._observer.count(events.PROVIDER_READS, what, by=len(args[0]) if is_of_many else 1)
            return answer

        return self._inner.close if name == "close" else counted


def counted(inner: Providers, observer: Observer) -> Providers:
    """These providers, with every question to them observed."""
    return cast("Providers", _CountedProviders(inner, observer))


class ProviderFeed(Periodic):
    """Reads providers and reports them; safe for threads."""

    def __init__(
        self,
        reader: Providers,
        fleet: Fleet,
        update_hosts: Callable[[list[HostReport]], Mapping[str, int]],
        clock: Clock,
        *,
        settings: ProviderSettings,
        is_leader: Callable[[], bool],
        verifying: Providers | None = None,
        observer: Observer | None = None,
    ) -> None:
        """``verifying`` reads for :meth:`verify`, which waits for no round; None: ``reader``."""
        super().__init__("providers", self.run_due, settings.interval_s)
        observer = observer or Observer()
        self._reader = counted(reader, observer)
        self._beside = counted(verifying or reader, observer)
        self._fleet = fleet
        self._trees = HostTrees(fleet, update_hosts)
        self.verify = Verifier(self._beside, fleet, self._trees).verify
        """Implements ``ProviderTrees``."""
        self._clock = clock
        self._settings = settings
        self._is_leader = is_leader
        self._books = ProviderCache()
        self.is_begun = False
        """Whether this worker has read all providers once, at least roughly."""
        self._list_due_s = float("-inf")
        self._refused: deque[str] = deque()
        """Providers that contradicted what is known of them."""
        self._due_s: dict[str, float] = {}
        """Root -> when its use is to be read, by our monotonic clock."""
        self._left: set[str] = set()
        """Providers of which an instance went: its allocation may be deleted after it."""
        self._instances: dict[str, frozenset[str]] = {}
        """Host uuid -> the instances that were on it when its use was last wanted."""
        self._changed: dict[str, None] = {}
        self._rough: dict[str, None] = {}
        """Roots whose trees are to be read, in order."""
        self._shown: dict[str, Tree] = {}
        """Root -> its tree as it is known; other threads read it."""
        self._problem = ""
        self._running = threading.Lock()

    def lacks(self, host: HostRecord) -> bool:
        """Whether the host has providers, and its record does not have them yet."""
        return not host.resource_providers and bool(self._books.tree_of(host.uuid))

    def providers(self, host_uuid: str) -> Tree | None:
        """The providers of a host as they were last read; None: not known. Does not block."""
        return self._shown.get(host_uuid)

    def read_again(self, providers: Collection[str]) -> None:
        """Placement contradicts what is known of these providers. Does not block."""
        self._refused.extend(providers)

    def look(self, queries: Iterable[str]) -> None:
        """Read, now, hosts that may serve requests and are not known to; what is found is stored.

        These are the hosts that Placement finds for one of these ``queries`` of allocation
        candidates and that are known with less room, other traits, providers or aggregates; and
        those whose instances have left a short while ago. Raises BackendError, Conflict,
        RequestError.
        """
        with self._running:
            if not (self._is_leader() and self.is_begun):
                return
            hosts = self._hosts()
            self._watch(hosts, self._clock.monotonic_s())
            roots = {root: None for root in self._due_s if root in hosts}
            for query in queries:
                roots |= {root: None for root in self._unsuited(query) if root in hosts}
            self._read(roots, forced=True)

    def run_due(self) -> float:
        """Read what is due; returns the seconds until the next call. Raises nothing."""
        problem = ""
        try:
            self._read_what_is_due()
        except (BackendError, Conflict, RequestError) as error:
            problem = str(error)
        if problem and problem != self._problem and not self.is_stopping:
            LOG.warning("Resource providers were not read, and will be: %s", problem)
        self._problem = problem
        return self._settings.interval_s

    def _read_what_is_due(self) -> None:
        with self._running:
            if self._is_leader():
                self._read_all()
            elif self.is_begun:
                self.is_begun, self._shown = False, {}
            self._read_refused()

    def stop(self) -> None:
        super().stop()
        for reader in (self._reader, self._beside):
            reader.close()

    # All of them

    def _read_all(self) -> None:
        now_s = self._clock.monotonic_s()
        if not self.is_begun:
            self._begin()
        elif now_s >= self._list_due_s:
            self._books.list_all(self._reader.listed())
            for root in self._shown.keys() - self._books.roots():
                del self._shown[root]
        hosts = self._hosts()
        if now_s >= self._list_due_s:
            self._list_due_s = now_s + self._settings.list_interval_s
            self._note_outdated(hosts)
        self._watch(hosts, now_s)
        books = self._books
        # Of these nothing is known yet, or nothing was reported.
        unknown = [
            root
            for root, record in hosts.items()
            if (not record.resource_providers or not books.is_known(root)) and books.tree_of(root)
        ]
        self._read(unknown)
        self._read_outdated()
        self._read_due(hosts, now_s)

    def _begin(self) -> None:
        """Know most providers from the hosts' records, the others from a few answers."""
        self._fleet.refresh()
        read_at_s = now_s(self._fleet)
        books = ProviderCache()
        books.list_all(self._reader.listed())
        hosts = self._hosts()
        for record in hosts.values():
            books.add_known(record.resource_providers)
        are_known = all(books.is_known(root) for root in hosts if books.tree_of(root))
        for resource_class in () if are_known else _BULK:
            books.add_sums(self._reader.sums(f"resources={resource_class}:1"), read_at_s)
        known = sum(books.is_known(root) for root in books.roots())
        LOG.info("%d resource providers without a parent, of which %d are known or have CPUs left; "
                 "hosts of the others are read one by one", len(books.roots()), known)  # fmt: skip
        self._books, self.is_begun = books, True
        self._list_due_s = float("-inf")
        self._shown |= self._trees.store(books, books.roots())

    def _note_outdated(self, hosts: Mapping[str, HostRecord]) -> None:
        books = self._books
        outdated = [
            root
            for root, record in hosts.items()
            if books.tree_of(root)
            and not books.is_current(root, [known.uuid for known in record.resource_providers])
        ]
        self._rough = {root: None for root in outdated if books.is_rough(root)}
        self._changed |= {root: None for root in outdated if root not in self._rough}

    def _watch(self, hosts: Mapping[str, HostRecord], now_s: float) -> None:
        """Note the hosts whose use must have changed, and hosts that have waited for it."""
        settle_s = self._settings.settle_s
        for replica in self._fleet.clusters():
            with replica.lock:
                for record in replica.table.records:
                    uuid, instances = record.uuid, replica.table.reported_instances(record.host)
                    before = self._instances.get(uuid)
                    if before is None or before == instances.keys():
                        self._instances.setdefault(uuid, frozenset(instances))
                        continue
                    self._instances[uuid] = frozenset(instances)
                    self._due_s.setdefault(uuid, now_s)
                    if before - instances.keys():
                        self._left.add(uuid)
                overdue_s = replica.table.now_s - settle_s
                for reservation in replica.reservations.values():
                    if reservation.created_at_s <= overdue_s and reservation.host_uuid in hosts:
                        self._due_s.setdefault(reservation.host_uuid, now_s + settle_s)
        for uuid in self._instances.keys() - hosts.keys():
            del self._instances[uuid]

    def _read_outdated(self) -> None:
        """Read the next trees: half of them such that changed, the others rough."""
        most = max(2, int(self._settings.hosts_per_s * self._settings.interval_s))
        spare = max(0, most // 2 - len(self._rough))
        chosen = list(self._changed)[: most - most // 2 + spare]
        chosen += list(self._rough)[: most - len(chosen)]
        self._read(chosen)

    def _read_due(self, hosts: Mapping[str, HostRecord], now_s: float) -> None:
        due = [root for root, due_s in self._due_s.items() if due_s <= now_s]
        self._read([root for root in due if root in hosts], forced=True)
        for root in due:
            del self._due_s[root]
            if root in self._left:
                self._left.discard(root)
                self._due_s[root] = now_s + self._settings.settle_s

    # Some of them

    def _read_refused(self) -> None:
        """Read the trees of providers at which a claim was refused, whoever feeds."""
        refused = [self._refused.popleft() for _ in range(len(self._refused))]
        if not refused:
            return
        try:
            self._read(self._roots_of(refused), forced=True)
        except BackendError:
            self._refused.extend(refused)
            raise

    def _unsuited(self, query: str) -> Iterator[str]:
        """The roots of the trees that Placement finds, and that would not do as they are known."""
        try:
            answer = self._reader.sums(query)
        except PlacementRefused as error:  # of a trait that there is not, for example
            LOG.info("Placement finds no hosts for a request that found none here: %s", error)
            return
        for provider, summed in answer.items():
            aggregates = self._books.aggregates_of(summed.root)
            if not (self._books.suits(provider, summed) and suits(query, aggregates)):
                yield summed.root

    def _hosts(self) -> dict[str, HostRecord]:
        """All hosts as they are now, by uuid. Raises StateUnavailable."""
        self._fleet.refresh()
        hosts: dict[str, HostRecord] = {}
        for replica in self._fleet.clusters():
            with replica.lock:
                hosts |= {record.uuid: record for record in replica.table.records}
        return hosts

    def _roots_of(self, providers: Iterable[str]) -> set[str]:
        roots = {provider: self._books.root_of(provider) for provider in providers}
        unknown = [provider for provider, root in roots.items() if root is None]
        trees = self._reader.trees(unknown) if unknown else {}
        listed = {tree[0].root_provider_uuid for tree in trees.values() if tree}
        return listed.union(filter(None, roots.values()))

    def _read(self, roots: Iterable[str], *, forced: bool = False) -> None:
        """Read trees, and store what has changed; ``forced``: even if that is only the time."""
        roots = list(roots)
        trees = self._trees.read(self._reader, self._books, roots, forced=forced)
        if self.is_begun:
            self._shown |= trees
        for root in roots:
            self._changed.pop(root, None)
            self._rough.pop(root, None)
