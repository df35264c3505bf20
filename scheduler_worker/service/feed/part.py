"""Feeds one part of a source: compares what the source tells with the hosts' records.

The records themselves are what was fed before, so any worker can go on from them: only what would
change a record is written. Hosts that have to be read stay noted until they are stored, so an error
in between loses nothing.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, structs

from scheduler_worker import events
from scheduler_worker.conversion import convert, json_reader
from scheduler_worker.errors import (
    Conflict,
    RequestError,
    SourceUnavailable,
    StateUnavailable,
)
from scheduler_worker.model.aggregates import by_host
from scheduler_worker.model.feed import ChangedRow, Listing, Outline, Part, ServiceStates, Tail
from scheduler_worker.model.host_records import ClusterName, HostRecord
from scheduler_worker.model.host_reports import HostReport
from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock, HostSource, Put, Store
from scheduler_worker.service.feed.providers import ProviderFeed
from scheduler_worker.service.feed.services import differing, facts_of, watched
from scheduler_worker.service.feed.settings import HOSTS_AT_ONCE, FeedSettings
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.inventory.known_hosts import KnownHosts
from scheduler_worker.service.state.replica import Fleet, Replica
from scheduler_worker.wording import listed

SCOPE = "@feed"
_KEY = "n:feed"


class PartProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a part was read; times are seconds since the epoch."""

    name: str
    nodes_since_s: float | None = None
    """From when changes of compute nodes are to be read, by the source's clock; None: read all."""
    instances_since_s: float | None = None
    read_to: str | None = None
    """While all is read for the first time: the last host that was stored, of all in their order;
    None: all were, or none is to be yet."""
    synced_at_s: float = 0.0
    """When all of it was known last, by the store's clock; 0: never."""
    hosts: int = 0
    """How many hosts it has."""
    left: int = 0
    """How many of them have to be read before it is known."""
    problem: str = ""
    """Why it cannot be read now."""


class FeedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who leads the feed, and what it has done."""

    worker: str
    """Which worker feeds."""
    at_s: float
    """When it said so last, by the store's clock."""
    is_complete: bool = False
    """Whether all hosts that can be read are known."""
    parts: dict[str, PartProgress] = {}
    """By their ids."""
    problem: str = ""
    """Why the outline of the source cannot be read now."""


class FeedRecords(Replica):
    """What the workers share of the feed: one record under the key ``n:feed``."""

    def __init__(self) -> None:
        super().__init__(SCOPE)
        self.state: FeedState | None = None

    def take(self, key: str, version: int, value: bytes | None) -> None:
        if key == _KEY:
            self.state = None if value is None else json_reader(FeedState)(value)

    def write(self, store: Store, state: FeedState) -> bool:
        """Compare-and-set the record; False if another worker wrote it first.

        Called with the lock held. Raises StateUnavailable.
        """
        replacing = self.replacing(Put(_KEY, msgspec.json.encode(state)))
        [is_first] = store.write(SCOPE, [replacing]).applied
        if is_first:
            self.refresh(store)
        return is_first


LOG = logging.getLogger(__name__)


class ClusterNames:
    """The clusters of hosts, by the setting and one outline of the source.

    A name that is none for a cluster is logged once for each outline. Instead of a cell's, its id
    is used; instead of an aggregate's value, the default cluster.
    """

    def __init__(self, settings: FeedSettings, outline: Outline) -> None:
        self._settings = settings
        self._aggregates = by_host(outline.aggregates) if settings.clusters == "aggregate" else {}
        self._refused: set[str] = set()

    def of(self, host: str, part: Part) -> str:
        """The cluster of a host name."""
        if self._settings.clusters == "cell":
            return self._checked(part.name, f"cell {part.id}", part.id)
        key, default = self._settings.cluster_key, self._settings.default_cluster
        for aggregate in self._aggregates.get(host, ()):
            if key in aggregate.metadata:  # the first such aggregate decides
                where = f"aggregate {aggregate.name or aggregate.id}, metadata {key}"
                return self._checked(aggregate.metadata[key], where, default)
        return default

    def _checked(self, name: str, where: str, instead: str) -> str:
        try:
            return convert(name, ClusterName)
        except msgspec.ValidationError:
            if where not in self._refused:
                self._refused.add(where)
                LOG.warning(
                    "%s: %r cannot be the name of a cluster, which begins with a letter or digit "
                    "and has only these and _.:- in it; cluster %s is used", where, name, instead,
                )  # fmt: skip
            return instead


_ASKED_S = 1.0
"""What is reserved so shortly before a refresh may be for a move that the refresh misses."""


