"""What this process knows of a scope, brought up to date from the change index.

A :class:`ClusterReplica` owns the cluster's :class:`HostTable`. Its ``lock`` guards the table;
whoever judges, reads or updates holds it. Changes are states, not events: applying one twice, or a
newer before an older, is harmless as long as :attr:`Replica.seen` only grows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

from scheduler_worker.model.aggregates import Aggregate, by_host
from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.ports import GLOBAL, Change, Changes, Clock, Observer, Seen, Store
from scheduler_worker.service import records


class Replica:
    """A process's view of one scope."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.seen = Seen()
        self.lock = threading.RLock()
        self.versions: dict[str, int] = {}
        self._looking = threading.Lock()
        self._looked_at_s = float("-inf")

    def catch_up(self, store: Store, clock: Clock, since_s: float) -> None:
        """Know everything that the store knew at ``since_s`` of the clock, without the lock.

        Whoever asks at the same time shares one look.
        """
        with self._looking:
            if self._looked_at_s > since_s:
                return
            looking_s = clock.monotonic_s()
            changes = store.changes(self.scope, self.seen)
            with self.lock:
                self.apply(changes)
            self._looked_at_s = looking_s

    def refresh(self, store: Store) -> Changes:
        """Catch up with the store; the caller holds ``lock``."""
        changes = store.changes(self.scope, self.seen)
        self.apply(changes)
        return changes

    def apply(self, changes: Changes) -> None:
        """Take in changes, unless this view is newer already."""
        if changes.epoch == self.seen.epoch and changes.version < self.seen.version:
            return
        if changes.reset:
            self._drop(self.versions.keys() - {change.key for change in changes.entries})
        for change in changes.entries:
            self._take(change)
        self.seen = Seen(changes.epoch, changes.version)

    def version(self, key: str) -> int:
        """The version of a record, 0 when it does not exist."""
        return self.versions.get(key, 0)

    def _drop(self, keys: Iterable[str]) -> None:
        for key in sorted(keys):
            self._take(Change(key, 0, None))

    def _take(self, change: Change) -> None:
        if change.value is None:
            self.versions.pop(change.key, None)
        else:
            self.versions[change.key] = change.version
        self.take(change.key, change.version, change.value)

    def take(self, key: str, version: int, value: bytes | None) -> None:
        """One record as it is now; None when it is gone."""
        raise NotImplementedError


class GlobalReplica(Replica):
    """Aggregates and the names of the clusters."""

    def __init__(self) -> None:
        super().__init__(GLOBAL)
        self.aggregates: dict[int, Aggregate] = {}
        self.clusters: set[str] = set()
        # Both are replaced and never changed, so that they are read without the lock.
        self.names: tuple[str, ...] = ()
        self.by_host: Mapping[str, tuple[Aggregate, ...]] = {}

    def apply(self, changes: Changes) -> None:
        super().apply(changes)
        kinds = {change.key[:2] for change in changes.entries}
        if changes.reset or records.AGGREGATE in kinds:
            self.by_host = by_host(self.aggregates.values())
        if changes.reset or records.CLUSTER in kinds:
            self.names = tuple(sorted(self.clusters))

    def take(self, key: str, version: int, value: bytes | None) -> None:
        kind, name = key[:2], key[2:]
        if kind == records.CLUSTER:
            self.clusters.discard(name) if value is None else self.clusters.add(name)
        elif kind == records.AGGREGATE and value is None:
            self.aggregates.pop(int(name), None)
        elif kind == records.AGGREGATE and value is not None:
            self.aggregates[int(name)] = records.read_aggregate(value)


class ClusterReplica(Replica):
    """One cluster's hosts, instances, live promises and remembered answers."""

    def __init__(self, scope: str, observer: Observer) -> None:
        super().__init__(scope)
        self.table = HostTable()
        self.promises: dict[str, Reservation] = {}
        self.answers: dict[str, Reservation] = {}
        """Instance uuid -> the promise that became use a short while ago."""
        self.news = 0
        """Grows with every change but new promises, which make nobody's prospects better."""
        self._observer = observer
        self._expired = 0

    def apply(self, changes: Changes) -> None:
        self.table.now_s = changes.now_s
        super().apply(changes)
        if self._expired:
            self._observer.promises_ended(self.scope, "expired", self._expired)
            self._expired = 0

    def take(self, key: str, version: int, value: bytes | None) -> None:
        kind, name = key[:2], key[2:]
        self.news += kind in {records.HOST, records.INSTANCES}
        if kind == records.PROMISE:
            self._take_promise(name, value)
        elif kind == records.ANSWER and value is None:
            self.answers.pop(name, None)
        elif kind == records.ANSWER and value is not None:
            self.answers[name] = records.read_promise(value)
        elif kind == records.HOST:
            if value is None:
                self.table.remove(name)
            else:
                self.table.put(records.read_host(value), version)
        elif kind == records.INSTANCES:
            found = None if value is None else records.read_instances(value)
            self.table.set_instances(name, found)

    def _take_promise(self, promise_id: str, value: bytes | None) -> None:
        if value is None:
            ended = self.promises.pop(promise_id, None)
            self._expired += ended is not None and ended.expires_at_s <= self.table.now_s
            self.news += 1
            self.table.end_promise(promise_id)
        else:
            promise = records.read_promise(value)
            self.news += not promise.is_pending
            self._keep(promise_id, promise)

    def keep_all(self, reservations: Iterable[Reservation], version: int) -> None:
        """Hold promises that this process has just written."""
        for each in reservations:
            promise_id = each.id
            self._keep(promise_id, each)
            self.versions[records.PROMISE + promise_id] = version

    def _keep(self, promise_id: str, reservation: Reservation) -> None:
        self.promises[promise_id] = reservation
        self.table.promise(reservation)

    def promises_of(self, instance_uuid: str) -> list[Reservation]:
        """The stored promises for an instance."""
        found = self.table.promises_of_instance(instance_uuid)
        return [self.promises[each.id] for each in found if each.id in self.promises]


class Fleet:
    """All replicas of this process; clusters appear as they are named.

    The observer is told of promises that expired. Each process tells of all that it comes to know
    of, so that what several processes tell must not be added up.
    """

    def __init__(
        self, store: Store, *, default_cluster: str, observer: Observer | None = None
    ) -> None:
        self.store = store
        self._observer = observer or Observer()
        self.default_cluster = default_cluster
        self.globals = GlobalReplica()
        self._clusters: dict[str, ClusterReplica] = {}
        self._lock = threading.Lock()

    def refresh_globals(self) -> None:
        """Catch up with aggregates and cluster names."""
        with self.globals.lock:
            self.globals.refresh(self.store)

    def names(self) -> Sequence[str]:
        """Every known cluster, by name."""
        return self.globals.names

    def cluster(self, name: str) -> ClusterReplica:
        """The replica of a cluster."""
        with self._lock:
            if name not in self._clusters:
                self._clusters[name] = ClusterReplica(name, self._observer)
            return self._clusters[name]

    def clusters(self) -> list[ClusterReplica]:
        """The replicas of all known clusters."""
        return [self.cluster(name) for name in self.names()]

    def prepare(self, replica: ClusterReplica) -> HostTable:
        """The cluster's table with today's aggregates; the caller holds the replica's lock."""
        if replica.table.aggregates is not self.globals.by_host:
            known = self.globals.aggregates.values()
            replica.table.set_aggregates(self.globals.by_host, known)
        return replica.table
