"""The hosts of one cluster in columns, less everything that is claimed or reserved.

A claim or reservation takes from its host's row, giving it back adds the same amounts, and a new
report refills the row and takes the live reservations from it again. Only the owner of a table
changes it, and never while a decision reads it.
"""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.changes import ChangeLog, Marks
from scheduler_worker.model.columns import Mask, Rows, Values
from scheduler_worker.model.derived_columns import DerivedColumns
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.host_reservations import HostReservations
from scheduler_worker.model.host_rows import HostRows
from scheduler_worker.model.host_subset import HostSubset
from scheduler_worker.model.hosts import ClaimOrReservation, Groups, Hosts, HostState
from scheduler_worker.model.reported_instances import Instances, ReportedInstances

_Node = tuple[str, str]
"""Host name and node name."""


class HostTable(Hosts):
    """The hosts of one cluster as this process knows them."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.metadata_keys = frozenset()
        self.metadata_items = frozenset()
        self._use_rows(HostRows())
        self._states: list[HostState] | None = []
        """One for each row; None, in a table that is soon dropped, until all are asked for."""
        self._reservations = HostReservations()
        self._former_uuids: dict[_Node, set[str]] = {}
        """Node -> uuids without a row that it has reservations under.

        A node that is created anew gets another uuid. Reservations made meanwhile count on it all
        the same, until the worker that stores its report has carried them over.
        """
        self._instances = ReportedInstances()
        self._aggregates: Mapping[str, tuple[Aggregate, ...]] = {}
        self._changes = ChangeLog()
        self._derived = DerivedColumns()
        self._without_unannounced: HostTable | None = None
        self.limits: dict[int, dict[str, Any]] = {}
        """What filters have left on hosts, by row: :attr:`.HostState.limits`."""
        self.evaluation_cache: OrderedDict[Hashable, Any] = OrderedDict()
        """Equivalence class -> the evaluation of these hosts for its requests, the least recently
        used first. Kept here because it is valid as long as the rows stay where they are."""

    def _use_rows(self, rows: HostRows) -> None:
        self._rows = rows
        self.records = rows.records
        self.versions = rows.versions
        self.columns = rows.columns
        """By name, longer than the table: for :class:`HostState`, which looks at one row."""

    # Reading

    def __len__(self) -> int:
        return len(self.records)

    def column(self, name: str) -> Values:
        return self._rows.column(name)

    def state(self, row: int) -> HostState:
        return HostState(self, int(row)) if self._states is None else self._states[row]

    def states(self, rows: Iterable[int] | None = None) -> Iterator[HostState]:
        if self._states is None:
            self._states = [HostState(self, row) for row in range(len(self))]
        return iter(self._states) if rows is None else map(self._states.__getitem__, rows)

    def take_limits(self) -> dict[int, dict[str, Any]]:
        """What filters have left on hosts since the last call, by row; the table forgets it."""
        left, self.limits = self.limits, {}
        return left

    def take(self, rows: Rows) -> Hosts:
        return HostSubset(self, rows)

    def rows_of(self, hosts: Iterable[str], *, ignore_case: bool = False) -> Mask:
        mask = np.zeros(len(self), bool)
        for host in hosts:
            for row in self._rows.named(host, ignore_case=ignore_case):
                mask[row] = True
        return mask

    def row_of(self, host_uuid: str) -> int | None:
        """The row of a host; None: the table does not have it."""
        return self._rows.row_of(host_uuid)

    def find(self, host: str, nodename: str | None = None) -> list[HostRecord]:
        """The nodes of a host name, or the one with that node name."""
        found = (self.records[row] for row in sorted(self._rows.named(host)))
        return [record for record in found if nodename is None or record.nodename == nodename]

    def derived(
        self,
        key: Hashable,
        of: Callable[[HostState], Any],
        dtype: str,
        first: Callable[[Hosts], Values] | None = None,
    ) -> Values:
        return self._derived.column(self, self._changes.facts, key, of, dtype, first)

    def marks(self) -> Marks:
        """Where the log of changed rows ends now."""
        return self._changes.marks()

    def touched_since(self, marks: Marks) -> tuple[set[int], set[int]] | None:
        """The rows whose facts changed, and those whose reservations or instances did.

        None when that is unknown: rows came, went or moved.
        """
        return self._changes.since(marks)

    # Aggregates

    @property
    def aggregates(self) -> Mapping[str, tuple[Aggregate, ...]]:
        """The aggregates of every host name, as they were last set."""
        return self._aggregates

    def aggregates_of(self, host: str) -> tuple[Aggregate, ...]:
        """The aggregates of a host name."""
        return self._aggregates.get(host, ())

    def by_aggregates(self) -> Groups:
        return self._derived.groups(self, self._changes.facts, 2 * self._rows.capacity)

    def set_aggregates(
        self, by_host: Mapping[str, tuple[Aggregate, ...]], empty: Iterable[Aggregate] = ()
    ) -> None:
        """Replace the aggregates of all hosts; ``empty`` are aggregates that may have no host."""
        before, self._aggregates = self._aggregates, by_host
        known = {id(each): each for some in by_host.values() for each in some}
        known |= {id(each): each for each in empty}
        self.metadata_items = frozenset(
            item for each in known.values() for item in each.metadata.items()
        )
        self.metadata_keys = frozenset(key for key, _ in self.metadata_items)
        self._begin_generation()
        for host in before.keys() | by_host.keys():
            if before.get(host) != by_host.get(host):
                for row in self._rows.named(host):
                    if self._states is not None:
                        self._states[row].aggregates = by_host.get(host, ())
                    self._facts_changed(row)

    # Hosts

    def put(self, record: HostRecord, version: int) -> None:
        """Insert or replace a host, less its live reservations."""
        known = self._rows.row_of(record.uuid)
        nodes = {_node(record)} if known is None else {_node(record), _node(self.records[known])}
        with self._former_aside(nodes):
            row = self._rows.put(record, version)
            if known is None:
                self._begin_generation()
            for reservation in self._reservations.of_host(record.uuid):
                self._rows.take(row, reservation, 1)
        if self._states is not None:
            if row == len(self._states):
                self._states.append(HostState(self, row))
            state = self._states[row]
            state.record, state.version = record, version
            state.aggregates = self.aggregates_of(record.host)
        self._facts_changed(row)

    def remove(self, host_uuid: str) -> None:
        """Remove a host; the last row takes its place. An unknown one is ignored."""
        row = self._rows.row_of(host_uuid)
        if row is None:
            return
        node = _node(self.records[row])
        with self._former_aside([node]):
            self._rows.remove(row)
            if self._reservations.of_host(host_uuid):
                self._former_uuids.setdefault(node, set()).add(host_uuid)
        if self._states is not None:
            last = self._states.pop()
            if row < len(self._states):
                self._states[row] = last
                last.row = row
        self._forget_facts()

    # Instances

    def reported_instances(self, host: str) -> Instances:
        """The instances that a host name reports, without those it has reservations for."""
        return self._instances.on(host)

    def hosts_reporting(self, instance_uuid: str) -> Collection[str]:
        """The host names that report an instance: two while it migrates."""
        return self._instances.hosts_of(instance_uuid)

    def instances_of(self, host: str) -> Instances:
        """The instances that are on a host name or have a reservation there."""
        found: dict[str, Mapping[str, Any]] = {}
        for row in self._rows.named(host):
            for reservation in self.reservations_of_host(self.records[row].uuid):
                uuid = reservation.instance_uuid
                found[uuid] = {"uuid": uuid, "host": host}
        found.update(self._instances.on(host))
        return found

    def count_instances(self, uuids: Iterable[str]) -> Values:
        counts = np.zeros(len(self), "i8")
        for uuid in set(uuids):
            hosts = self._instances.hosts_of(uuid)
            if reserved := self._reservations.of_instance(uuid):
                hosts = {each.host for each in reserved}.union(hosts)
            for host in hosts:
                for row in self._rows.named(host):
                    counts[row] += 1
        return counts

    def set_instances(self, host: str, instances: Instances | None) -> None:
        """Replace the instances that a host name reports."""
        self._without_unannounced = None
        for row in self._rows.named(host):
            self._changes.use_changed(row)
        self._instances.replace(host, instances)

    # Reservations

    @property
    def num_reservations(self) -> int:
        """How many claims and reservations there are."""
        return len(self._reservations)

    def reservations_of_instance(self, instance_uuid: str) -> list[ClaimOrReservation]:
        """The claims and reservations for an instance."""
        return self._reservations.of_instance(instance_uuid)

    def reservations_of_provider(self, provider: str) -> list[ClaimOrReservation]:
        return self._reservations.of_provider(provider)

    def reservations_of_host(self, host_uuid: str) -> list[ClaimOrReservation]:
        """The claims and reservations on a host, also those under former uuids of its node."""
        found = self._reservations.of_host(host_uuid)
        row = self._rows.row_of(host_uuid) if self._former_uuids else None
        if row is not None:
            former = self._former(_node(self.records[row]))
            found += [each for each in former if self.row_of_reservation(each) == row]
        return found

    def row_of_reservation(self, reservation: ClaimOrReservation) -> int | None:
        """The row of its host; None: there is none.

        A node that was created anew has another uuid, and what is reserved under its former one.
        """
        row = self._rows.row_of(reservation.host_uuid)
        if row is not None:
            return row
        rows = (
            (self.records[row].uuid, row)
            for row in self._rows.named(reservation.host)
            if self.records[row].nodename == reservation.nodename
        )
        return min(rows, default=("", None))[1]  # the same one, wherever rows move

    def consume(self, reservation: ClaimOrReservation) -> ClaimOrReservation | None:
        """Take a claim or reservation from its host; returns the one of the same id it replaces.

        It may come before its host, and is taken when the host is put.
        """
        reservation_id = reservation.id
        before = self._reservations.get(reservation_id)
        if before is not None:
            if self._take_alike(before, reservation):
                self._reservations.replace(reservation_id, reservation)
                return before
            self.give_back(reservation_id)
        self._reservations.add(reservation_id, reservation)
        self._take(reservation, 1)
        return before

    def give_back(self, reservation_id: str) -> None:
        """Give back what a claim or reservation took. An unknown one is ignored."""
        reservation = self._reservations.remove(reservation_id)
        if reservation is not None:
            self._take(reservation, -1)

    def without_unannounced(self) -> HostTable | None:
        """These hosts as if all pending resources were given back; None: none are pending.

        The table that is returned shares what it can with this one: read it, and do so before this
        one is changed.
        """
        if not self._reservations.unannounced:
            return None
        if self._without_unannounced is None:
            table = copy.copy(self)
            table._use_rows(self._rows.without_unannounced())
            table._states = None
            table._reservations = self._reservations.announced()
            table._changes = self._changes.branch()
            table.limits = {}
            table.evaluation_cache = OrderedDict()
            self._without_unannounced = table
        self._without_unannounced.now_s = self.now_s
        return self._without_unannounced

    def _take_alike(self, one: ClaimOrReservation, other: ClaimOrReservation) -> bool:
        """Whether two of the same id take the same from the host."""
        if (one.resources, one.is_unannounced) != (other.resources, other.is_unannounced):
            return False
        row = self.row_of_reservation(one)
        return row is None or self._rows.provided(row, one) == self._rows.provided(row, other)

    def _take(self, reservation: ClaimOrReservation, times: int) -> None:
        if not reservation.is_unannounced:
            self._without_unannounced = None
        if self._rows.row_of(reservation.host_uuid) is None:
            self._former_uuids.setdefault(_node(reservation), set()).add(reservation.host_uuid)
        row = self.row_of_reservation(reservation)
        if row is not None:
            self._take_from(row, reservation, times)

    def _take_from(self, row: int, reservation: ClaimOrReservation, times: int) -> None:
        self._rows.take(row, reservation, times)
        if not self._changes.use_changed(row):
            self._begin_generation()

    # Reservations under former uuids

    def _former(self, node: _Node) -> list[ClaimOrReservation]:
        """The reservations of a node under uuids that have no row."""
        return [
            each
            for uuid in sorted(self._former_uuids.get(node, ()))
            if self._rows.row_of(uuid) is None
            for each in self._reservations.of_host(uuid)
        ]

    @contextlib.contextmanager
    def _former_aside(self, nodes: Collection[_Node]) -> Iterator[None]:
        """Inside, what is reserved under former uuids of the nodes is given back."""
        if self._former_uuids:
            self._count_former(nodes, -1)
        yield
        if self._former_uuids:
            self._count_former(nodes, 1)
            for node in nodes:
                if not self._former(node):
                    self._former_uuids.pop(node, None)

    def _count_former(self, nodes: Iterable[_Node], times: int) -> None:
        for reservation in [each for node in nodes for each in self._former(node)]:
            row = self.row_of_reservation(reservation)
            if row is not None:
                self._take_from(row, reservation, times)

    # Changes

    def _facts_changed(self, row: int) -> None:
        self._without_unannounced = None
        self._changes.facts_changed(row)
        if len(self._changes.facts) > 4 * self._rows.capacity:
            # A column that was not used for so long is cheaper to recompute.
            self._forget_facts()

    def _forget_facts(self) -> None:
        self._derived.clear()
        self._changes.forget_facts()
        self._begin_generation()

    def _begin_generation(self) -> None:
        """Rows came, went or moved: nothing that caches know of them by number holds."""
        self._without_unannounced = None
        self._changes.begin_generation()
        self.evaluation_cache.clear()


def _node(of: HostRecord | ClaimOrReservation) -> _Node:
    return of.host, of.nodename