class FeedDependencies(NamedTuple):
    """The collaborators of the feed."""

    source: HostSource
    inventory: Inventory
    fleet: Fleet
    clock: Clock
    settings: FeedSettings
    observer: Observer
    providers: ProviderFeed | None
    check_lead: Callable[[], None]
    """Raises LeadLost unless this worker still feeds."""
    now_s: Callable[[], float]
    """The store's clock."""
    keep: Callable[[], None]
    """Stores the progress of all parts, if this worker still feeds. Raises StateUnavailable."""


class LeadLost(Conflict):
    """Raised when another worker feeds now."""


class PartFeed:
    """One part.

    Any thread may call :meth:`run`. The feeder's guard is held for :meth:`follow`.
    """

    def __init__(self, part: Part, progress: PartProgress, deps: FeedDependencies) -> None:
        self.part = part
        self.progress = structs.replace(progress, name=part.name, problem="")
        """How far the part was read; replaced, never changed."""
        self.is_settled = False
        """Whether all of its hosts are known, or it cannot be read."""
        self.is_answering = True
        """Whether the source answered the last question; any thread may read it."""
        self._deps = deps
        self._known_hosts = KnownHosts(deps.fleet)
        self._outline = Outline()
        self._clusters = ClusterNames(deps.settings, self._outline)
        self._services: ServiceStates | None = None
        self._tails: tuple[Tail, Tail] | None = None
        self._pending: set[str] = set()
        """Hosts that have to be read."""
        # Held for a whole round: the source is asked under it, and hosts are stored, with the locks
        # of replicas. Nobody waits for it who holds one of those.
        self._running = threading.Lock()
        # `follow` may come in the middle of a round. So a round notes when the next listing is due
        # before it takes one.
        self._services_due_s = self._listing_due_s = float("-inf")
        self._complaints: dict[str, tuple[str, ...]] = {}

    def follow(self, outline: Outline, clusters: ClusterNames) -> None:
        """From now on, go by this outline."""
        if outline != self._outline:
            self._listing_due_s = float("-inf")
        self._outline, self._clusters = outline, clusters

    def run(self, *, anew: bool = False) -> bool:
        """Bring the hosts of the part up to date; False: not all that was read could be stored.

        Raises nothing. Waits for a round that is running. ``anew``: services too, though that may
        not be due.
        """
        with self._running:
            if anew:
                self._services_due_s = float("-inf")
            return self._run(self.part.name, self._deps.observer, self._deps.clock)

    def _run(self, name: str, observer: Observer, clock: Clock) -> bool:
        began_s = clock.monotonic_s()
        try:
            try:
                self._round(began_s)
            except SourceUnavailable as error:
                self._unreadable(str(error))
            else:
                self._succeeded()
        except LeadLost:
            LOG.debug("Another worker feeds %s", name)
            return False
        except (StateUnavailable, Conflict) as error:
            LOG.warning("Hosts of %s were not stored; they will be: %s", name, error)
            observer.count(events.FEED_FAILURES, name)
            return False
        except Exception:
            LOG.exception("The feed of %s failed and will be retried", name)
            observer.count(events.FEED_FAILURES, name)
        else:
            observer.time(events.FEED_TIME, clock.monotonic_s() - began_s, name)
        return True

    def _round(self, now_s: float) -> None:
        settings = self._deps.settings
        if self._services is None or now_s >= self._services_due_s:
            self._services = self._deps.source.services(self.part.id)
            self._observe("services", len(self._services.by_host))
            self._known_hosts.refresh()
            self._store_services(lambda record: self._service_of(record.host))
            self._services_due_s = now_s + settings.services_interval_s
        if self._tails is not None and now_s < self._listing_due_s:
            self._read_changes()
            if self._read_pending():
                return
        # Before it is read: an outline that comes meanwhile makes another one due.
        self._listing_due_s = now_s + settings.full_interval_s
        try:
            listing = self._take_listing()
            self._read_changes()
            self._read_pending()
            self._remove_gone(listing)
        except Exception:
            # What is gone is found by a listing alone.
            self._listing_due_s = float("-inf")
            raise

    # Services

    def _service_of(self, host: str) -> dict[str, Any]:
        return facts_of(self._services, host, self._deps.settings)

    def _store_services(self, service_of: Callable[[HostRecord], dict[str, Any]]) -> None:
        for chunk in _chunks(differing(self._fed().values(), service_of)):
            self._store(chunk)

    # Hosts

    def _take_listing(self) -> Listing:
        """Note the hosts whose records differ from what the source has; begin to follow changes."""
        listing = self._deps.source.listing(self.part.id)
        self._observe("listing", len(listing.nodes))
        self._known_hosts.refresh()
        if self._tails is None:
            self._tails = self._begin(listing.now_s)
        read_to = self.progress.read_to
        fed, owned = self._fed(), 0
        for node in listing.nodes:
            if node.host is not None and self._owns(node.host):
                owned += 1
                is_unread = read_to is not None and node.host > read_to
                if is_unread or self._is_behind(node, node.host, fed.get(node.uuid), listing):
                    self._pending.add(node.host)
        self._complain(
            "host mappings",
            sorted(
                f"host {node.host} has no mapping to this cell; nova-manage cell_v2 discover_hosts "
                "makes it"
                for node in listing.nodes
                if node.host is not None and node.host not in self._outline.part_of
            ),
        )
        self._note(hosts=owned, left=len(self._pending))
        return listing

    def _begin(self, now_s: float) -> tuple[Tail, Tail]:
        """From when changes are followed: for all hosts, also hosts that are read later."""
        overlap_s = self._deps.settings.overlap_s
        nodes_s, instances_s = self.progress.nodes_since_s, self.progress.instances_since_s
        if nodes_s is None or instances_s is None:
            nodes_s = instances_s = now_s - overlap_s
            self._note(nodes_since_s=nodes_s, instances_since_s=instances_s, read_to="")
        return Tail(nodes_s, overlap_s), Tail(instances_s, overlap_s)

    def _is_behind(
        self, node: ChangedRow, host: str, record: HostRecord | None, listing: Listing
    ) -> bool:
        if record is None or (record.updated_at or 0.0) < node.changed_at_s:
            return True
        if record.cluster != self._clusters.of(host, self.part):
            return True
        replica = self._deps.fleet.cluster(record.cluster)
        with replica.lock:
            known = replica.table.reported_instances(host)
        # The rows of an instance that is under way may stand still, and its reservation lasts.
        is_awaited = self._deps.inventory.sightings.last(host, known)
        return is_awaited or len(known) != listing.instances.get(host, 0)

    def _remove_gone(self, listing: Listing) -> None:
        present = {node.uuid for node in listing.nodes if node.host and self._owns(node.host)}
        if gone := [record for uuid, record in self._fed().items() if uuid not in present]:
            self._deps.check_lead()
            remove(self._deps.inventory, gone)

    def _read_changes(self) -> None:
        assert self._tails is not None  # noqa: S101 - a listing comes first
        nodes, instances = self._tails
        began_s = self._deps.now_s()
        changes = self._deps.source.changes(
            self.part.id, nodes_since_s=nodes.since_s, instances_since_s=instances.since_s
        )
        self._observe("changes", len(changes.nodes) + len(changes.instances))
        changed = {node.host for node in nodes.take(changes.nodes, changes.now_s)}
        for instance in instances.take(changes.instances, changes.now_s):
            changed |= {instance.host, *self._deps.fleet.hosts_of(instance.uuid)}
        self._pending |= {host for host in changed if host is not None and self._owns(host)}
        settled = {row.uuid: row.host for row in changes.instances if row.is_settled}
        if settled:
            self._known_hosts.refresh()
            self._deps.check_lead()
            end_unexpected(self._deps, settled, before_s=began_s - _ASKED_S)

    def _read_pending(self) -> bool:
        """Read what has changed; False: a known host has gone meanwhile, which a listing shows."""
        hosts, has_all = sorted(self._pending), True
        if hosts:
            self._known_hosts.refresh()
        for number, chunk in enumerate(_chunks(hosts)):
            self._deps.check_lead()
            readings = self._deps.source.read(self.part.id, chunk)
            self._observe("hosts", len(readings))
            fed = self._fed()
            missing = {*chunk}.difference(reading.host for reading in readings)
            has_all = has_all and missing.isdisjoint(record.host for record in fed.values())
            for reading in readings:
                self._complain(reading.host, reading.problems)
            reports = [self._prepared(report, fed) for each in readings for report in each.reports]
            self._store(self._deps.inventory.news(reports))
            self._pending.difference_update(chunk)
            self._note(left=len(self._pending))
            if self.progress.read_to is not None:
                self._note(read_to=max(self.progress.read_to, chunk[-1]))
                self._deps.keep()
            if len(hosts) > HOSTS_AT_ONCE:
                done = min((number + 1) * HOSTS_AT_ONCE, len(hosts))
                LOG.info("Feed of %s: read %d of %d hosts", self.part.name, done, len(hosts))
        return has_all

    def _prepared(self, report: HostReport, fed: dict[str, HostRecord]) -> HostReport:
        """The report with what is not of the host's own row."""
        known = fed.get(report.uuid) if isinstance(report.uuid, str) else None
        updated_at = report.updated_at
        if known is not None and isinstance(updated_at, float):
            # Rows are written by several conductors, whose clocks differ.
            updated_at = max(updated_at, known.updated_at or 0.0)
        prepared = structs.replace(
            report,
            cluster=self._clusters.of(report.host, self.part),
            cell_uuid=self.part.id,
            service=self._service_of(report.host),
            updated_at=updated_at,
        )
        providers = self._deps.providers
        if providers is None or report.uuid is UNSET:
            return prepared
        tree = providers.providers(report.uuid)
        if tree is None:
            return prepared
        # The inventories decide, and a free amount that the compute service guesses does not.
        return structs.replace(prepared, resource_providers=list(tree), disk_available_least=None)

    # Storing

    def _store(self, reports: Sequence[HostReport]) -> None:
        """Store reports; one that is refused is named, and does not keep back the others."""
        if not reports:
            return
        self._deps.check_lead()
        try:
            self._deps.inventory.update_hosts(reports)
        except RequestError as error:
            if len(reports) == 1:
                self._complain(reports[0].host, [str(error)])
                return
            middle = len(reports) // 2
            self._store(reports[:middle])
            self._store(reports[middle:])
        else:
            self._deps.observer.count(events.FEED_REPORTS, self.part.name, by=len(reports))

    # Results

    def _unreadable(self, problem: str) -> None:
        """The hosts stay as they are for as long as a heartbeat may be old; then they are down."""
        deps = self._deps
        deps.observer.count(events.FEED_FAILURES, self.part.name)
        if not self.progress.problem:
            LOG.error("Cell %s cannot be read; its hosts stay as they are known: %s",
                      self.part.name, problem)  # fmt: skip
        self._note(problem=problem)
        self.is_settled, self.is_answering = True, False
        self._services_due_s = float("-inf")
        self._known_hosts.refresh()
        if deps.now_s() - self.progress.synced_at_s > deps.settings.silent_after_s:
            self._store_services(_unread)

    def _succeeded(self) -> None:
        assert self._tails is not None  # noqa: S101 - the round has read changes
        nodes, instances = self._tails
        if not self.is_settled:
            LOG.info("Feed of %s: all of its %d hosts are known",
                     self.part.name, self.progress.hosts)  # fmt: skip
        if self.progress.problem:
            LOG.info("Cell %s can be read again", self.part.name)
        self._note(
            nodes_since_s=nodes.since_s,
            instances_since_s=instances.since_s,
            read_to=None,
            synced_at_s=self._deps.now_s(),
            problem="",
        )
        self.is_settled = True

    def _note(self, **progress: Any) -> None:
        self.progress = structs.replace(self.progress, **progress)

    def _complain(self, about: str, problems: Sequence[str]) -> None:
        """Log what is wrong with a host, once until it changes."""
        if problems and self._complaints.get(about) != (*problems,):
            self._complaints[about] = (*problems,)
            shown = "; ".join(problems[:3]) + (" ..." if len(problems) > 3 else "")
            LOG.warning("Cell %s, %s: what is wrong is left out: %s", self.part.name, about, shown)
        elif not problems:
            self._complaints.pop(about, None)

    def _observe(self, what: str, rows: int) -> None:
        self.is_answering = True
        self._deps.observer.count(events.FEED_ROWS, self.part.name, what, by=rows)

    def _owns(self, host: str) -> bool:
        return self._outline.part_of.get(host) == self.part.id

    def _fed(self) -> dict[str, HostRecord]:
        return {record.uuid: record for record in watched(self._deps.fleet)
                if record.cell_uuid == self.part.id}  # fmt: skip


