"""The rows of a host table: each host's record, and its numeric facts in columns.

A report fills a row, reservations take from it. The columns that reservations take from
(:data:`~.columns.CONSUMED`) are kept twice: less every reservation, and less only those whose
instances were announced. The second is what hosts would have if all pending resources were given
back: to keep it up to date costs a few assignments, to compute it a pass over all rows.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable

import numpy as np

from scheduler_worker.model.columns import COLUMNS, CONSUMED, Values, take, take_provided
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.hosts import ClaimOrReservation
from scheduler_worker.model.inventories import Provided, provided
from scheduler_worker.model.set_index import SetIndex

_FIRST_CAPACITY = 64


class HostRows:
    """Records and columns in row order, with indexes by uuid and by host name."""

    def __init__(self) -> None:
        self.records: list[HostRecord] = []
        self.versions: list[int] = []
        """The version of each record in the store."""
        self.capacity = _FIRST_CAPACITY
        """How many rows the arrays have room for; they are doubled when it is reached."""
        self.columns = {c.name: np.zeros(_FIRST_CAPACITY, c.dtype) for c in COLUMNS}
        """Less every reservation. Longer than the rows in use, see :meth:`column`."""
        self._announced = {name: self.columns[name].copy() for name in CONSUMED}
        """Less the reservations whose instances were announced."""
        self._in_use: dict[str, Values] = {}
        """Views of the rows in use; dropped when their number changes."""
        self._row_of: dict[str, int] = {}
        self._by_name: SetIndex[str, int] = SetIndex()
        self._by_folded_name: SetIndex[str, int] = SetIndex()

    def column(self, name: str) -> Values:
        """The rows in use of a column."""
        values = self._in_use.get(name)
        if values is None:
            values = self._in_use[name] = self.columns[name][: len(self.records)]
        return values

    def row_of(self, host_uuid: str) -> int | None:
        """The row of a host; None: the table does not have it."""
        return self._row_of.get(host_uuid)

    def named(self, host: str, *, ignore_case: bool = False) -> Collection[int]:
        """The rows of a host name: one for each of its nodes."""
        if ignore_case:
            return self._by_folded_name.get(host.lower(), ())
        return self._by_name.get(host, ())

    def put(self, record: HostRecord, version: int) -> int:
        """Store the record and fill its columns, as if nothing were reserved; returns the row."""
        row = self._row_of.get(record.uuid)
        if row is None:
            row = self._append(record)
        elif self.records[row].host != record.host:
            self._unname(row)
            self.records[row] = record
            self._name(row)
        self.records[row] = record
        self.versions[row] = version
        for column in COLUMNS:
            self.columns[column.name][row] = column.of(record)
        for name, values in self._announced.items():
            values[row] = self.columns[name][row]
        return row

    def remove(self, row: int) -> None:
        """Delete a row; the last row takes its place."""
        last = len(self.records) - 1
        self._unname(row)
        del self._row_of[self.records[row].uuid]
        if row != last:
            self._unname(last)
            for values in (*self.columns.values(), *self._announced.values()):
                values[row] = values[last]
            self.records[row] = self.records[last]
            self.versions[row] = self.versions[last]
            self._row_of[self.records[row].uuid] = row
            self._name(row)
        self.records.pop()
        self.versions.pop()
        self._in_use.clear()

    def take(self, row: int, reservation: ClaimOrReservation, times: int) -> None:
        """Take what a claim or reservation reserves; ``times`` is -1 to give it back."""
        resources, uses = reservation.resources, self.provided(row, reservation)
        take(self.columns, row, resources, times)
        take_provided(self.columns, row, uses, times)
        if not reservation.is_unannounced:
            take(self._announced, row, resources, times)
            take_provided(self._announced, row, uses, times)

    def provided(self, row: int, reservation: ClaimOrReservation) -> Provided:
        """What it takes of the host's providers beyond the usages that the host reports."""
        return provided(
            self.records[row],
            reservation.instance_uuid,
            reservation.resources,
            reservation.created_at_s,
        )

    def without_unannounced(self) -> HostRows:
        """The same rows less announced reservations only; shares everything but these columns."""
        rows = copy.copy(self)
        rows.columns = self.columns | {name: each.copy() for name, each in self._announced.items()}
        rows._in_use = {}
        return rows

    def _append(self, record: HostRecord) -> int:
        row = len(self.records)
        if row == self.capacity:
            self.capacity *= 2
            for columns in (self.columns, self._announced):
                for name, values in columns.items():
                    columns[name] = np.resize(values, self.capacity)
        self.records.append(record)
        self.versions.append(0)
        self._in_use.clear()
        self._row_of[record.uuid] = row
        self._name(row)
        return row

    def _name(self, row: int) -> None:
        for index, name in self._names(row):
            index.add(name, row)

    def _unname(self, row: int) -> None:
        for index, name in self._names(row):
            index.discard(name, row)

    def _names(self, row: int) -> Iterable[tuple[SetIndex[str, int], str]]:
        host = self.records[row].host
        return (self._by_name, host), (self._by_folded_name, host.lower())
