"""Hosts as judgement sees them: columns by name, rows as :class:`HostState`, derived columns.

They are read-only. Who owns them, and how they change, is in ``host_table.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from scheduler_worker.model.aggregates import Aggregate, lowest, raw_values
from scheduler_worker.model.claims import PendingResource
from scheduler_worker.model.columns import COLUMN_NAMES, COLUMNS, Mask, Rows, Values
from scheduler_worker.model.host_records import HostRecord

if TYPE_CHECKING:
    from scheduler_worker.model.host_table import HostTable

__all__ = ["Aggregates", "Groups", "HostState", "Hosts", "Mask", "Promise", "Rows", "Values"]

Aggregates = tuple[Aggregate, ...]
"""What a host is in, in order of the ids."""


class Promise(Protocol):
    """What a table needs of a claim or a reservation."""

    @property
    def id(self) -> str: ...
    @property
    def instance_uuid(self) -> str: ...
    @property
    def host_uuid(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def resources(self) -> PendingResource: ...
    @property
    def is_pending(self) -> bool: ...


class Groups(NamedTuple):
    """Hosts by the aggregates they are in, which many of them share."""

    numbers: Values
    """The group of each host."""
    members: Sequence[Aggregates]
    """The aggregates of each group; there may be groups without hosts."""

    def spread(self, judge: Callable[[Aggregates], bool]) -> Mask:
        """Judge each group once, for all hosts in it."""
        verdicts = np.fromiter(map(judge, self.members), bool, len(self.members))
        mask: Mask = verdicts[self.numbers]
        return mask


class Hosts:
    """Some hosts of one table, in columns: all of them, or a :meth:`take`."""

    now_s: float
    """The moment at which these hosts are judged, by the store's clock."""
    metadata_keys: frozenset[str]
    """Every metadata key that some aggregate carries."""
    metadata_items: frozenset[tuple[str, str]]
    """Every metadata key and value that some aggregate carries, one without hosts included."""

    def __len__(self) -> int:
        raise NotImplementedError

    def column(self, name: str) -> Values:
        """The named column of :data:`COLUMNS`; do not write to it."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Values:
        if name not in COLUMN_NAMES:
            raise AttributeError(f"hosts have no column {name!r}; see COLUMNS")
        return self.column(name)

    def derived(
        self,
        key: Hashable,
        of: Callable[[HostState], Any],
        dtype: str,
        first: Callable[[Hosts], Values] | None = None,
    ) -> Values:
        """A column computed from each host's *reported* facts and aggregates, kept up to date.

        ``of`` is called once for each host and again only for hosts whose facts changed, so it may
        read everything except what promises consume (free amounts, use, counts, instances).
        ``key`` names the computation, parameters included. ``first`` computes the same for all
        hosts of the table, where that is quicker than one by one.
        """
        raise NotImplementedError

    def by_aggregates(self) -> Groups:
        """The hosts in groups that are in the same aggregates."""
        raise NotImplementedError

    def state(self, row: int) -> HostState:
        """One host."""
        raise NotImplementedError

    def states(self, rows: Iterable[int] | None = None) -> Iterator[HostState]:
        """Many hosts, all by default; cheaper for each than :meth:`state`."""
        raise NotImplementedError

    def count_instances(self, uuids: Iterable[str]) -> Values:
        """How many of the given instances are on (or promised to) each host."""
        raise NotImplementedError

    def rows_of(self, hosts: Iterable[str], *, ignore_case: bool = False) -> Mask:
        """Which rows belong to a host of one of these names."""
        raise NotImplementedError

    def take(self, rows: Rows) -> Hosts:
        """These rows only; columns are gathered when they are first asked for."""
        raise NotImplementedError

    def aggregate_number(self, key: str, default: float) -> Values:
        """Per host the smallest value of a metadata key over its aggregates, else ``default``."""
        return self.derived(
            ("aggregate_number", key, default),
            lambda host: lowest(raw_values(host.aggregates, key), default, float),
            "f8",
        )


class HostState:
    """One host, with Nova's attribute names; reads its table and cannot change it.

    ``limits`` is the one exception: filters may leave oversubscription limits in it, which go with
    the selection. Column values are plain Python numbers.
    """

    __slots__ = ("_columns", "_lists", "_table", "limits", "row")

    def __init__(
        self, table: HostTable, row: int, lists: dict[str, list[Any]] | None = None
    ) -> None:
        self._table = table
        self._columns = table._columns
        self._lists = lists
        self.row = row
        self.limits: dict[str, Any] = {}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Every column is a property, see :func:`_column_of_a_row`."""

    @property
    def table(self) -> Hosts:
        """The hosts this one is a row of."""
        return self._table

    @property
    def record(self) -> HostRecord:
        """Everything the host reported."""
        return self._table.records[self.row]

    @property
    def version(self) -> int:
        """The version of the host's record that this row shows."""
        return self._table.versions[self.row]

    @property
    def now_s(self) -> float:
        return self._table.now_s

    @property
    def uuid(self) -> str:
        return self.record.uuid

    @property
    def host(self) -> str:
        return self.record.host

    @property
    def nodename(self) -> str:
        return self.record.nodename

    @property
    def cluster(self) -> str:
        return self.record.cluster

    @property
    def cell_uuid(self) -> str | None:
        return self.record.cell_uuid

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        return self._table.aggregates_of(self.host)

    @property
    def instances(self) -> Mapping[str, Mapping[str, Any]]:
        """Instance uuid -> what is known of it, promised instances included."""
        return self._table.instances_of(self.host)

    def promises_of(self, instance_uuid: str) -> list[Promise]:
        """What is promised to an instance on this host."""
        found = self._table.promises_of_instance(instance_uuid)
        return [each for each in found if each.host_uuid == self.uuid]

    @property
    def stats(self) -> Mapping[str, str]:
        return self.record.stats

    @property
    def metrics(self) -> Sequence[Mapping[str, Any]]:
        return self.record.metrics

    @property
    def traits(self) -> tuple[str, ...]:
        return self.record.traits

    @property
    def service(self) -> Mapping[str, Any]:
        return self.record.service

    @property
    def cpu_info(self) -> str | dict[str, Any] | None:
        return self.record.cpu_info

    @property
    def supported_instances(self) -> tuple[tuple[str, str, str], ...]:
        return self.record.supported_hv_specs

    @property
    def host_ip(self) -> str | None:
        return self.record.host_ip

    @property
    def hypervisor_type(self) -> str | None:
        return self.record.hypervisor_type

    @property
    def hypervisor_hostname(self) -> str | None:
        return self.record.hypervisor_hostname

    @property
    def pci_device_pools(self) -> tuple[dict[str, Any], ...]:
        return self.record.pci_device_pools

    @property
    def updated(self) -> float | None:
        return self.record.updated_at


def _column_of_a_row(name: str) -> property:
    def value(host: HostState) -> Any:
        if host._lists is None:
            return host._columns[name].item(host.row)
        values = host._lists.get(name)
        if values is None:
            values = host._lists[name] = host._table.column(name).tolist()
        return values[host.row]

    return property(value)


for _column in COLUMNS:
    setattr(HostState, _column.name, _column_of_a_row(_column.name))
