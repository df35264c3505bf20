"""Hosts as filters and weighers see them: columns by name, rows as :class:`HostState`.

This interface is read-only; :class:`~.host_table.HostTable` implements it and changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from scheduler_worker.model.aggregates import Aggregate, lowest, raw_values
from scheduler_worker.model.claims import Resources
from scheduler_worker.model.columns import COLUMN_NAMES, COLUMNS, Mask, Rows, Values
from scheduler_worker.model.host_records import HostCounts, HostRecord, takes_vms

if TYPE_CHECKING:
    from scheduler_worker.model.host_table import HostTable

__all__ = [
    "Aggregates",
    "Groups",
    "HostState",
    "Hosts",
    "Mask",
    "ClaimOrReservation",
    "Rows",
    "Values",
]

Aggregates = tuple[Aggregate, ...]
"""The aggregates of a host, in order of their ids."""


class ClaimOrReservation(Protocol):
    """What a table needs to know of a claim or a reservation."""

    @property
    def id(self) -> str: ...
    @property
    def instance_uuid(self) -> str: ...
    @property
    def host_uuid(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def nodename(self) -> str: ...
    @property
    def resources(self) -> Resources: ...
    @property
    def is_unannounced(self) -> bool: ...
    @property
    def created_at_s(self) -> float: ...


class Groups(NamedTuple):
    """Hosts grouped by the aggregates they are in, which many of them share."""

    numbers: Values
    """The group of each host."""
    members: Sequence[Aggregates]
    """The aggregates of each group; there may be groups without hosts."""

    def spread(self, passes: Callable[[Aggregates], bool]) -> Mask:
        """The hosts of the groups that pass; each group is tested once."""
        return self.each(passes, "?")

    def each(self, of: Callable[[Aggregates], Any], dtype: str) -> Values:
        """What is computed of each host's group, once for each group."""
        found: Values = np.fromiter(map(of, self.members), dtype, len(self.members))[self.numbers]
        return found


class Hosts:
    """Hosts of one table, in columns: all of them, or those of a :meth:`take`."""

    now_s: float
    """The time of the decision: seconds of the store's clock."""
    metadata_keys: frozenset[str]
    """Every metadata key of some aggregate."""
    metadata_items: frozenset[tuple[str, str]]
    """Every metadata key and value of some aggregate, of one without hosts too."""

    def __len__(self) -> int:
        raise NotImplementedError

    def column(self, name: str) -> Values:
        """The named column of :data:`COLUMNS`; do not write to it."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Values:
        if name not in COLUMN_NAMES:
            raise AttributeError(f"hosts have no column {name!r}; see COLUMNS")
        return self.column(name)

    def taking_vms(self, down_after_s: float) -> Mask:
        """The hosts that may take VMs: :func:`.host_records.takes_vms`."""
        found: Mask = takes_vms(
            self.heartbeat_s,
            self.service_disabled,
            self.service_forced_down,
            self.now_s,
            down_after_s,
        )
        return found

    def count_states(self, down_after_s: float) -> HostCounts:
        """How many hosts are in each state."""
        asleep = self.derived("asleep", lambda host: host.record.power.state != "up", "?")
        up, disabled = self.taking_vms(down_after_s), self.service_disabled
        rest = ~(up | disabled)
        return HostCounts(
            up=int(up.sum()),
            disabled=int(disabled.sum()),
            asleep=int((rest & asleep).sum()),
            down=int((rest & ~asleep).sum()),
        )

    def derived(
        self,
        key: Hashable,
        of: Callable[[HostState], Any],
        dtype: str,
        first: Callable[[Hosts], Values] | None = None,
    ) -> Values:
        """A column computed from each host's *reported* facts and aggregates; kept current.

        ``of`` is called once for each host and again only for hosts whose facts changed, so it must
        not read what reservations change (free amounts, use, counts, instances). ``key`` identifies
        the computation, parameters included. ``first`` computes the same for all hosts of the
        table, where that is quicker than one by one.
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
        """How many of these instances are on each host, or have a reservation there."""
        raise NotImplementedError

    def reservations_of_provider(self, provider: str) -> list[ClaimOrReservation]:
        """The claims and reservations, on any host of the table, that take from a provider beside
        the compute node of their host.
        """
        raise NotImplementedError

    def rows_of(self, hosts: Iterable[str], *, ignore_case: bool = False) -> Mask:
        """The rows of hosts with one of these names."""
        raise NotImplementedError

    def take(self, rows: Rows) -> Hosts:
        """These rows only; columns are gathered on first use."""
        raise NotImplementedError

    def aggregate_number(self, key: str, default: float) -> Values:
        """The smallest value of a metadata key in each host's aggregates, else ``default``."""
        return self.derived(
            ("aggregate_number", key, default),
            lambda host: lowest(raw_values(host.aggregates, key), default, float),
            "f8",
        )


class HostState:
    """One host, with Nova's attribute names: a read-only view of its row.

    ``limits`` is the one exception: filters may leave oversubscription limits in it, which go with
    the selection. Column values are plain Python numbers.

    The table keeps one of these for each row: filters in Nova's signature are asked about thousands
    of hosts for one request, and mostly read attributes.
    """

    __slots__ = ("_columns", "_table", "aggregates", "record", "row", "version")

    def __init__(self, table: HostTable, row: int) -> None:
        self._table = table
        self._columns = table.columns
        self.row = row
        self.record: HostRecord = table.records[row]
        """The host's record."""
        self.version: int = table.versions[row]
        """The version of the record in the store."""
        self.aggregates: tuple[Aggregate, ...] = table.aggregates_of(self.record.host)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Every column is a property, see :func:`_column_of_a_row`."""

    @property
    def table(self) -> Hosts:
        """The table that this is a row of."""
        return self._table

    @property
    def limits(self) -> dict[str, Any]:
        """What filters have left on this host since :meth:`.HostTable.take_limits`."""
        return self._table.limits.setdefault(self.row, {})

    @limits.setter
    def limits(self, limits: dict[str, Any]) -> None:
        self._table.limits[self.row] = limits

    def derived(self, key: Hashable, of: Callable[[HostState], Any], dtype: str) -> Any:
        """The host's value in a derived column: :meth:`Hosts.derived`."""
        return self._table.derived(key, of, dtype).item(self.row)

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
    def instances(self) -> Mapping[str, Mapping[str, Any]]:
        """Instance uuid -> what is known of it; instances with a reservation here are included."""
        return self._table.instances_of(self.host)

    def reservations_of(self, instance_uuid: str) -> list[ClaimOrReservation]:
        """What is claimed or reserved for an instance on this host."""
        found = self._table.reservations_of_instance(instance_uuid)
        return [each for each in found if self._table.row_of_reservation(each) == self.row]

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
        return host._columns[name].item(host.row)

    return property(value)


for _column in COLUMNS:
    setattr(HostState, _column.name, _column_of_a_row(_column.name))
