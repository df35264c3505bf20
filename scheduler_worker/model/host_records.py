"""What is known of one host: the report it sends and the record that is kept.

A :class:`HostReport` says only what changed (:data:`msgspec.UNSET` = unchanged, None = cleared); a
:class:`HostRecord` is the whole. Field names are Nova's ``ComputeNode`` ones; sizes are MiB and
GiB as their names say, times are seconds since the epoch.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from scheduler_worker.model.providers import ResourceProvider
from scheduler_worker.model.requests import MAX_SIZE, Size
from scheduler_worker.model.topology import count_devices, read_pci_pools

HOST_SCHEMA = 1

Balance = Annotated[int, Meta(ge=-MAX_SIZE, le=MAX_SIZE)]
"""A free amount: negative when the host is oversubscribed."""
Ratio = Annotated[float, Meta(ge=0.0, le=100_000.0)]
Text = Annotated[str, Meta(min_length=1, max_length=255)]
ClusterName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}\Z")]
HvSpec = tuple[str, str, str]


class HostReport(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One host's report; see ``docs/rpc.md`` for the meaning of every field."""

    host: Text
    uuid: Text | UnsetType = UNSET
    nodename: Text | UnsetType | None = UNSET
    cluster: ClusterName | UnsetType | None = UNSET
    cell_uuid: str | UnsetType | None = UNSET
    updated_at: float | UnsetType | None = UNSET
    vcpus: Size | UnsetType | None = UNSET
    vcpus_used: Size | UnsetType | None = UNSET
    memory_mb: Size | UnsetType | None = UNSET
    memory_mb_used: Size | UnsetType | None = UNSET
    free_ram_mb: Balance | UnsetType | None = UNSET
    local_gb: Size | UnsetType | None = UNSET
    local_gb_used: Size | UnsetType | None = UNSET
    free_disk_gb: Balance | UnsetType | None = UNSET
    disk_available_least: Balance | UnsetType | None = UNSET
    cpu_allocation_ratio: Ratio | UnsetType | None = UNSET
    ram_allocation_ratio: Ratio | UnsetType | None = UNSET
    disk_allocation_ratio: Ratio | UnsetType | None = UNSET
    reserved_host_cpus: Size | UnsetType | None = UNSET
    reserved_host_memory_mb: Size | UnsetType | None = UNSET
    reserved_host_disk_mb: Size | UnsetType | None = UNSET
    hypervisor_type: str | UnsetType | None = UNSET
    hypervisor_version: Size | UnsetType | None = UNSET
    hypervisor_hostname: str | UnsetType | None = UNSET
    host_ip: str | UnsetType | None = UNSET
    cpu_info: str | dict[str, Any] | UnsetType | None = UNSET
    supported_hv_specs: tuple[HvSpec, ...] | UnsetType | None = UNSET
    numa_topology: dict[str, Any] | str | UnsetType | None = UNSET
    pci_device_pools: list[dict[str, Any]] | UnsetType | None = UNSET
    stats: dict[str, str | int | float | bool | None] | UnsetType | None = UNSET
    metrics: list[dict[str, Any]] | UnsetType | None = UNSET
    traits: tuple[str, ...] | UnsetType | None = UNSET
    networks: tuple[str, ...] | UnsetType | None = UNSET
    resource_providers: list[ResourceProvider] | UnsetType | None = UNSET
    service: dict[str, Any] | UnsetType | None = UNSET
    instances: list[dict[str, Any]] | UnsetType | None = UNSET
    load: dict[str, Any] | UnsetType | None = UNSET
    vms: dict[str, Any] | list[Any] | UnsetType | None = UNSET


class HostRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Everything that is known of one compute node, except its instances and promises."""

    uuid: str
    host: str
    nodename: str
    cluster: str
    reported_at_s: float
    """When the last report arrived, by the store's clock."""
    vcpus: int
    memory_mb: int
    local_gb: int
    cell_uuid: str | None = None
    updated_at: float | None = None
    vcpus_used: int = 0
    memory_mb_used: int = 0
    free_ram_mb: int | None = None
    local_gb_used: int = 0
    free_disk_gb: int | None = None
    disk_available_least: int | None = None
    cpu_allocation_ratio: float = 1.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_host_cpus: int = 0
    reserved_host_memory_mb: int = 0
    reserved_host_disk_mb: int = 0
    hypervisor_type: str | None = None
    hypervisor_version: int = 0
    hypervisor_hostname: str | None = None
    host_ip: str | None = None
    cpu_info: str | dict[str, Any] | None = None
    supported_hv_specs: tuple[HvSpec, ...] = ()
    numa_topology: dict[str, Any] | str | None = None
    pci_device_pools: tuple[dict[str, Any], ...] = ()
    stats: dict[str, str] = {}
    metrics: tuple[dict[str, Any], ...] = ()
    traits: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    resource_providers: tuple[ResourceProvider, ...] = ()
    service: dict[str, Any] = {}
    load: dict[str, Any] = {}
    vms: dict[str, Any] | list[Any] = {}
    schema: int = HOST_SCHEMA


USE_FIELDS = frozenset({"vcpus_used", "memory_mb_used", "free_ram_mb", "local_gb_used"})
"""A report that carries one of these is a report of use: it can absorb promises."""

_REPLACED_BY = {"memory_mb_used": "free_ram_mb", "local_gb_used": "free_disk_gb"}


def fields_of(report: HostReport) -> dict[str, Any]:
    """What the report says, without what it leaves unchanged."""
    return {
        name: value
        for name in report.__struct_fields__
        if (value := getattr(report, name)) is not UNSET
    }


def merged(record: HostRecord | None, said: dict[str, Any], **stamped: Any) -> HostRecord:
    """The record after a report said ``said``; ``stamped`` is what the receiver adds.

    An absent field keeps its value and None returns it to its default. Use given without the
    matching free amount makes a stored free amount obsolete.

    Raises:
        msgspec.ValidationError: a required field is neither known nor given.

    """
    known = msgspec.structs.asdict(record) if record else {}
    for used, free in _REPLACED_BY.items():
        if used in said and free not in said:
            known.pop(free, None)
    known.update(said, **stamped)
    known.pop("instances", None)
    if known.get("stats"):
        known["stats"] = {key: _text(value) for key, value in known["stats"].items()}
    return msgspec.convert(
        {name: value for name, value in known.items() if value is not None}, HostRecord
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def heartbeat_s(record: HostRecord) -> float:
    """When the host's service was last seen: what it says of itself, else its last report."""
    said = record.service.get("last_seen_up") or record.service.get("created_at")
    return seconds(said) if said else record.reported_at_s


def is_forced_down(record: HostRecord) -> bool:
    """Whether the service counts as down however fresh its heartbeat is."""
    return bool(record.service.get("forced_down")) or record.service.get("up") is False


def seconds(moment: str | float) -> float:
    """Seconds since the epoch of an ISO 8601 text (UTC where it names no zone) or of a number."""
    if isinstance(moment, (int, float)):
        return float(moment)
    parsed = datetime.fromisoformat(moment)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def free_pci_devices(record: HostRecord) -> int:
    """How many PCI devices are free, whatever they are."""
    return count_devices(read_pci_pools(record.pci_device_pools))


def stat(record: HostRecord, name: str) -> int:
    """A counter out of ``stats``, 0 where it is missing or no number."""
    try:
        return int(record.stats.get(name) or 0)
    except ValueError:
        return 0


def free_ram_mb(record: HostRecord) -> int:
    """Free memory as reported, else what use leaves."""
    if record.free_ram_mb is not None:
        return record.free_ram_mb
    return record.memory_mb - record.memory_mb_used


def free_disk_mb(record: HostRecord) -> int:
    """Free local disk: the smaller of the computed and the really available amount."""
    free = record.free_disk_gb
    if free is None:
        free = record.local_gb - record.local_gb_used
    least = record.disk_available_least
    return 1024 * (free if least is None else min(free, least))
