"""What decisions are made by, copied out of the shared state: hosts, reservations, policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.ports import GLOBAL, Put, Store, Transaction
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import ClusterReplica, Fleet

_WRITTEN_AT_ONCE = 1000
PAGE = 5000
"""Records that are copied at a time."""


class Snapshot(msgspec.Struct, frozen=True):
    """Records of each scope by their keys, as they were at ``now_s`` of the store's clock."""

    now_s: float
    scopes: dict[str, dict[str, bytes]]

    @property
    def clusters(self) -> dict[str, dict[str, bytes]]:
        """The scopes but the global one."""
        return {name: found for name, found in self.scopes.items() if name != GLOBAL}

    def write_to(self, store: Store) -> None:
        """Write all of it to a store; nothing in it expires."""
        for scope, found in self.scopes.items():
            puts = [Put(key, value) for key, value in found.items()]
            for at in range(0, len(puts), _WRITTEN_AT_ONCE):
                store.write(scope, [Transaction(puts[at : at + _WRITTEN_AT_ONCE])])


class SnapshotPage(msgspec.Struct, frozen=True):
    """A part of a scope's records; ``next`` is the key to go on after, None: that was the rest."""

    now_s: float
    records: dict[str, bytes]
    next: str | None = None


class Snapshots:
    """Reads snapshots out of what a process knows. Methods raise StateUnavailable."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def whole(self) -> Snapshot:
        """All scopes, page by page: no decision waits for long."""
        shared = self.globals()
        now_s, scopes = shared.now_s, {GLOBAL: shared.records}
        for name in self._fleet.names():
            found: dict[str, bytes] = {}
            for page in self._pages(name):
                found |= page.records
                now_s = max(now_s, page.now_s)
            scopes[name] = found
        return Snapshot(now_s, scopes)

    def _pages(self, cluster: str) -> Iterator[SnapshotPage]:
        after, is_first = None, True
        while is_first or after is not None:
            page = self.page(cluster, after, PAGE)
            yield page
            after, is_first = page.next, False

    def globals(self) -> SnapshotPage:
        """Aggregates, the names of the clusters and the enabled units."""
        replica = self._fleet.globals
        with replica.lock:
            now_s = replica.refresh(self._fleet.store).now_s
            puts = (
                *map(records.put_aggregate, replica.aggregates.values()),
                *map(records.put_cluster, replica.names),
                *map(records.put_unit, sorted(replica.units)),
            )
            return SnapshotPage(now_s, _by_key(puts))

    def page(self, cluster: str, after: str | None, limit: int) -> SnapshotPage:
        """What decisions in a cluster are made by: up to ``limit`` records, in the order of keys.

        Answers to earlier requests are left out, and hosts on their way to another cluster.
        """
        replica = self._fleet.cluster(cluster)
        with replica.lock:
            now_s = replica.refresh(self._fleet.store).now_s
            keys = sorted(key for key in _keys(replica) if after is None or key > after)
            shown = keys[:limit]
            puts = [put for key in shown if (put := _put(replica, key)) is not None]
        return SnapshotPage(now_s, _by_key(puts), shown[-1] if len(keys) > limit else None)


def _keys(replica: ClusterReplica) -> Iterator[str]:
    kinds = records.HOST, records.INSTANCES, records.RESERVATION, records.POLICY
    return (key for key in replica.versions if key.startswith(kinds))


def _put(replica: ClusterReplica, key: str) -> Put | None:
    kind, name = key[:2], key[2:]
    if kind == records.HOST:
        row = replica.table.row_of(name)
        return None if row is None else records.put_host(replica.table.records[row])
    if kind == records.INSTANCES:
        return records.put_instances(name, replica.table.reported_instances(name))
    if kind == records.RESERVATION:
        found = replica.reservations.get(name)
        return None if found is None else records.put_reservation(found)
    return None if replica.policy is None else records.put_policy(replica.policy)


def _by_key(puts: Iterable[Put]) -> dict[str, bytes]:
    return {each.key: each.value for each in puts if each.value is not None}


def hosts_in(found: Mapping[str, bytes]) -> Iterator[HostRecord]:
    """The hosts among the records of a cluster."""
    for key, value in found.items():
        if key.startswith(records.HOST):
            yield records.read_host(value)


def instances_in(found: Mapping[str, bytes]) -> Iterator[tuple[str, records.Instances]]:
    """The host names of a cluster with the instances that they report."""
    for key, value in found.items():
        if key.startswith(records.INSTANCES):
            yield key.removeprefix(records.INSTANCES), records.read_instances(value)


def reservations_in(found: Mapping[str, bytes]) -> Iterator[tuple[str, Reservation]]:
    """The reservations of a cluster, by their keys."""
    for key, value in found.items():
        if key.startswith(records.RESERVATION):
            yield key, records.read_reservation(value)
