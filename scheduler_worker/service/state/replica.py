"""Replicas: what this process knows of each scope, kept current from the change index.

A :class:`ClusterReplica` owns the cluster's :class:`HostTable`. Its ``lock`` guards the table: hold
it to decide, read or update. Changes are states, not events: applying one twice, or a newer before
an older, is harmless as long as :attr:`Replica.seen` only grows.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import structs

from scheduler_worker import events
from scheduler_worker.errors import RequestError
from scheduler_worker.model.aggregates import Aggregate, by_host
from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.cluster_load import BalancingSwitch
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.ledgers import MigrationLedger, PowerLedger
from scheduler_worker.model.policies import ClusterPolicy
from scheduler_worker.model.set_index import SetIndex
from scheduler_worker.observer import Observer
from scheduler_worker.ports import (
    GLOBAL,
    Change,
    Changes,
    Clock,
    Guard,
    Put,
    Seen,
    Store,
    Transaction,
    Written,
)
from scheduler_worker.service.state import records

if TYPE_CHECKING:
    from scheduler_worker.model.host_table import HostTable


class HostPlaces:
    """Which clusters have records of a host, by uuid and by host name: of all that are known here.

    Safe for threads. It names the cluster; the cluster's replica has the records.
    """

    def __init__(self) -> None:
        self._by_name: SetIndex[str, tuple[str, str]] = SetIndex()
        self._lock = threading.Lock()

    def replace(
        self, cluster: str, key: str, before: Iterable[str | None], after: Iterable[str | None]
    ) -> None:
        """A cluster's record was about hosts of these names or uuids, and is about those now."""
        place = cluster, key
        with self._lock:
            for name in filter(None, before):
                self._by_name.discard(name, place)
            for name in filter(None, after):
                self._by_name.add(name, place)

    def of(self, names: Iterable[str]) -> set[str]:
        """The clusters that have hosts of these names or uuids, expect them, or see them leave."""
        with self._lock:
            return {cluster for name in names for cluster, _ in self._by_name.of(name)}


LOG = logging.getLogger(__name__)

PROGRESS_S = 1.0
"""How often the progress of loading is logged."""


Value = TypeVar("Value")


class RecordKind(dict[str, Value], Generic[Value]):
    """The records of one kind, decoded, by what follows their common prefix in the keys."""

    def __init__(self, prefix: str, read: Callable[[bytes], Value]) -> None:
        super().__init__()
        self.prefix = prefix
        self._read = read

    def take(self, name: str, value: bytes | None) -> None:
        """Apply one record as it is now; ``value`` is None if it was deleted."""
        if value is None:
            self.pop(name, None)
        else:
            self[name] = self._read(value)


