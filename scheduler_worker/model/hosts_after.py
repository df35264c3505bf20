"""Hosts as they would be after some more instances of one kind, in columns only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from scheduler_worker.model.claims import Resources
from scheduler_worker.model.columns import COLUMNS, CONSUMED, Mask, Values, take
from scheduler_worker.model.hosts import Groups, Hosts, HostState
from scheduler_worker.model.virt_use import NO_USE, VirtUse

_OBJECTS = {"provider_tree", "numa_topology", "pci_pools", "virt_use"}


class NotInColumns(Exception):
    """What a filter looks at cannot be told without placing the instances one by one."""


class Taken(NamedTuple):
    """What one instance takes of each host."""

    amounts: Mapping[str, Values]
    """Column -> what is subtracted from it: one number, or one for each host."""
    virt: VirtUse
    unknown: Collection[str]
    """Columns that depend on which cells, devices and providers are chosen."""


def taken_in_columns(
    resources: Resources, of_root: Mapping[str, Values], unknown: Collection[str]
) -> Taken:
    """What an instance takes of columns: ``resources``, and ``of_root`` of hosts' inventories."""
    virt = resources.virt or NO_USE
    row = {c.name: np.zeros(1, c.dtype) for c in COLUMNS if c.name in CONSUMED}
    row["virt_use"][0] = NO_USE
    take(row, 0, resources, 1)
    numbers = {name: -values[0] for name, values in row.items() if name not in _OBJECTS}
    amounts = {name: amount for name, amount in numbers.items() if amount}
    return Taken(amounts | dict(of_root), virt, unknown)


class HostsAfter(Hosts):
    """The hosts of a table after ``placed`` more instances on each.

    Filters that read columns can be asked about it; those that look at single hosts, or at cells,
    devices and providers that the instances take from, get :class:`NotInColumns`.
    """

    def __init__(self, hosts: Hosts, taken: Taken, placed: Values | int) -> None:
        self.now_s = hosts.now_s
        self.metadata_keys = hosts.metadata_keys
        self.metadata_items = hosts.metadata_items
        self._hosts = hosts
        self._taken = taken
        self._placed = placed

    def __len__(self) -> int:
        return len(self._hosts)

    def column(self, name: str) -> Values:
        if name in self._taken.unknown:
            raise NotInColumns(name)
        values = self._hosts.column(name)
        if name == "virt_use" and self._taken.virt != NO_USE:
            return self._virt_use(values)
        amount = self._taken.amounts.get(name)
        return values if amount is None else values - amount * self._placed

    def _virt_use(self, values: Values) -> Values:
        found = np.empty(len(values), object)
        placed = np.broadcast_to(self._placed, len(values)).tolist()
        for row, (use, times) in enumerate(zip(values, placed, strict=True)):
            found[row] = use.plus(self._taken.virt, times)
        return found

    def derived(
        self,
        key: Hashable,
        of: Callable[[HostState], Any],
        dtype: str,
        first: Callable[[Hosts], Values] | None = None,
    ) -> Values:
        return self._hosts.derived(key, of, dtype, first)

    def by_aggregates(self) -> Groups:
        return self._hosts.by_aggregates()

    def rows_of(self, hosts: Iterable[str], *, ignore_case: bool = False) -> Mask:
        return self._hosts.rows_of(hosts, ignore_case=ignore_case)

    def count_instances(self, uuids: Iterable[str]) -> Values:
        return self._hosts.count_instances(uuids)

    def _one_by_one(self, *_: Any, **__: Any) -> Any:
        raise NotInColumns("single hosts")

    state = states = take = reservations_of_provider = _one_by_one
