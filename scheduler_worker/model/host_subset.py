"""Some rows of a table of hosts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from scheduler_worker.model.columns import Mask, Rows, Values
from scheduler_worker.model.hosts import ClaimOrReservation, Groups, Hosts, HostState

if TYPE_CHECKING:
    from scheduler_worker.model.host_table import HostTable


class HostSubset(Hosts):
    """Some rows of a table; gathers each column at most once."""

    def __init__(self, table: HostTable, rows: Rows) -> None:
        self.now_s = table.now_s
        self.metadata_keys = table.metadata_keys
        self.metadata_items = table.metadata_items
        self._table = table
        self._rows = rows
        self._gathered: dict[str, Values] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, name: str) -> Values:
        values = self._gathered.get(name)
        if values is None:
            values = self._gathered[name] = self._table.column(name)[self._rows]
        return values

    def derived(
        self,
        key: Hashable,
        of: Callable[[HostState], Any],
        dtype: str,
        first: Callable[[Hosts], Values] | None = None,
    ) -> Values:
        gathered: Values = self._table.derived(key, of, dtype, first)[self._rows]
        return gathered

    def by_aggregates(self) -> Groups:
        numbers, members = self._table.by_aggregates()
        return Groups(numbers[self._rows], members)

    def state(self, row: int) -> HostState:
        return self._table.state(int(self._rows[row]))

    def states(self, rows: Iterable[int] | None = None) -> Iterator[HostState]:
        mine = self._rows if rows is None else self._rows[list(rows)]
        return self._table.states(mine.tolist())

    def take(self, rows: Rows) -> Hosts:
        return HostSubset(self._table, self._rows[rows])

    def rows_of(self, hosts: Iterable[str], *, ignore_case: bool = False) -> Mask:
        mask: Mask = self._table.rows_of(hosts, ignore_case=ignore_case)[self._rows]
        return mask

    def reservations_of_provider(self, provider: str) -> list[ClaimOrReservation]:
        return self._table.reservations_of_provider(provider)

    def count_instances(self, uuids: Iterable[str]) -> Values:
        counts: Values = self._table.count_instances(uuids)[self._rows]
        return counts