class Replica:
    """The records of one scope as this process knows them, of those kinds that it reads."""

    def __init__(self, scope: str, *kinds: RecordKind[Any]) -> None:
        self.scope = scope
        self._kinds = kinds
        self.seen = Seen()
        # Guards the records, and a cluster's table. Decisions are made under it, and most writes,
        # with their round trips. Of several clusters the locks are taken in the order of names, and
        # those of other scopes after them. Re-entrant: what holds it calls what takes it.
        self.lock = threading.RLock()
        self.versions: dict[str, int] = {}
        # Before `lock`: who waits here holds up no decision.
        self._catching_up = threading.Lock()
        self._current_at_s = float("-inf")

    def catch_up(self, store: Store, clock: Clock, since_s: float) -> None:
        """Be as current as the store was at ``since_s`` of the monotonic clock.

        Concurrent callers share one read; call it without ``lock``. Raises StateUnavailable.
        """
        with self._catching_up:
            # Another caller has read since this one wanted to: its read serves both.
            if self._current_at_s > since_s:
                return
            # From before the read: what a caller wants later may not be in the reply.
            reading_s = clock.monotonic_s()
            # Without `lock`: decisions go on during the round trip.
            changes = store.changes(self.scope, self.seen)
            with self.lock:
                if not self.apply(changes):
                    self.refresh(store)
            self._current_at_s = reading_s

    def refresh(self, store: Store) -> float:
        """Apply the store's changes; returns the store's time. Raises StateUnavailable."""
        with self.lock:
            changes = store.changes(self.scope, self.seen)
            self.apply(changes)
        return changes.now_s

    @contextlib.contextmanager
    def reading(self, store: Store) -> Iterator[float]:
        """Hold ``lock`` after :meth:`refresh`; yields the store's time."""
        with self.lock:
            yield self.refresh(store)

    def apply(self, changes: Changes) -> bool:
        """Apply changes, unless this replica is newer already; whether it is as new as they are.

        It is not where they follow on what it does not have: another thread's reply, to a question
        that was asked before the store lost data, may have come in between. Read again then.
        """
        is_same = changes.epoch == self.seen.epoch
        # A reply that another thread's newer one has overtaken has nothing new.
        if is_same and changes.version < self.seen.version:
            return True
        if not changes.reset and not (is_same and changes.since <= self.seen.version):
            return False
        if changes.reset:
            self.drop(self.versions.keys() - {change.key for change in changes.entries})
        for change in changes.entries:
            # What this process wrote itself is in already; only a reset may reuse versions.
            is_known = self.versions.get(change.key) == change.version
            if changes.reset or change.value is None or not is_known:
                self._take(change)
        self.seen = Seen(changes.epoch, changes.version)
        return True

    def apply_written(
        self, transactions: Sequence[Transaction], written: Written, now_s: float
    ) -> None:
        """Take in what this process has just written, instead of reading it back.

        ``now_s`` is of the store's clock. The caller holds ``lock``. :attr:`seen` goes on only if
        nobody else wrote in between; otherwise the next read brings the changes of others.
        """
        if self.seen.version >= written.version:
            return  # another thread has read since, and records may have changed again
        entries = [
            Change(put.key, written.version, put.value)
            for transaction, is_applied in zip(transactions, written.applied, strict=True)
            if is_applied
            for put in transaction.puts
        ]
        version = self.seen.version
        # If nobody else wrote in between, this process knows all up to its own write.
        if written.before == version:
            version = written.version
        self.apply(Changes(epoch=self.seen.epoch, version=version, now_s=now_s, entries=entries))

    def version(self, key: str) -> int:
        """The version of a record, 0 when it does not exist."""
        return self.versions.get(key, 0)

    def guard(self, key: str) -> Guard:
        """A guard that a record has not changed since it was read."""
        return Guard(key, self.version(key))

    def guards(self, keys: Iterable[str]) -> list[Guard]:
        """Guards that these records have not changed since they were read."""
        return [self.guard(key) for key in keys]

    def replacing(self, *puts: Put) -> Transaction:
        """Puts that are written only if their records have not changed since they were read."""
        return Transaction(puts, self.guards(put.key for put in puts))

    def drop(self, keys: Iterable[str]) -> None:
        """Forget records that are deleted; the caller holds ``lock``."""
        # In one order: the last row takes the place of each that is removed, and ties between hosts
        # are decided by their rows.
        for key in sorted(keys):
            self._take(Change(key, 0, None))

    def _take(self, change: Change) -> None:
        if change.value is None:
            self.versions.pop(change.key, None)
        else:
            self.versions[change.key] = change.version
        self.take(change.key, change.version, change.value)

    def take(self, key: str, version: int, value: bytes | None) -> None:
        """Apply one record as it is now; ``value`` is None if it was deleted."""
        for kind in self._kinds:
            if key.startswith(kind.prefix):
                kind.take(key.removeprefix(kind.prefix), value)


class GlobalReplica(Replica):
    """Aggregates, the names of the clusters, and the ids of the units that are enabled."""

    def __init__(self) -> None:
        self.aggregates = RecordKind(records.AGGREGATE, records.read_aggregate)
        """By their ids as text."""
        self.clusters = RecordKind(records.CLUSTER, bytes)
        self._units = RecordKind(records.UNIT, bytes)
        super().__init__(GLOBAL, self.aggregates, self.clusters, self._units)
        # These are replaced and never changed, so they can be read without the lock.
        self.names: tuple[str, ...] = ()
        """Of all known clusters, sorted."""
        self.by_host: Mapping[str, tuple[Aggregate, ...]] = {}
        self.units: frozenset[str] = frozenset()
        """The ids of the units that are enabled."""

    def apply(self, changes: Changes) -> bool:
        is_current = super().apply(changes)
        kinds = {change.key[:2] for change in changes.entries}
        if changes.reset or records.AGGREGATE in kinds:
            self.by_host = by_host(self.aggregates.values())
        if changes.reset or records.CLUSTER in kinds:
            self.names = tuple(sorted(self.clusters))
        if changes.reset or records.UNIT in kinds:
            self.units = frozenset(self._units)
        return is_current


