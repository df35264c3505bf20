"""Hosts as filters and weighers see them: columns by name, rows as :class:`HostState`.

This interface is read-only; :class:`~.host_table.HostTable` implements it and changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from scheduler_worker.model.aggregates import Aggregate, lowest, raw_values
from scheduler_worker.model.claims import Claim, Reservation
from scheduler_worker.model.columns import COLUMN_NAMES, COLUMNS, Mask, Rows, Values
from scheduler_worker.model.host_records import (
    FIELD_OF,
    HostCounts,
    HostRecord,
    HvSpec,
    is_contested,
    takes_vms,
)

if TYPE_CHECKING:
    from scheduler_worker.model.providers import ProviderTree
    from scheduler_worker.model.topology import NUMATopology, PCIPools
    from scheduler_worker.model.virt import VirtUse

__all__ = ["Mask", "Rows", "Values"]  # of columns, for authors of units

Aggregates = tuple[Aggregate, ...]
"""The aggregates of a host, in order of their ids."""
ClaimOrReservation = Claim | Reservation
Instances = Mapping[str, Mapping[str, Any]]
"""Instance uuid -> what is known of it."""


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
        values: Values = np.fromiter(map(of, self.members), dtype, len(self.members))[self.numbers]
        return values


class AskingTime(msgspec.Struct, eq=False):
    """The time that all external units of a decision share; without a bound by default."""

    until_s: float = math.inf
    """Seconds of the monotonic clock."""
    has_run_out: bool = False
    """Whether a unit failed that had less time than one may take, or none."""


class Hosts:
    """Hosts of one table, in columns: all hosts, or a :meth:`take` of them."""

    now_s: float
    """The time of the decision: seconds of the store's clock."""
    asking = AskingTime()
    """For how long external units may be asked about the hosts."""
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
        disabled, forced_down = self.service_disabled, self.service_forced_down
        taking: Mask = takes_vms(self.heartbeat_s, disabled, forced_down, self.now_s, down_after_s)
        return taking

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

    def contested(self) -> list[HostRecord]:
        """The hosts of which :func:`.host_records.is_contested` holds."""
        since_s = self.derived("contested", lambda host: host.record.contested_at_s or 0.0, "f8")
        some = [host.record for host in self.states(np.flatnonzero(since_s).tolist())]
        return [record for record in some if is_contested(record, self.now_s)]

    def derived(self, key: Hashable, of: OfOne, dtype: str, first: OfAll | None = None) -> Values:
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
        """What takes from a provider beside its host's compute node, on any host of the table."""
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


class HostRows(Hosts):
    """What the state of one host reads of its table: :class:`~.host_table.HostTable` has it."""

    columns: dict[str, Values]
    records: Sequence[HostRecord]
    versions: Sequence[int]
    limits: dict[int, dict[str, Any]]
    """Row -> what filters have left on its host."""

    def aggregates_of(self, host: str) -> Aggregates:
        """The aggregates of a host, by its name."""
        raise NotImplementedError

    def instances_of(self, host: str) -> Instances:
        """The instances that were reported, or have a reservation there."""
        raise NotImplementedError

    def reservations_of_instance(self, instance_uuid: str) -> Sequence[ClaimOrReservation]:
        """On any host of the table."""
        raise NotImplementedError

    def row_of_reservation(self, reservation: ClaimOrReservation) -> int | None:
        """The row of its host; None: the table has none."""
        raise NotImplementedError


class HostState:
    """One host, with Nova's attribute names: a read-only view of its row.

    ``limits`` is the one exception: filters may leave oversubscription limits in it, which go with
    the selection. Column values are plain Python numbers.

    The table keeps one of these for each row: filters in Nova's signature are asked about thousands
    of hosts for one request, and mostly read attributes.
    """

    __slots__ = ("_columns", "_table", "aggregates", "record", "row", "version")

    def __init__(self, table: HostRows, row: int) -> None:
        self._table = table
        self._columns = table.columns
        self.row = row
        self.record: HostRecord = table.records[row]
        """The host's record."""
        self.version: int = table.versions[row]
        """The version of the record in the store."""
        self.aggregates: tuple[Aggregate, ...] = table.aggregates_of(self.record.host)

    # Of the record:
    uuid: str
    host: str
    nodename: str
    cluster: str
    cell_uuid: str | None
    stats: Mapping[str, str]
    metrics: Sequence[Mapping[str, Any]]
    traits: tuple[str, ...]
    service: Mapping[str, Any]
    cpu_info: str | dict[str, Any] | None
    supported_instances: tuple[HvSpec, ...]
    host_ip: str | None
    hypervisor_type: str | None
    hypervisor_hostname: str | None
    pci_device_pools: tuple[dict[str, Any], ...]
    updated: float | None

    if TYPE_CHECKING:
        # Of the columns:
        provider_tree: ProviderTree
        numa_topology: NUMATopology | None
        pci_pools: PCIPools
        virt_use: VirtUse

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

    def derived(self, key: Hashable, of: OfOne, dtype: str) -> Any:
        """The host's value in a derived column: :meth:`Hosts.derived`."""
        return self._table.derived(key, of, dtype).item(self.row)

    @property
    def now_s(self) -> float:
        return self._table.now_s

    @property
    def instances(self) -> Instances:
        """Instance uuid -> what is known of it; instances with a reservation here are included."""
        return self._table.instances_of(self.host)

    def reservations_of(self, instance_uuid: str) -> list[ClaimOrReservation]:
        """What is claimed or reserved for an instance on this host."""
        table = self._table
        known = table.reservations_of_instance(instance_uuid)
        return [each for each in known if table.row_of_reservation(each) == self.row]


OfOne = Callable[[HostState], Any]
OfAll = Callable[[Hosts], Values]


def _column_of_a_row(name: str) -> property:
    def value(host: HostState) -> Any:
        return host._columns[name].item(host.row)

    return property(value)


for _column in COLUMNS:
    setattr(HostState, _column.name, _column_of_a_row(_column.name))
for _name in HostState.__annotations__.keys() | FIELD_OF.keys() - COLUMN_NAMES:
    setattr(HostState, _name, property(attrgetter(f"record.{FIELD_OF.get(_name, _name)}")))


class HostSubset(Hosts):
    """Some rows of a table; gathers each column at most once."""

    def __init__(self, hosts: Hosts, rows: Any) -> None:
        """``rows`` is an array of them, or a slice."""
        self.now_s, self.asking = hosts.now_s, hosts.asking
        self.metadata_keys = hosts.metadata_keys
        self.metadata_items = hosts.metadata_items
        self._table = hosts
        self._rows = rows
        self._gathered: dict[str, Values] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, name: str) -> Values:
        values = self._gathered.get(name)
        if values is None:
            values = self._gathered[name] = self._table.column(name)[self._rows]
        return values

    def derived(self, key: Hashable, of: OfOne, dtype: str, first: OfAll | None = None) -> Values:
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
