"""The numeric facts of hosts: names, how to read them off a record, what a reservation takes."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_worker.model import host_records
from scheduler_worker.model.claims import Resources
from scheduler_worker.model.host_records import HOST_FACTS, HostRecord
from scheduler_worker.model.inventories import UNUSED, Provided, has_inventories, unused
from scheduler_worker.model.providers import ProviderTree, read_providers
from scheduler_worker.model.topology import (
    count_devices,
    devices_taken,
    read_numa_topology,
    read_pci_pools,
)
from scheduler_worker.model.virt import NO_USE

Values = NDArray[Any]
"""One value for each host, in row order."""
Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]


class HostColumn(NamedTuple):
    """One numeric host fact and how to read it off a record."""

    name: str
    dtype: str
    unit: str
    of: Callable[[HostRecord], Any]


def _provider_tree(record: HostRecord) -> ProviderTree:
    return read_providers(record.uuid, record.traits, record.resource_providers)


_DTYPES = {int: "i8", float: "f8"}
_PLAIN = (
    HostColumn(fact.column, _DTYPES[kind], fact.unit, attrgetter(name))
    for name, (kind, fact) in HOST_FACTS.items()
    if fact.column
)
COLUMNS = (
    *_PLAIN,
    HostColumn("free_ram_mb", "i8", "MiB", host_records.free_ram_mb),
    HostColumn("disk_mb_used", "i8", "MiB", lambda r: 1024 * r.local_gb_used),
    HostColumn("free_disk_mb", "i8", "MiB", host_records.free_disk_mb),
    HostColumn("num_instances", "i8", "", lambda r: host_records.stat(r, "num_instances")),
    HostColumn("num_io_ops", "i8", "", lambda r: host_records.stat(r, "io_workload")),
    HostColumn("failed_builds", "i8", "", lambda r: host_records.stat(r, "failed_builds")),
    HostColumn("has_inventories", "?", "", has_inventories),
    HostColumn("unused_vcpu", "i8", "vCPU", partial(unused, resource_class="VCPU")),
    HostColumn("unused_pcpu", "i8", "CPU", partial(unused, resource_class="PCPU")),
    HostColumn("unused_memory_mb", "i8", "MiB", partial(unused, resource_class="MEMORY_MB")),
    HostColumn("unused_disk_gb", "i8", "GiB", partial(unused, resource_class="DISK_GB")),
    HostColumn("provider_tree", "O", "", _provider_tree),
    HostColumn("numa_topology", "O", "", lambda r: read_numa_topology(r.numa_topology)),
    HostColumn("pci_pools", "O", "", lambda r: read_pci_pools(r.pci_device_pools)),
    HostColumn(
        "free_pci_devices", "i8", "", lambda r: count_devices(read_pci_pools(r.pci_device_pools))
    ),
    HostColumn("reserved_instances", "i8", "", lambda _: 0),
    HostColumn("virt_use", "O", "", lambda _: NO_USE),
    HostColumn("exclusive_vcpus", "i8", "vCPU", lambda _: 0),
    HostColumn("heartbeat_s", "f8", "s", host_records.heartbeat_s),
    HostColumn("service_disabled", "?", "", lambda r: bool(r.service.get("disabled"))),
    HostColumn("service_forced_down", "?", "", host_records.is_forced_down),
)
"""Every numeric host fact: what records have as it is, then what is computed of them.

A name without a docstring elsewhere is Nova's ``HostState`` name.
"""

COLUMN_NAMES = frozenset(column.name for column in COLUMNS)

CONSUMED = (
    *("free_ram_mb", "free_disk_mb", "vcpus_used", "num_instances", "num_io_ops"),
    *UNUSED.values(),
    *("provider_tree", "numa_topology", "pci_pools", "free_pci_devices"),
    *("reserved_instances", "virt_use", "exclusive_vcpus"),
)
"""The columns that reservations take from."""


def take(columns: Mapping[str, Values], row: int, taken: Resources, times: int) -> None:
    """Take resources from a row of :data:`CONSUMED` columns; ``times`` is -1 to give them back.

    What it takes of providers is left to :func:`take_provided`.
    """
    columns["free_ram_mb"][row] -= times * taken.memory_mb
    columns["free_disk_mb"][row] -= times * taken.disk_mb
    columns["vcpus_used"][row] += times * taken.vcpus
    columns["num_instances"][row] += times
    columns["num_io_ops"][row] += times
    columns["reserved_instances"][row] += times
    topology = columns["numa_topology"][row]
    if taken.numa and topology is not None:
        columns["numa_topology"][row] = topology.taken(taken.numa, times)
    if taken.pci:
        columns["pci_pools"][row] = devices_taken(columns["pci_pools"][row], taken.pci, times)
        columns["free_pci_devices"][row] -= times * count_devices(taken.pci)
    if taken.virt:
        columns["virt_use"][row] = columns["virt_use"][row].plus(taken.virt, times)
        columns["exclusive_vcpus"][row] += times * taken.virt.exclusive_vcpus


def take_provided(columns: Mapping[str, Values], row: int, provided: Provided, times: int) -> None:
    """Take from the providers of a row; ``times`` is -1 to give back."""
    for name, amount in provided.of_root.items():
        columns[UNUSED[name]][row] -= times * amount
    if provided.of_tree:
        columns["provider_tree"][row] = columns["provider_tree"][row].taken(provided.of_tree, times)


_IO_TASKS = frozenset(
    {"image_backup", "image_snapshot", "rebuilding", "rescuing"}
    | {"resize_migrating", "resize_prep", "unshelving"}
)


def _is_io_operation(facts: Mapping[str, Any]) -> bool:
    """Whether Nova counts an instance in ``io_workload``."""
    return facts.get("vm_state") == "building" or facts.get("task_state") in _IO_TASKS


_OF_LISTED: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], bool]]] = {
    "num_instances": ("num_instances", lambda _: True),
    "num_io_ops": ("io_workload", _is_io_operation),
}
"""Column -> its statistic, and which instances count in it."""


def count_listed(
    tables: Collection[Mapping[str, Values]],
    row: int,
    record: HostRecord,
    listed: Iterable[Mapping[str, Any]],
    times: int,
) -> None:
    """Count instances that a host lists, where it reports no statistic that has them already.

    ``times`` is -1 to take them out. An instance that names another node of the host is there.
    """
    unknown = {name: of for name, of in _OF_LISTED.items() if not record.stats.get(of[0])}
    if unknown:
        here = [facts for facts in listed if facts.get("node") in {None, record.nodename}]
        for name, (_, counts) in unknown.items():
            count = times * sum(map(counts, here))
            for columns in tables:
                columns[name][row] += count