def end_unexpected(
    deps: FeedDependencies, settled: Mapping[str, str | None], *, before_s: float
) -> None:
    """End the reservations of instances that will not come to their hosts.

    ``settled`` are instances with which nothing is under way, and the hosts where they are; ended
    are those on other hosts that were made before ``before_s`` of the store's clock. Such an
    instance was deleted, failed, or was built on another host in the end.
    """
    for replica in deps.fleet.clusters():
        with replica.lock:
            unexpected = [
                reservation
                for reservation in replica.reservations.values()
                if reservation.instance_uuid in settled
                and settled[reservation.instance_uuid] != reservation.host
                and reservation.created_at_s < before_s
            ]
        for reservation in unexpected:
            # One that changed or moved meanwhile is seen again: rows are read for some seconds.
            with contextlib.suppress(Conflict):
                deps.inventory.release_one(replica.scope, reservation)


def remove(inventory: Inventory, gone: Sequence[HostRecord]) -> None:
    """Remove hosts that the source does not have any more. Raises Conflict, StateUnavailable."""
    inventory.remove_hosts([(record.host, record.nodename) for record in gone])
    names = listed(sorted({record.host for record in gone}))
    LOG.info("Removed %d hosts that are not fed any more: %s", len(gone), names)


def _unread(record: HostRecord) -> dict[str, Any]:
    """The service of a host whose part has not been read for longer than a heartbeat may be old."""
    return record.service | {"up": False, "down_reason": "its cell's database cannot be read"}


def _chunks(items: Sequence[Any]) -> Iterator[Any]:
    for start in range(0, len(items), HOSTS_AT_ONCE):
        yield items[start : start + HOSTS_AT_ONCE]
