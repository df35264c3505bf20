"""One cluster's hosts in columns, *less everything already promised*.

Applying a promise consumes its row, ending it gives the same amounts back, and a new report
rebuilds the row from the report and the live promises. Only the owner of a table changes it, and
never while judgement looks at it.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.columns import COLUMNS, CONSUMED, Mask, Rows, Values, take
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.hosts import Aggregates, Groups, Hosts, HostState, Promise
from scheduler_worker.model.taken_hosts import TakenHosts

_MAX_DERIVED = 512
_MEMBERSHIPS = "aggregates"
_MAX_TOUCHED = 65_536
_FIRST_CAPACITY = 64


class Marks(NamedTuple):
    """How much of a table's changes somebody has seen."""

    generation: int
    changed: int
    used: int


class _Derived:
    """A derived column: its values, how to make one, how much of the change list it has seen."""

    __slots__ = ("of", "seen", "values")

    def __init__(self, of: Callable[[HostState], Any], values: Values, seen: int) -> None:
        self.of = of
        self.values = values
        self.seen = seen


class _Memberships:
    """Numbers the hosts' aggregates, the same for hosts that are in the same ones."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self.found: list[Aggregates] = []

    def __call__(self, host: HostState) -> int:
        some = host.aggregates
        # By identity, which is quick: two versions of an aggregate are two. They are kept alive.
        number = self._numbers.setdefault(tuple(map(id, some)), len(self.found))
        if number == len(self.found):
            self.found.append(some)
        return number


class HostTable(Hosts):
    """One cluster's hosts as this process knows them, promises consumed."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.metadata_keys = frozenset()
        self.metadata_items = frozenset()
        self.records: list[HostRecord] = []
        self.versions: list[int] = []
        self._columns = {c.name: np.zeros(_FIRST_CAPACITY, c.dtype) for c in COLUMNS}
        self._settled = {name: self._columns[name].copy() for name in CONSUMED}
        """What promises change, without the pending ones."""
        self._without_pending: HostTable | None = None
        self._num_pending = 0
        self._capacity = _FIRST_CAPACITY
        self._shown: dict[str, Values] = {}
        """The parts of the columns that are in use; forgotten when the number of rows changes."""
        self._row_of: dict[str, int] = {}
        self._rows_of_host: dict[str, set[int]] = {}
        self._rows_of_folded: dict[str, set[int]] = {}
        self._aggregates: Mapping[str, tuple[Aggregate, ...]] = {}
        self._instances: dict[str, dict[str, dict[str, Any]]] = {}
        self._hosts_of_instance: dict[str, set[str]] = {}
        self._promises: dict[str, Promise] = {}
        self._promises_of_host: dict[str, set[str]] = {}
        self._promises_of_instance: dict[str, set[str]] = {}
        self._derived: dict[Hashable, _Derived] = {}
        self._changed_rows: list[int] = []
        """Rows whose facts changed, in order."""
        self._used_rows: list[int] = []
        """Rows whose promises or instances changed, in order."""
        self._generation = 0
        self.kept: OrderedDict[Hashable, Any] = OrderedDict()
        """What judgement keeps about these hosts from one request to the next."""

    # Reading

    def __len__(self) -> int:
        return len(self.records)

    def column(self, name: str) -> Values:
        values = self._shown.get(name)
        if values is None:
            values = self._shown[name] = self._columns[name][: len(self.records)]
        return values

    def state(self, row: int) -> HostState:
        return HostState(self, int(row))

    def states(self, rows: Iterable[int] | None = None) -> Iterator[HostState]:
        lists: dict[str, list[Any]] = {}
        for row in range(len(self)) if rows is None else rows:
            yield HostState(self, int(row), lists)

    def take(self, rows: Rows) -> Hosts:
        return TakenHosts(self, rows)

    def rows_of(self, hosts: Iterable[str], *, ignore_case: bool = False) -> Mask:
        mask = np.zeros(len(self), bool)
        index = self._rows_of_folded if ignore_case else self._rows_of_host
        for host in hosts:
            for row in index.get(host.lower() if ignore_case else host, ()):
                mask[row] = True
        return mask

    def row_of(self, host_uuid: str) -> int | None:
        """The row of a host, None when the table does not have it."""
        return self._row_of.get(host_uuid)

    def find(self, host: str, nodename: str | None = None) -> list[HostRecord]:
        """The nodes of a host name, or the one with that node name."""
        found = (self.records[row] for row in sorted(self._rows_of_host.get(host, ())))
        return [record for record in found if nodename is None or record.nodename == nodename]

    @property
    def aggregates(self) -> Mapping[str, tuple[Aggregate, ...]]:
        """The membership of all hosts, as it was last set."""
        return self._aggregates

    def aggregates_of(self, host: str) -> tuple[Aggregate, ...]:
        """The aggregates a host name is in."""
        return self._aggregates.get(host, ())

    def reported_instances(self, host: str) -> Mapping[str, Mapping[str, Any]]:
        """Instances that are known to be on a host, without promised ones."""
        return self._instances.get(host, {})

    def instances_of(self, host: str) -> Mapping[str, Mapping[str, Any]]:
        """Instance uuid -> facts, for the instances on a host name and those promised to it."""
        found: dict[str, Mapping[str, Any]] = {}
        for row in self._rows_of_host.get(host, ()):
            for promise_id in self._promises_of_host.get(self.records[row].uuid, ()):
                uuid = self._promises[promise_id].instance_uuid
                found[uuid] = {"uuid": uuid, "host": host}
        found.update(self._instances.get(host, {}))
        return found

    def count_instances(self, uuids: Iterable[str]) -> Values:
        counts = np.zeros(len(self), "i8")
        for uuid in set(uuids):
            for host in self._hosts_with(uuid):
                for row in self._rows_of_host.get(host, ()):
                    counts[row] += 1
        return counts

    def _hosts_with(self, instance_uuid: str) -> set[str]:
        promised = self._promises_of_instance.get(instance_uuid)
        reported = self._hosts_of_instance.get(instance_uuid, set())
        if not promised:
            return reported
        return reported | {self._promises[each].host for each in promised}

    def promises(self) -> Iterator[Promise]:
        """Every live promise, in no particular order."""
        return iter(self._promises.values())

    def promises_of_instance(self, instance_uuid: str) -> list[Promise]:
        """The live promises for an instance."""
        return [self._promises[id] for id in self._promises_of_instance.get(instance_uuid, ())]

    def promises_of_host(self, host_uuid: str) -> list[Promise]:
        """The live promises on a host."""
        return [self._promises[id] for id in self._promises_of_host.get(host_uuid, ())]

    @property
    def num_promises(self) -> int:
        """How many promises live, claims included."""
        return len(self._promises)

    def without_pending(self) -> HostTable | None:
        """These hosts as they would be if all pending promises were given back; None: none pend.

        The answer shares what it can with this table: it is for looking, and only until this one
        is changed.
        """
        if not self._num_pending:
            return None
        if self._without_pending is None:
            self._without_pending = self._copied_without_pending()
        self._without_pending.now_s = self.now_s
        return self._without_pending

    def _copied_without_pending(self) -> HostTable:
        table = copy.copy(self)
        settled = {name: values.copy() for name, values in self._settled.items()}
        table._columns = self._columns | settled
        table._shown, table.kept, table._used_rows = {}, OrderedDict(), []
        table._promises, table._promises_of_host, table._promises_of_instance = {}, {}, {}
        table._num_pending = 0
        for promise_id, each in self._promises.items():
            if not each.is_pending:
                table._enter(promise_id, each)
        return table

    def derived(
        self,
        key: Hashable,
        of: Callable[[HostState], Any],
        dtype: str,
        first: Callable[[Hosts], Values] | None = None,
    ) -> Values:
        entry = self._derived.pop(key, None)
        if entry is None or len(entry.values) != len(self):
            if first is None:
                values = np.fromiter((of(host) for host in self.states()), dtype, len(self))
            else:
                values = first(self)
            entry = _Derived(of, values, len(self._changed_rows))
            if len(self._derived) >= _MAX_DERIVED:
                del self._derived[next(iter(self._derived))]
        elif entry.seen < len(self._changed_rows):
            for host in self.states(set(self._changed_rows[entry.seen :])):
                entry.values[host.row] = entry.of(host)
            entry.seen = len(self._changed_rows)
        self._derived[key] = entry
        return entry.values

    def by_aggregates(self) -> Groups:
        entry = self._derived.get(_MEMBERSHIPS)
        of = entry.of if entry else None
        if not isinstance(of, _Memberships) or len(of.found) > 2 * self._capacity:
            self._derived.pop(_MEMBERSHIPS, None)
            of = _Memberships()
        return Groups(self.derived(_MEMBERSHIPS, of, "i4"), of.found)

    def marks(self) -> Marks:
        """Where the lists of touched rows end now."""
        return Marks(self._generation, len(self._changed_rows), len(self._used_rows))

    def touched_since(self, marks: Marks) -> tuple[set[int], set[int]] | None:
        """The rows whose facts changed, and those whose promises or instances changed.

        None when that cannot be told: rows came, went or moved.
        """
        if marks.generation != self._generation:
            return None
        return set(self._changed_rows[marks.changed :]), set(self._used_rows[marks.used :])

    # Changing: by the owner only

    def put(self, record: HostRecord, version: int) -> None:
        """Insert or replace a host; its live promises stay consumed."""
        row = self._row_of.get(record.uuid)
        if row is None:
            row = self._append(record)
        elif (self.records[row].host, self.records[row].cluster) != (record.host, record.cluster):
            self._unname(row)
            self.records[row] = record
            self._name(row)
        self.records[row] = record
        self.versions[row] = version
        self._fill(row)
        self._touch(row)

    def remove(self, host_uuid: str) -> None:
        """Forget a host; the last row takes its place. An unknown one is fine."""
        row = self._row_of.get(host_uuid)
        if row is None:
            return
        last = len(self.records) - 1
        self._unname(row)
        del self._row_of[host_uuid]
        if row != last:
            self._unname(last)
            for values in (*self._columns.values(), *self._settled.values()):
                values[row] = values[last]
            self.records[row] = self.records[last]
            self.versions[row] = self.versions[last]
            self._row_of[self.records[row].uuid] = row
            self._name(row)
        self.records.pop()
        self.versions.pop()
        self._shown.clear()
        self._forget_derived()

    def set_aggregates(
        self, by_host: Mapping[str, tuple[Aggregate, ...]], empty: Iterable[Aggregate] = ()
    ) -> None:
        """Replace the membership of all hosts; ``empty`` are aggregates that may have none."""
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
                for row in self._rows_of_host.get(host, ()):
                    self._touch(row)

    def set_instances(self, host: str, instances: dict[str, dict[str, Any]] | None) -> None:
        """Replace the instances that are known to be on a host name."""
        self._without_pending = None
        self._used_rows.extend(self._rows_of_host.get(host, ()))
        for uuid in self._instances.pop(host, {}):
            self._hosts_of_instance[uuid].discard(host)
            if not self._hosts_of_instance[uuid]:
                del self._hosts_of_instance[uuid]
        if instances:
            self._instances[host] = instances
            for uuid in instances:
                self._hosts_of_instance.setdefault(uuid, set()).add(host)

    def promise(self, promise: Promise) -> Promise | None:
        """Consume a claim or a reservation; answers the one of the same id that it replaces."""
        promise_id = promise.id
        before = self._promises.get(promise_id)
        if before is not None:
            if (before.resources, before.is_pending) == (promise.resources, promise.is_pending):
                self._promises[promise_id] = promise  # the id tells instance and host
                return before
            self.end_promise(promise_id)
        self._enter(promise_id, promise)
        self._consume(promise, 1)
        return before

    def _enter(self, promise_id: str, promise: Promise) -> None:
        self._promises[promise_id] = promise
        self._num_pending += promise.is_pending
        self._promises_of_host.setdefault(promise.host_uuid, set()).add(promise_id)
        self._promises_of_instance.setdefault(promise.instance_uuid, set()).add(promise_id)

    def end_promise(self, promise_id: str) -> None:
        """Give back what a promise consumed. An unknown one is fine."""
        promise = self._promises.pop(promise_id, None)
        if promise is None:
            return
        self._num_pending -= promise.is_pending
        for index, key in (
            (self._promises_of_host, promise.host_uuid),
            (self._promises_of_instance, promise.instance_uuid),
        ):
            index[key].discard(promise_id)
            if not index[key]:
                del index[key]
        self._consume(promise, -1)

    def _consume(self, promise: Promise, times: int) -> None:
        """Take a promise's resources from its host; ``times`` is -1 to give them back."""
        if not promise.is_pending:
            self._without_pending = None
        row = self._row_of.get(promise.host_uuid)
        if row is None:
            return
        take(self._columns, row, promise.resources, times)
        if not promise.is_pending:
            take(self._settled, row, promise.resources, times)
        self._used_rows.append(row)
        if len(self._used_rows) > _MAX_TOUCHED:
            self._begin_generation()

    def _fill(self, row: int) -> None:
        record = self.records[row]
        for column in COLUMNS:
            self._columns[column.name][row] = column.of(record)
        for name, values in self._settled.items():
            values[row] = self._columns[name][row]
        for promise in self.promises_of_host(record.uuid):
            self._consume(promise, 1)

    def _append(self, record: HostRecord) -> int:
        row = len(self.records)
        if row == self._capacity:
            self._capacity *= 2
            for columns in (self._columns, self._settled):
                for name, values in columns.items():
                    columns[name] = np.resize(values, self._capacity)
        self.records.append(record)
        self.versions.append(0)
        self._shown.clear()
        self._begin_generation()
        self._row_of[record.uuid] = row
        self._name(row)
        return row

    def _name(self, row: int) -> None:
        host = self.records[row].host
        self._rows_of_host.setdefault(host, set()).add(row)
        self._rows_of_folded.setdefault(host.lower(), set()).add(row)

    def _unname(self, row: int) -> None:
        host = self.records[row].host
        for index, key in ((self._rows_of_host, host), (self._rows_of_folded, host.lower())):
            index[key].discard(row)
            if not index[key]:
                del index[key]

    def _touch(self, row: int) -> None:
        self._without_pending = None
        self._changed_rows.append(row)
        if len(self._changed_rows) > 4 * self._capacity:
            self._forget_derived()

    def _forget_derived(self) -> None:
        self._derived.clear()
        self._changed_rows.clear()
        self._begin_generation()

    def _begin_generation(self) -> None:
        """What was kept about rows is worth nothing any more."""
        self._without_pending = None
        self._generation += 1
        self._used_rows.clear()
        self.kept.clear()