class ClusterReplica(Replica):
    """One cluster: hosts, instances, reservations, remembered answers, policy, moves, balancing."""

    def __init__(self, scope: str, observer: Observer, places: HostPlaces) -> None:
        super().__init__(scope)
        # It brings numpy, which commands do without.
        from scheduler_worker.model.host_table import HostTable

        self.table = HostTable()
        self.places = places
        self.reservations: dict[str, Reservation] = {}
        self.answers = RecordKind(records.ANSWER, records.read_reservation)
        """Instance uuid -> its reservation that was absorbed a short while ago."""
        self.released = RecordKind(records.RELEASED, bytes)
        """The instances whose reservations were released a short while ago."""
        self.announcements = RecordKind(records.READ, records.read_announcements)
        """Host name -> the announcements about it that were read a short while ago, and when."""
        self.policy: ClusterPolicy | None = None
        """The policy in force; None for the one compiled from the options."""
        self.compiled: tuple[Any, Any] | None = None
        """The :class:`~scheduler_worker.service.policies.pipelines.Pipelines` and its pipeline."""
        self.capacity_version = 0
        """Grows with every change after which a refused request might fit.

        New reservations are the exception: they only take capacity.
        """
        self.departures = RecordKind(records.DEPARTURE, records.read_departure)
        """Host uuid -> the host on its way to another cluster."""
        self.finished = RecordKind(records.FINISHED, bytes)
        """The ids of the moves that brought a host here a short while ago."""
        self.moves_seen = 0
        """Grows whenever a host came or went by a move, even if some of its steps were missed."""
        self.ledger = MigrationLedger()
        """The migrations that the cluster's balance has asked for."""
        self.power = PowerLedger()
        """The power actions that the cluster's balance has asked for."""
        self.switch: BalancingSwitch | None = None
        """The mode that was set for the cluster's balance; None: the workers' own applies."""
        self._observer = observer
        self._expired = 0
        self._new_hosts: dict[str, tuple[HostRecord, int]] = {}
        """Uuid -> record and version: hosts that came one after the other, to be put at once."""

    def apply(self, changes: Changes) -> bool:
        self.table.now_s = changes.now_s
        if changes.reset:
            # Hosts first: they are put in one batch, before what refers to them.
            entries = sorted(changes.entries, key=lambda change: change.key[:2] != records.HOST)
            changes = structs.replace(changes, entries=entries)
        is_current = super().apply(changes)
        self._put_new_hosts()
        if self._expired:
            self._observer.count(events.RESERVATIONS_EXPIRED, by=self._expired)
            self._expired = 0
        return is_current

    def take(self, key: str, version: int, value: bytes | None) -> None:
        kind, name = key[:2], key[2:]
        # Whatever may make room counts: requests that wait for capacity then look again.
        self.capacity_version += kind in {records.HOST, records.INSTANCES, records.POLICY}
        if kind in {records.HOST, records.INSTANCES, records.READ, records.RESERVATION}:
            self._take_of_table(key, version, value)
        elif kind in {records.ANSWER, records.RELEASED}:
            (self.answers if kind == records.ANSWER else self.released).take(name, value)
        elif kind in {records.DEPARTURE, records.FINISHED}:
            self.moves_seen += 1
            self._take_move(key, value)
        elif kind == records.POLICY:
            self.policy = None if value is None else records.read_policy(value)
            # Compiled by the next request: a policy may change often before one comes.
            self.compiled = None
        elif key == records.LEDGER:
            self.ledger = MigrationLedger() if value is None else records.read_ledger(value)
        elif key == records.POWER:
            self.power = PowerLedger() if value is None else records.read_power(value)
            self.capacity_version += 1
        elif key == records.SWITCH:
            self.switch = None if value is None else records.read_switch(value)

    def _put_new_hosts(self) -> None:
        if self._new_hosts:
            self.table.put_new(*zip(*self._new_hosts.values(), strict=True))
            self._new_hosts.clear()

    def _take_of_table(self, key: str, version: int, value: bytes | None) -> None:
        kind, name = key[:2], key[2:]
        if kind != records.HOST or value is None:
            self._put_new_hosts()
        if kind == records.RESERVATION:
            self._take_reservation(name, value)
        elif kind in {records.INSTANCES, records.READ}:
            if kind == records.READ:
                self.announcements.take(name, value)
            else:
                listed = None if value is None else records.read_instances(value)
                self.table.set_instances(name, listed)
            self.places.replace(self.scope, key, [name], [name] if value else [])
        else:
            row = self.table.row_of(name)
            before = () if row is None else _names(self.table.records[row])
            record = None if value is None else records.read_host(value)
            if record is None:
                self.table.remove(name)
            elif row is None:
                self._new_hosts[name] = record, version
            else:
                self.table.put(record, version)
            self.places.replace(self.scope, key, before, _names(record))

    def _take_move(self, key: str, value: bytes | None) -> None:
        kind, name = key[:2], key[2:]
        if kind == records.FINISHED:
            self.finished.take(name, value)
            return
        before = self.departures.get(name)
        self.departures.take(name, value)
        after = self.departures.get(name)
        was = (name, *_names(before.host)) if before else ()
        now = (name, *_names(after.host)) if after else ()
        self.places.replace(self.scope, key, was, now)

    def _take_reservation(self, reservation_id: str, value: bytes | None) -> None:
        if value is None:
            ended = self.reservations.pop(reservation_id, None)
            # A release and an expiry both delete the record; only its time tells which it was.
            self._expired += ended is not None and ended.expires_at_s <= self.table.now_s
            self.capacity_version += 1
            self.table.give_back(reservation_id)
        else:
            reservation = records.read_reservation(value)
            self.capacity_version += not reservation.is_pending
            self._keep(reservation_id, reservation)

    def keep_all(self, reservations: Iterable[Reservation], version: int) -> None:
        """Add reservations that this process has just written, at the version of that write."""
        for reservation in reservations:
            reservation_id = reservation.id
            self._keep(reservation_id, reservation)
            self.versions[records.RESERVATION + reservation_id] = version

    def _keep(self, reservation_id: str, reservation: Reservation) -> None:
        self.reservations[reservation_id] = reservation
        self.table.consume(reservation)

    def reservations_of(self, instance_uuid: str) -> list[Reservation]:
        """The stored reservations of an instance."""
        stored = self.reservations
        ids = self.table.ids_of_instance(instance_uuid)
        return [stored[each] for each in ids if each in stored]

    def has_lost(self, instance_uuids: Collection[str], moves_seen: Mapping[str, int]) -> bool:
        """Whether an instance without a reservation here may have left with its host.

        ``moves_seen`` is :attr:`moves_seen` of each cluster when all were read. If it has grown, a
        reservation that was made after that read may have left with its host too.
        """
        has_moved = moves_seen.get(self.scope, self.moves_seen) != self.moves_seen
        return (has_moved and bool(instance_uuids)) or any(map(self.departing, instance_uuids))

    def departing(self, instance_uuid: str) -> list[str]:
        """The uuids of hosts on their way to another cluster that carry the instance."""
        hosts = {reservation.host_uuid for reservation in self.reservations_of(instance_uuid)}
        return [
            uuid
            for uuid, departure in self.departures.items()
            if uuid in hosts or departure.carries(instance_uuid)
        ]


