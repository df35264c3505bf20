"""How many more instances of one kind the hosts of a cluster take, under the cluster's policy.

The count is that of placing instances until one is refused, each in a request of its own. Hosts do
not depend on each other then, so each is counted by itself: filters that read columns are asked
about all hosts at once (:mod:`.first_refusal`), and where cells, devices or providers decide, or a
unit does not say what it reads, copies of the hosts are filled (:mod:`.filling`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import structs

from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.hosts import Mask, Values
from scheduler_worker.model.hosts_after import HostsAfter, NotInColumns, Taken, taken_in_columns
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.filling import HostToFill, Steps, copied, fill
from scheduler_worker.scheduling.filter_results import left_by
from scheduler_worker.scheduling.first_refusal import UNBOUNDED, instances_before_refusal
from scheduler_worker.scheduling.ovirt.demand import virt_use_of
from scheduler_worker.scheduling.pipeline import Pipeline
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.scheduling.selections import resources_of

NOTHING = "nothing"
"""What limits a host that takes any number."""


class HostRoom(NamedTuple):
    """What each host takes; all arrays are over the rows of the table."""

    instances: Values
    """How many instances fit by the filters that judge capacity; UNBOUNDED: any number."""
    limits: Sequence[str]
    limited_by: Values
    """The index in ``limits`` of what runs out first."""
    filters: Sequence[str]
    lost_to: Values
    """The index in ``filters`` of the filter that rejects the host all the same; -1: none does."""
    zones: tuple[Values, Sequence[str]]
    """The group of each host, and the zone of each group."""
    is_exact: bool


class Measurement:
    """What columns tell of the room for one kind of instance, and the hosts still to be filled.

    To make one takes milliseconds and reads the table; :meth:`finish` may take long and does not.
    """

    def __init__(self, pipeline: Pipeline, hosts: HostTable, spec: RequestSpec) -> None:
        """Raises as filters do: RequestError, NoValidHost."""
        self._pipeline, self._hosts, self._spec = pipeline, hosts, spec
        self._instances = np.full(len(hosts), UNBOUNDED, "i8")
        self._limits = [NOTHING]
        self._limited_by = np.zeros(len(hosts), "i8")
        groups = hosts.by_aggregates()
        zones = [pipeline.selections.zone_of(each) for each in groups.members]
        self._zones = groups.numbers.copy(), zones
        self._is_exact = True
        asked = pipeline.evaluator.asked(spec)
        others = [unit for unit in asked if unit.of_one_request or not unit.reads_use]
        self._filters = [unit.name for unit in others]
        self._lost_to, left = _lost_to(others, hosts, spec)
        taken = _taken(pipeline, hosts, spec)
        judging = [unit for unit in asked if unit not in others]
        self._to_ask = [unit for unit in judging if not self._count(unit, taken)]
        self._to_fill = self._copies(left) if self._to_ask else []

    def _count(self, unit: Filter, taken: Taken) -> bool:
        """Take in what a filter says by columns; False: it has to be asked one by one."""
        if unit.looks_at_rows or not (unit.declares_reads() and unit.is_internal()):
            return False
        hosts, spec = self._hosts, self._spec
        try:
            found = instances_before_refusal(unit, hosts, taken, spec)
            lacking = unit.shortages(HostsAfter(hosts, taken, found), spec)
        except NotInColumns:
            return False
        fewer = found < self._instances
        self._instances = np.where(fewer, found, self._instances)
        for name, amounts in lacking.items():
            self._limit(fewer & (amounts > 0), name)
            fewer &= ~(amounts > 0)
        self._limit(fewer, unit.name)
        return True

    def _limit(self, rows: Mask, name: str) -> None:
        if rows.any():
            self._limited_by[rows] = self._number(name)

    def _number(self, name: str) -> int:
        if name not in self._limits:
            self._limits.append(name)
        return self._limits.index(name)

    def _copies(self, left: Mask) -> list[HostToFill]:
        """Copies of the hosts that take one instance; the others are full."""
        left = left & (self._instances > 0)
        for unit in self._to_ask:
            after = left_by(unit, self._hosts, self._spec, left)
            self._instances[left & ~after] = 0
            self._limit(left & ~after, unit.name)
            left = after
        rows, most = np.flatnonzero(left).tolist(), self._instances
        return [copied(self._hosts, row, int(most[row]), self._to_ask) for row in rows]

    def finish(self, steps: Steps | None = None) -> HostRoom:
        """Fill the hosts that have to be filled, in so many steps; needs no lock of the table."""
        steps = Steps() if steps is None else steps
        found = fill(self._pipeline, self._hosts, self._to_fill, self._spec, self._to_ask, steps)
        for row, filled in found.items():
            self._instances[row] = filled.instances
            self._is_exact &= filled.is_exact
            if filled.refused_by is not None:
                self._limited_by[row] = self._number(filled.refused_by)
        return HostRoom(
            self._instances,
            self._limits,
            self._limited_by,
            self._filters,
            self._lost_to,
            self._zones,
            self._is_exact,
        )


def _lost_to(filters: Sequence[Filter], hosts: HostTable, spec: RequestSpec) -> tuple[Values, Mask]:
    """The index of the first of the filters that rejects each host, and the hosts that are left."""
    found, left = np.full(len(hosts), -1, "i8"), np.ones(len(hosts), bool)
    for number, unit in enumerate(filters):
        after = left_by(unit, hosts, spec, left)
        found[left & ~after] = number
        left = after
    return found, left


def _taken(pipeline: Pipeline, hosts: HostTable, spec: RequestSpec) -> Taken:
    unknown = ["provider_tree"] if pipeline.providers.applies(spec) else []
    if spec.numa_topology or spec.pci_requests:
        unknown += ["numa_topology", "pci_pools", "free_pci_devices"]
    resources = resources_of(spec.flavor)
    if spec.vm and (virt := virt_use_of(spec)):
        resources = structs.replace(resources, virt=virt)
    of_root = pipeline.inventories.taken_in_columns(hosts, spec)
    return taken_in_columns(resources, of_root, unknown)
