"""The numeric facts of hosts: what they are called, how they are read, what a promise takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_worker.model import host_records
from scheduler_worker.model.claims import PendingResource
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.providers import ProviderTree, read_providers
from scheduler_worker.model.topology import (
    count_devices,
    devices_taken,
    read_numa_topology,
    read_pci_pools,
)

Values = NDArray[Any]
"""One value for each host, in row order."""
Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]


class Column(NamedTuple):
    """One numeric host fact and how to read it off a record."""

    name: str
    dtype: str
    unit: str
    of: Callable[[HostRecord], Any]


def provider_tree(record: HostRecord) -> ProviderTree:
    """What the host has beside vCPUs, memory and disk, as it reports it."""
    return read_providers(record.uuid, record.traits, record.resource_providers)


COLUMNS = (
    Column("total_usable_ram_mb", "i8", "MiB", lambda r: r.memory_mb),
    Column("free_ram_mb", "i8", "MiB", host_records.free_ram_mb),
    Column("total_usable_disk_gb", "i8", "GiB", lambda r: r.local_gb),
    Column("disk_mb_used", "i8", "MiB", lambda r: 1024 * r.local_gb_used),
    Column("free_disk_mb", "i8", "MiB", host_records.free_disk_mb),
    Column("vcpus_total", "i8", "vCPU", lambda r: r.vcpus),
    Column("vcpus_used", "i8", "vCPU", lambda r: r.vcpus_used),
    Column("cpu_allocation_ratio", "f8", "", lambda r: r.cpu_allocation_ratio),
    Column("ram_allocation_ratio", "f8", "", lambda r: r.ram_allocation_ratio),
    Column("disk_allocation_ratio", "f8", "", lambda r: r.disk_allocation_ratio),
    Column("reserved_host_cpus", "i8", "vCPU", lambda r: r.reserved_host_cpus),
    Column("reserved_host_memory_mb", "i8", "MiB", lambda r: r.reserved_host_memory_mb),
    Column("reserved_host_disk_mb", "i8", "MiB", lambda r: r.reserved_host_disk_mb),
    Column("num_instances", "i8", "", lambda r: host_records.stat(r, "num_instances")),
    Column("num_io_ops", "i8", "", lambda r: host_records.stat(r, "io_workload")),
    Column("failed_builds", "i8", "", lambda r: host_records.stat(r, "failed_builds")),
    Column("hypervisor_version", "i8", "", lambda r: r.hypervisor_version),
    Column("provider_tree", "O", "", provider_tree),
    Column("numa_topology", "O", "", lambda r: read_numa_topology(r.numa_topology)),
    Column("pci_pools", "O", "", lambda r: read_pci_pools(r.pci_device_pools)),
    Column("free_pci_devices", "i8", "", host_records.free_pci_devices),
    Column("heartbeat_s", "f8", "s", host_records.heartbeat_s),
    Column("service_disabled", "?", "", lambda r: bool(r.service.get("disabled"))),
    Column("service_forced_down", "?", "", host_records.is_forced_down),
)
"""Every numeric host fact. A name without a docstring elsewhere is Nova's ``HostState`` name."""

COLUMN_NAMES = frozenset(column.name for column in COLUMNS)

CONSUMED = (
    *("free_ram_mb", "free_disk_mb", "vcpus_used", "num_instances", "num_io_ops"),
    *("provider_tree", "numa_topology", "pci_pools", "free_pci_devices"),
)
"""The columns that a promise changes."""


def take(columns: Mapping[str, Values], row: int, taken: PendingResource, times: int) -> None:
    """Take resources from a row of :data:`CONSUMED` columns; ``times`` is -1 to give them back."""
    columns["free_ram_mb"][row] -= times * taken.memory_mb
    columns["free_disk_mb"][row] -= times * taken.disk_mb
    columns["vcpus_used"][row] += times * taken.vcpus
    columns["num_instances"][row] += times
    columns["num_io_ops"][row] += times
    if taken.providers:
        columns["provider_tree"][row] = columns["provider_tree"][row].taken(taken.providers, times)
    topology = columns["numa_topology"][row]
    if taken.numa and topology is not None:
        columns["numa_topology"][row] = topology.taken(taken.numa, times)
    if taken.pci:
        columns["pci_pools"][row] = devices_taken(columns["pci_pools"][row], taken.pci, times)
        columns["free_pci_devices"][row] -= times * count_devices(taken.pci)