def _names(record: HostRecord | None) -> Sequence[str]:
    return () if record is None else (record.uuid, record.host)


class Fleet:
    """All replicas of this process, made when a cluster is first named.

    Reports expired reservations to the observer. Every process reports all that it learns of, so
    the counts of several processes must not be added up.
    """

    def __init__(
        self, store: Store, *, default_cluster: str, observer: Observer | None = None
    ) -> None:
        self.store = store
        self._observer = observer or Observer()
        self.default_cluster = default_cluster
        self.globals = GlobalReplica()
        self.places = HostPlaces()
        self._clusters: dict[str, ClusterReplica] = {}
        self._listed: tuple[Sequence[str], Sequence[ClusterReplica]] = (), ()
        self._lock = threading.Lock()

    def refresh_globals(self) -> float:
        """Read aggregates, clusters, units; returns the store's time. Raises StateUnavailable."""
        return self.globals.refresh(self.store)

    def refresh(self, replicas: Collection[ClusterReplica] | None = None) -> set[str]:
        """Read what changed in these clusters, None: in all that are known; returns their names.

        Raises StateUnavailable.
        """
        replicas = self.clusters() if replicas is None else replicas
        for replica in replicas:
            replica.refresh(self.store)
        return {replica.scope for replica in replicas}

    def load(self, clock: Clock) -> None:
        """Load all scopes before requests wait for them; logs progress. Raises StateUnavailable."""
        began_s = logged_s = clock.monotonic_s()
        self.refresh_globals()
        clusters = self.clusters()
        hosts = reservations = 0
        for number, replica in enumerate(clusters):
            now_s = clock.monotonic_s()
            if number == 0 or now_s - logged_s >= PROGRESS_S:
                logged_s = now_s
                LOG.info("Loading cluster %d of %d, %s", number + 1, len(clusters), replica.scope)
            replica.catch_up(self.store, clock, now_s)
            with replica.lock:
                self.prepare(replica)
                hosts += len(replica.table)
                reservations += len(replica.reservations)
        LOG.info(
            "Loaded %d clusters with %d hosts and %d reservations in %.1f s",
            len(clusters),
            hosts,
            reservations,
            clock.monotonic_s() - began_s,
        )

    def records_of(self, host_uuids: Collection[str]) -> list[HostRecord]:
        """The records of these hosts, as far as this process knows them."""
        host_records: list[HostRecord] = []
        for replica in self.clusters():
            with replica.lock:
                rows = map(replica.table.row_of, host_uuids)
                host_records += [replica.table.records[row] for row in rows if row is not None]
        return host_records

    def hosts_of(self, instance_uuid: str) -> set[str]:
        """The hosts on which the instance is known to be."""
        hosts: set[str] = set()
        for replica in self.clusters():
            with replica.lock:
                hosts.update(replica.table.hosts_reporting(instance_uuid))
        return hosts

    def read_names(self) -> Sequence[str]:
        """Read and return the names of all clusters. Raises StateUnavailable."""
        self.refresh_globals()
        return self.globals.names

    def cluster(self, name: str) -> ClusterReplica:
        """The replica of a cluster, which need not be a known one."""
        with self._lock:
            # A request may name any cluster, so replicas are made when they are asked for.
            if name not in self._clusters:
                self._clusters[name] = ClusterReplica(name, self._observer, self.places)
            return self._clusters[name]

    def known_cluster(self, name: str, field: str = "cluster") -> ClusterReplica:
        """The replica of a cluster that has hosts, or had some.

        Raises StateUnavailable, and RequestError, of this field: there is no such cluster.
        """
        if name not in self.read_names():
            known = ", ".join(self.globals.names) or "none"
            raise RequestError(field, f"there is no cluster {name!r}; known are {known}")
        return self.cluster(name)

    def clusters(self) -> Sequence[ClusterReplica]:
        """The replicas of all known clusters, by name."""
        # Names are replaced as a whole, so another object means that they may have changed.
        names, replicas = self._listed
        if names is not (names := self.globals.names):
            replicas = [self.cluster(name) for name in names]
            self._listed = names, replicas
        return replicas

    def known(self, names: Iterable[str]) -> list[ClusterReplica]:
        """The replicas of the known clusters among these, by name."""
        return [self.cluster(name) for name in sorted(names) if name in self.globals.clusters]

    def prepare(self, replica: ClusterReplica) -> "HostTable":
        """The cluster's table with the current aggregates; the caller holds the replica's lock."""
        # Aggregates are records of no cluster: a table gets them when it is about to be used.
        if replica.table.aggregates is not self.globals.by_host:
            replica.table.set_aggregates(self.globals.by_host, self.globals.aggregates.values())
        return replica.table
