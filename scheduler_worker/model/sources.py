"""Sources of host reports: which agent reported which field group, and when.

Several agents may report one host: its compute service, a collector of metrics, a script that sets
traits. A report names its source, or none; a source's reports are ordered among themselves, and
only those of the compute service are heartbeats.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

COMPUTE = "compute"
"""The compute service of the host; also every report without a source that speaks for it."""
UNNAMED = "unnamed"
"""Reports without a source that do not speak for the compute service."""
MAX_SOURCES = 8
"""Sources remembered of a host: a bound on the record, should a source's name vary."""

SourceName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}\Z")]

_GROUPS = {
    "capacity": ("vcpus", "memory_mb", "local_gb"),
    "use": (
        *("vcpus_used", "memory_mb_used", "free_ram_mb"),
        *("local_gb_used", "free_disk_gb", "disk_available_least"),
    ),
    "allocation": (
        *("cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio"),
        *("reserved_host_cpus", "reserved_host_memory_mb", "reserved_host_disk_mb"),
    ),
    "hypervisor": (
        *("hypervisor_type", "hypervisor_version", "hypervisor_hostname", "host_ip"),
        *("cpu_info", "supported_hv_specs"),
    ),
}
_OWN_GROUP = (
    *("service", "numa_topology", "pci_device_pools", "stats", "metrics", "traits", "networks"),
    *("resource_providers", "instances", "load", "vms", "virt", "power"),
)
GROUP_OF = {field: group for group, fields in _GROUPS.items() for field in fields} | {
    field: field for field in _OWN_GROUP
}
"""Report field -> its group; identity, ``cluster`` and times are in none."""

_OF_COMPUTE = frozenset(
    {name for name, group in GROUP_OF.items() if group in {"capacity", "use", "service"}}
    | {"updated_at"}
)
"""Fields that only compute agents report: a report without a source that has one is theirs."""


class SourceRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one source has reported of a host; times are seconds since the epoch."""

    updated_at: float | None = None
    """When its latest dated report was measured, by the source's own clock."""
    groups: dict[str, float] = {}
    """Field group -> when the source reported it last, by the store's clock."""

    @property
    def reported_at_s(self) -> float:
        """When the source reported anything last."""
        return max(self.groups.values(), default=0.0)


Sources = Mapping[str, SourceRecord]


def groups_of(fields: Collection[str]) -> set[str]:
    """The groups of a report's fields."""
    return {GROUP_OF[name] for name in fields if name in GROUP_OF}


def source_of(fields: Mapping[str, object]) -> str:
    """The source of a report with these fields.

    A report without a source is the compute service's if it carries use, capacity, ``service`` or
    ``updated_at``, as those of compute agents do, or nothing at all: a bare heartbeat.
    """
    named = fields.get("source")
    if isinstance(named, str):
        return named
    if not fields.keys().isdisjoint(_OF_COMPUTE) or not groups_of(fields.keys()):
        return COMPUTE
    return UNNAMED


def with_report(
    sources: Sources, source: str, fields: Mapping[str, object], now_s: float
) -> dict[str, SourceRecord]:
    """The sources of a host after a report; of too many the one silent for longest is dropped."""
    before = sources.get(source, SourceRecord())
    reported = dict.fromkeys(sorted(groups_of(fields.keys())), now_s)
    updated_at = fields.get("updated_at", before.updated_at)
    after = {
        **sources,
        source: msgspec.structs.replace(
            before, updated_at=updated_at, groups={**before.groups, **reported}
        ),
    }
    if len(after) > MAX_SOURCES:
        others = after.keys() - {source, COMPUTE}
        del after[min(others, key=lambda name: after[name].reported_at_s)]
    return after
