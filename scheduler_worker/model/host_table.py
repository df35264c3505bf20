"""The hosts of one cluster in columns, less everything that is claimed or reserved.

A claim or reservation takes from its host's row, giving it back adds the same amounts, and a new
report refills the row and takes the live reservations from it again. Only the owner of a table
changes it, and never while a decision reads it.

The columns that reservations take from (:data:`~.columns.CONSUMED`) are kept twice: less every
reservation, and less only those whose instances were announced. The second is what hosts would have
if all pending resources were given back: to keep it up to date costs a few assignments, to compute
it a pass over all rows.
"""

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.columns import (
    COLUMNS,
    CONSUMED,
    Mask,
    Rows,
    Values,
    count_listed,
    take,
    take_provided,
)
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.hosts import (
    Aggregates,
    ClaimOrReservation,
    Groups,
    HostRows,
    Hosts,
    HostState,
    HostSubset,
    Instances,
    OfAll,
    OfOne,
)
from scheduler_worker.model.inventories import Provided, provided
from scheduler_worker.model.set_index import SetIndex

_Node = tuple[str, str]
"""Host name and node name."""
_FIRST_CAPACITY = 64
_MAX_DERIVED = 512
_MAX_USED = 65_536
_GROUPS = "aggregate groups"


class Marks(NamedTuple):
    """How much a cache has seen of the changes of a table."""

    generation: int
    facts: int
    use: int


class _Derived(msgspec.Struct):
    """The values, the function of one of them, and how many changed facts they include."""

    of: OfOne
    values: Values
    seen: int


class _GroupNumbers:
    """Numbers sets of aggregates in the order in which hosts are found to be in them."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self.members: list[Aggregates] = []

    def __call__(self, host: HostState) -> int:
        aggregates = host.aggregates
        # Looked up by identity, which is cheaper than comparing metadata. Two versions of one
        # aggregate are two groups; ``members`` keeps both alive, so no id is used again.
        number = self._numbers.setdefault(tuple(map(id, aggregates)), len(self.members))
        if number == len(self.members):
            self.members.append(aggregates)
        return number


class HostTable(HostRows):
    """The hosts of one cluster as this process knows them."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.metadata_keys = frozenset()
        self.metadata_items = frozenset()
        self.records: list[HostRecord] = []
        self.versions: list[int] = []
        """The version of each record in the store."""
        self.columns = {c.name: np.zeros(_FIRST_CAPACITY, c.dtype) for c in COLUMNS}
        """By name, less every reservation. Longer than the rows in use, see :meth:`column`."""
        self._announced = {name: self.columns[name].copy() for name in CONSUMED}
        """Less the reservations whose instances were announced."""
        self._capacity = _FIRST_CAPACITY
        """How many rows the arrays have room for; they are doubled when it is reached."""
        self._in_use: dict[str, Values] = {}
        """Views of the rows in use; dropped when their number changes."""
        self._states: list[HostState] | None = []
        """One for each row; None, in a table that is soon dropped, until all are asked for."""
        self._row_of: dict[str, int] = {}
        self._by_name: SetIndex[str, int] = SetIndex()
        self._in_other_case: SetIndex[str, str] = SetIndex()
        """Host name in lower case -> the host names, which few fleets write with capitals."""
        self._reserved: dict[str, ClaimOrReservation] = {}
        """Live claims and reservations by id; one for each pair of instance and host."""
        self._reserved_by: SetIndex[tuple[str, str], str] = SetIndex()
        """Their ids by host, instance, and provider that is not the compute node of the host."""
        self._num_pending = 0
        """How many there are whose instances were not announced: the pending ones."""
        self._former_uuids: dict[_Node, set[str]] = {}
        """Node -> uuids without a row that it has reservations under.

        A node that is created again gets another uuid. Reservations made meanwhile count on it all
        the same, until the worker that stores its report has carried them over.
        """
        self._reported: dict[str, Instances] = {}
        """Host name -> the instances on it, as reports and Nova's casts say."""
        self._reporting: SetIndex[str, str] = SetIndex()
        self.aggregates: Mapping[str, Aggregates] = {}
        """The aggregates of every host name, as they were last set."""
        self._generation = 0
        """Rows are numbers, so what is noted of them is void when rows come, go or move."""
        self._changed_facts: list[int] = []
        """Rows whose reported facts or aggregates changed, in order, one that changed twice twice;
        goes on over generations, for the derived columns."""
        self._changed_use: list[int] = []
        """Rows whose reservations or instances changed."""
        self._derived: dict[Hashable, _Derived] = {}
        """By key, the least recently used one first, which goes when there are too many."""
        self._without_pending: HostTable | None = None
        self.limits: dict[int, dict[str, Any]] = {}
        """What filters have left on hosts, by row: :attr:`.HostState.limits`."""
        self.evaluation_cache: OrderedDict[Hashable, Any] = OrderedDict()
        """Equivalence class -> the evaluation of these hosts for its requests, the least recently
        used first. Kept here because it is valid as long as the rows stay where they are."""

    # Reading

    def __len__(self) -> int:
        return len(self.records)

    def column(self, name: str) -> Values:
        """The rows in use of a column; do not write to it."""
        values = self._in_use.get(name)
        if values is None:
            values = self._in_use[name] = self.columns[name][: len(self.records)]
        return values

    def state(self, row: int) -> HostState:
        return HostState(self, int(row)) if self._states is None else self._states[row]

    def states(self, rows: Iterable[int] | None = None) -> Iterator[HostState]:
        if self._states is None:
            self._states = [HostState(self, row) for row in range(len(self))]
        return iter(self._states) if rows is None else map(self._states.__getitem__, rows)

    def take_limits(self) -> dict[int, dict[str, Any]]:
        """What filters have left on hosts since the last call, by row; the table forgets it."""
        limits, self.limits = self.limits, {}
        return limits

    def take(self, rows: Rows) -> Hosts:
        return HostSubset(self, rows)

    def rows_of(self, hosts: Iterable[str], *, ignore_case: bool = False) -> Mask:
        mask = np.zeros(len(self), bool)
        for host in hosts:
            names = {host}
            if ignore_case:
                folded = host.lower()
                names = {folded, *self._in_other_case.of(folded)}
            for row in [row for name in names for row in self._named(name)]:
                mask[row] = True
        return mask

    def row_of(self, host_uuid: str) -> int | None:
        """The row of a host; None: the table does not have it."""
        return self._row_of.get(host_uuid)

    def find(self, host: str, nodename: str | None = None) -> list[HostRecord]:
        """The nodes of a host name, or the one with that node name."""
        records = (self.records[row] for row in sorted(self._named(host)))
        return [record for record in records if nodename is None or record.nodename == nodename]

    def _named(self, host: str) -> Collection[int]:
        """The rows of a host name: one for each of its nodes."""
        return self._by_name.of(host)

    # Derived columns and changes

    def derived(self, key: Hashable, of: OfOne, dtype: str, first: OfAll | None = None) -> Values:
        changed = self._changed_facts
        column = self._derived.pop(key, None)
        if column is None or len(column.values) != len(self.records):
            if first is None:
                values = np.fromiter(map(of, self.states()), dtype, len(self))
            else:
                values = first(self)
            column = _Derived(of, values, len(changed))
            if len(self._derived) >= _MAX_DERIVED:
                del self._derived[next(iter(self._derived))]
        elif column.seen < len(changed):
            for host in self.states(set(changed[column.seen :])):
                column.values[host.row] = column.of(host)
            column.seen = len(changed)
        self._derived[key] = column
        return column.values

    def by_aggregates(self) -> Groups:
        column = self._derived.get(_GROUPS)
        of = column.of if column else None
        # Every change of an aggregate makes a group; those that no host is in any more stay.
        if not isinstance(of, _GroupNumbers) or len(of.members) > 2 * self._capacity:
            self._derived.pop(_GROUPS, None)
            of = _GroupNumbers()
        return Groups(self.derived(_GROUPS, of, "i4"), of.members)

    def marks(self) -> Marks:
        """The present ends of the lists of changed rows."""
        return Marks(self._generation, len(self._changed_facts), len(self._changed_use))

    def touched_since(self, marks: Marks) -> tuple[set[int], set[int]] | None:
        """The rows whose facts changed, and those whose reservations or instances did.

        None when that is unknown: rows came, went or moved.
        """
        if marks.generation != self._generation:
            return None
        return set(self._changed_facts[marks.facts :]), set(self._changed_use[marks.use :])

    def _facts_changed(self, row: int) -> None:
        self._without_pending = None
        self._changed_facts.append(row)
        if len(self._changed_facts) > 4 * self._capacity:
            # A column that was not used for so long is cheaper to recompute.
            self._forget_facts()

    def _forget_facts(self) -> None:
        self._derived.clear()
        self._changed_facts.clear()
        self._begin_generation()

    def _begin_generation(self) -> None:
        """Rows came, went or moved: nothing that caches know of them by number holds."""
        self._without_pending = None
        self._generation += 1
        self._changed_use.clear()
        self.evaluation_cache.clear()

    # Aggregates

    def aggregates_of(self, host: str) -> Aggregates:
        """The aggregates of a host name."""
        return self.aggregates.get(host, ())

    def set_aggregates(
        self, by_host: Mapping[str, Aggregates], empty: Iterable[Aggregate] = ()
    ) -> None:
        """Replace the aggregates of all hosts; ``empty`` are aggregates that may have no host."""
        before, self.aggregates = self.aggregates, by_host
        known = {id(each): each.metadata for some in (*by_host.values(), empty) for each in some}
        self.metadata_items = frozenset(item for each in known.values() for item in each.items())
        self.metadata_keys = frozenset(key for key, _ in self.metadata_items)
        self._begin_generation()
        for host in before.keys() | by_host.keys():
            if before.get(host) != by_host.get(host):
                for row in self._named(host):
                    if self._states is not None:
                        self._states[row].aggregates = by_host.get(host, ())
                    self._facts_changed(row)

    # Hosts

    def put(self, record: HostRecord, version: int) -> None:
        """Insert or replace a host, less its live reservations."""
        row = self._row_of.get(record.uuid)
        if row is None:
            self.put_new([record], [version])
            return
        with self._former_aside({_node(record), _node(self.records[row])}):
            self._unname(row)
            self.records[row], self.versions[row] = record, version
            self._name(row)
            for column in COLUMNS:
                self.columns[column.name][row] = column.of(record)
            for name, values in self._announced.items():
                values[row] = self.columns[name][row]
            self._count_listed(row, self.reported_instances(record.host), 1)
            for reservation in self._reserved_for("host", record.uuid):
                self._count(row, reservation, 1)
        if self._states is not None:
            state = self._states[row]
            state.record, state.version = record, version
            state.aggregates = self.aggregates_of(record.host)
        self._facts_changed(row)

    def put_new(self, records: Sequence[HostRecord], versions: Iterable[int]) -> None:
        """Insert hosts that are not here yet, less their live reservations.

        Many at once are filled in column by column, which is several times as fast.
        """
        first = len(self.records)
        self._make_room(first + len(records))
        with self._former_aside({_node(record) for record in records}):
            self.records += records
            self.versions += versions
            rows = slice(first, len(self.records))
            for column in COLUMNS:
                facts = np.fromiter(map(column.of, records), column.dtype, len(records))
                self.columns[column.name][rows] = facts
            for name, values in self._announced.items():
                values[rows] = self.columns[name][rows]
            for row, record in enumerate(records, first):
                self._row_of[record.uuid] = row
                self._name(row)
                self._count_listed(row, self.reported_instances(record.host), 1)
                for reservation in self._reserved_for("host", record.uuid):
                    self._count(row, reservation, 1)
        if self._states is not None:
            self._states += [HostState(self, row) for row in range(first, len(self.records))]
        self._begin_generation()

    def remove(self, host_uuid: str) -> None:
        """Remove a host; the last row takes its place. An unknown one is ignored."""
        row = self._row_of.get(host_uuid)
        if row is None:
            return
        node = _node(self.records[row])
        with self._former_aside([node]):
            self._remove(row)
            if self._reserved_for("host", host_uuid):
                self._former_uuids.setdefault(node, set()).add(host_uuid)
        if self._states is not None:
            last = self._states.pop()
            if row < len(self._states):
                self._states[row] = last
                last.row = row
        self._forget_facts()

    def _make_room(self, rows: int) -> None:
        self._in_use.clear()
        if rows > self._capacity:
            self._capacity = max(rows, 2 * self._capacity)
            for columns in (self.columns, self._announced):
                for name, values in columns.items():
                    # The system gives memory to the new rows of zeros when they are written.
                    columns[name] = np.zeros(self._capacity, values.dtype)
                    columns[name][: len(values)] = values

    def _remove(self, row: int) -> None:
        last = len(self.records) - 1
        self._unname(row)
        del self._row_of[self.records[row].uuid]
        if row != last:
            self._unname(last)
            for values in (*self.columns.values(), *self._announced.values()):
                values[row] = values[last]
            self.records[row], self.versions[row] = self.records[last], self.versions[last]
            self._row_of[self.records[row].uuid] = row
            self._name(row)
        self.records.pop()
        self.versions.pop()
        self._in_use.clear()

    def _name(self, row: int) -> None:
        host = self.records[row].host
        self._by_name.add(host, row)
        if (folded := host.lower()) != host:
            self._in_other_case.add(folded, host)

    def _unname(self, row: int) -> None:
        host = self.records[row].host
        self._by_name.discard(host, row)
        if not self._named(host):
            self._in_other_case.discard(host.lower(), host)

    # Instances

    def reported_instances(self, host: str) -> Instances:
        """The instances that a host name reports, without those it has reservations for."""
        return self._reported.get(host, {})

    def hosts_reporting(self, instance_uuid: str) -> Collection[str]:
        """The host names that report an instance: two while it migrates."""
        return self._reporting.of(instance_uuid)

    def instances_of(self, host: str) -> Instances:
        """The instances that are on a host name or have a reservation there."""
        reserved = {
            (uuid := reservation.instance_uuid): {"uuid": uuid, "host": host}
            for row in self._named(host)
            for reservation in self.reservations_of_host(self.records[row].uuid)
        }
        return {**reserved, **self._reported.get(host, {})}

    def count_instances(self, uuids: Iterable[str]) -> Values:
        counts = np.zeros(len(self), "i8")
        for uuid in set(uuids):
            hosts: Collection[str] = self._reporting.of(uuid)
            if reservations := self._reserved_for("instance", uuid):
                hosts = {reservation.host for reservation in reservations}.union(hosts)
            for host in hosts:
                for row in self._named(host):
                    counts[row] += 1
        return counts

    def set_instances(self, host: str, instances: Instances | None) -> None:
        """Replace the instances that a host name reports; None or empty: it has none."""
        self._without_pending = None
        self._changed_use += self._named(host)
        self._count_list(host, -1)
        for uuid in self._reported.pop(host, {}):
            self._reporting.discard(uuid, host)
        if instances:
            self._reported[host] = instances
            for uuid in instances:
                self._reporting.add(uuid, host)
        self._count_list(host, 1)

    def _count_list(self, host: str, times: int) -> None:
        """Count what a host name lists; ``times`` is -1 to take it out, but for reservations."""
        for row in self._named(host):
            self._count_listed(row, self.reported_instances(host), times)
            for reservation in self.reservations_of_host(self.records[row].uuid):
                self._count_listed(row, [reservation.instance_uuid], -times, reservation.is_pending)

    def _count_listed(
        self, row: int, uuids: Iterable[str], times: int, is_pending: bool = False
    ) -> None:
        """Count instances if the host lists them; a reserved one is counted by its reservation."""
        record = self.records[row]
        listed = self.reported_instances(record.host)
        facts = (listed[uuid] for uuid in uuids if uuid in listed)
        count_listed(self._counting(is_pending), row, record, facts, times)

    def _counting(self, is_pending: bool) -> Collection[dict[str, Values]]:
        """The columns that take in what is pending, or what is not."""
        return (self.columns,) if is_pending else (self.columns, self._announced)

    # Reservations

    @property
    def num_reservations(self) -> int:
        """How many claims and reservations there are."""
        return len(self._reserved)

    def ids_of_instance(self, instance_uuid: str) -> Collection[str]:
        """The ids of the claims and reservations for an instance."""
        return self._reserved_by.of(("instance", instance_uuid))

    def reservations_of_instance(self, instance_uuid: str) -> list[ClaimOrReservation]:
        """The claims and reservations for an instance."""
        return self._reserved_for("instance", instance_uuid)

    def reservations_of_provider(self, provider: str) -> list[ClaimOrReservation]:
        return self._reserved_for("provider", provider)

    def reservations_of_host(self, host_uuid: str) -> list[ClaimOrReservation]:
        """The claims and reservations on a host, also those under former uuids of its node."""
        reservations = self._reserved_for("host", host_uuid)
        row = self._row_of.get(host_uuid) if self._former_uuids else None
        if row is not None:
            former = self._former(_node(self.records[row]))
            reservations += [each for each in former if self.row_of_reservation(each) == row]
        return reservations

    def row_of_reservation(self, reservation: ClaimOrReservation) -> int | None:
        """The row of its host; None: there is none.

        A node that was created again has another uuid, and what is reserved under its former one.
        """
        row = self._row_of.get(reservation.host_uuid)
        if row is not None:
            return row
        rows = (
            (self.records[row].uuid, row)
            for row in self._named(reservation.host)
            if self.records[row].nodename == reservation.nodename
        )
        return min(rows, default=("", None))[1]  # the same one, wherever rows move

    def consume(self, reservation: ClaimOrReservation) -> ClaimOrReservation | None:
        """Take a claim or reservation from its host; returns what it replaces, of the same id.

        It may come before its host, and is taken when the host is put.
        """
        reservation_id = reservation.id
        before = self._reserved.get(reservation_id)
        if before is not None:
            if self._take_alike(before, reservation):
                self._reserved[reservation_id] = reservation
                return before
            self.give_back(reservation_id)
        self._file(reservation_id, reservation)
        self._take(reservation, 1)
        return before

    def give_back(self, reservation_id: str) -> None:
        """Give back what a claim or reservation took. An unknown one is ignored."""
        reservation = self._reserved.pop(reservation_id, None)
        if reservation is not None:
            self._num_pending -= reservation.is_pending
            for key in _keys(reservation):
                self._reserved_by.discard(key, reservation_id)
            self._take(reservation, -1)

    def without_pending(self) -> "HostTable | None":
        """These hosts as if all pending resources were given back; None: none are pending.

        The table that is returned shares what it can with this one: read it, and do so before this
        one is changed.
        """
        if not self._num_pending:
            return None
        if self._without_pending is None:
            table = copy.copy(self)
            table.columns = self.columns | {name: v.copy() for name, v in self._announced.items()}
            table._in_use, table._states, table._changed_use, table.limits = {}, None, [], {}
            table._reserved, table._reserved_by, table._num_pending = {}, SetIndex(), 0
            for reservation_id, reservation in self._reserved.items():
                if not reservation.is_pending:
                    table._file(reservation_id, reservation)
            table.evaluation_cache = OrderedDict()
            self._without_pending = table
        self._without_pending.now_s = self.now_s
        self._without_pending.asking = self.asking
        return self._without_pending

    def _take_alike(self, one: ClaimOrReservation, other: ClaimOrReservation) -> bool:
        """Whether two of the same id take the same from the host."""
        if one.is_pending != other.is_pending or one.resources != other.resources:
            return False
        row = self.row_of_reservation(one)
        # Without reported providers what it takes depends on its resources alone.
        if row is None or not self.records[row].resource_providers:
            return True
        return self._provided(row, one) == self._provided(row, other)

    def _provided(self, row: int, reservation: ClaimOrReservation) -> Provided:
        """What it takes of the host's providers beyond the usages that the host reports."""
        record, taken = self.records[row], reservation.resources
        if not record.resource_providers:
            return Provided(of_tree=taken.providers)
        return provided(record, reservation.instance_uuid, taken, reservation.created_at_s)

    def _reserved_for(self, kind: str, key: str) -> list[ClaimOrReservation]:
        ids = self._reserved_by.of((kind, key))
        return [self._reserved[id] for id in ids] if ids else []

    def _file(self, reservation_id: str, reservation: ClaimOrReservation) -> None:
        """Add one whose id, which a claim computes on every access, is not there yet."""
        self._reserved[reservation_id] = reservation
        self._num_pending += reservation.is_pending
        for key in _keys(reservation):
            self._reserved_by.add(key, reservation_id)

    def _take(self, reservation: ClaimOrReservation, times: int) -> None:
        if not reservation.is_pending:
            self._without_pending = None
        if self._row_of.get(reservation.host_uuid) is None:
            self._former_uuids.setdefault(_node(reservation), set()).add(reservation.host_uuid)
        row = self.row_of_reservation(reservation)
        if row is not None:
            self._take_from(row, reservation, times)

    def _take_from(self, row: int, reservation: ClaimOrReservation, times: int) -> None:
        self._count(row, reservation, times)
        self._changed_use.append(row)
        if len(self._changed_use) > _MAX_USED:
            self._begin_generation()

    def _count(self, row: int, reservation: ClaimOrReservation, times: int) -> None:
        """Take from a row; ``times`` is -1 to give back."""
        resources = reservation.resources
        has_providers = resources.providers or self.records[row].resource_providers
        uses = self._provided(row, reservation) if has_providers else None
        for columns in self._counting(reservation.is_pending):
            take(columns, row, resources, times)
            if uses is not None:
                take_provided(columns, row, uses, times)
        if (uuid := reservation.instance_uuid) in self._reporting:
            self._count_listed(row, [uuid], -times, reservation.is_pending)

    # Reservations under former uuids

    def _former(self, node: _Node) -> list[ClaimOrReservation]:
        """The reservations of a node under uuids that have no row."""
        return [
            reservation
            for uuid in sorted(self._former_uuids.get(node, ()))
            if self._row_of.get(uuid) is None
            for reservation in self._reserved_for("host", uuid)
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
        for reservation in [former for node in nodes for former in self._former(node)]:
            row = self.row_of_reservation(reservation)
            if row is not None:
                self._take_from(row, reservation, times)


def _node(of: HostRecord | ClaimOrReservation) -> _Node:
    return of.host, of.nodename


def _keys(reservation: ClaimOrReservation) -> list[tuple[str, str]]:
    keys = [("host", reservation.host_uuid), ("instance", reservation.instance_uuid)]
    if taken := reservation.resources.providers:
        keys += {("provider", use.provider) for use in taken} - {("provider", keys[0][1])}
    return keys
