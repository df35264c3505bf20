"""vCPUs, memory and local disk: ``(total - reserved) x allocation ratio``, less what is used.

Use includes reservations. One instance never exceeds the physical total, at any ratio. The ratio is
the host's own; the Aggregate... filters use the smallest of the host's aggregates, if they have
one. Hosts that report inventories of these pass, and have no limits: their inventories decide, as
:mod:`~scheduler_worker.scheduling.prefilters.capacity` says.

These filters stand in for Placement: an amount that the flavor's ``resources:`` extra specs set is
wanted instead of its own, and 0 is always there. Use has the flavors' own sizes, as hosts report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from scheduler_worker.model.aggregates import lowest, raw_values
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import Flavor, RequestSpec
from scheduler_worker.scheduling.extra_specs import amount_set
from scheduler_worker.scheduling.plugin import Filter


class _OwnRatio:
    """The limit of a resource, at the allocation ratio that a host reports."""

    ratio: ClassVar[str]
    resource_class: ClassVar[str]
    unit: ClassVar[int] = 1
    """How much of what is compared is 1 of the class."""

    def own(self, flavor: Flavor) -> int:
        """The flavor's own size."""
        raise NotImplementedError

    def applies(self, spec: RequestSpec) -> bool:
        return amount_set(spec.flavor, self.resource_class) != 0

    def reads(self, spec: RequestSpec) -> int:
        """What is wanted."""
        amount = amount_set(spec.flavor, self.resource_class)
        return self.own(spec.flavor) if amount is None else amount * self.unit

    def unreserved(self, of: Hosts | HostState) -> Any:
        """The total of the resource less what the host reserves for itself, of all hosts or one."""
        raise NotImplementedError

    def limits_of_all(self, hosts: Hosts) -> Values:
        """The limit of each host."""
        key = type(self).__name__, "limit"
        return hosts.derived(key, self.limit_of, "f8", self._limits_at_first)

    def _limits_at_first(self, hosts: Hosts) -> Values:
        limits: Values = self.unreserved(hosts) * hosts.column(self.ratio)
        return limits

    def limit_of(self, host_state: HostState) -> float:
        """The limit of one host."""
        return float(self.unreserved(host_state) * self.ratio_of(host_state))

    def ratio_of(self, host_state: HostState) -> float:
        """The allocation ratio of one host."""
        return float(getattr(host_state, self.ratio))


class _AggregateRatio(_OwnRatio):
    """The limit at the smallest ratio of the host's aggregates, else at its own."""

    def _limits_at_first(self, hosts: Hosts) -> Values:
        if self.ratio not in hosts.metadata_keys:
            return super()._limits_at_first(hosts)
        return np.fromiter(map(self.limit_of, hosts.states()), "f8", len(hosts))

    def ratio_of(self, host_state: HostState) -> float:
        ratios = raw_values(host_state.aggregates, self.ratio)
        return lowest(ratios, super().ratio_of(host_state), float)


class CoreFilter(_OwnRatio, Filter):
    """Passes hosts with enough vCPUs; a host that reports no total has no limit.

    Reads: the host's vCPUs, their use and reserve, ``cpu_allocation_ratio``; the flavor's vCPUs.
    Example: 8 vCPUs at a ratio of 4.0 take flavors of up to 8 vCPUs, until 32 are used.
    """

    momentary = True
    limits_of_facts = True
    ratio = "cpu_allocation_ratio"
    resource_class = "VCPU"

    def own(self, flavor: Flavor) -> int:
        return flavor.vcpus

    def unreserved(self, of: Hosts | HostState) -> Any:
        return of.vcpus_total - of.reserved_host_cpus

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        wanted, total, limit = self.reads(spec), hosts.vcpus_total, self.limits_of_all(hosts)
        fits: Mask = limit - hosts.vcpus_used >= wanted
        fits &= (wanted <= total) | (limit <= 0)
        fits |= total == 0
        fits |= hosts.has_inventories
        return fits

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        wanted, total = self.reads(spec_obj), host_state.vcpus_total
        limit = self.limit_of(host_state)
        fits = limit - host_state.vcpus_used >= wanted and (wanted <= total or limit <= 0)
        return bool(fits or total == 0 or host_state.has_inventories)

    def demand(self, spec: RequestSpec) -> str:
        cpus = self.reads(spec)
        return f"have {cpus:,} {'vCPU' if cpus == 1 else 'vCPUs'} left"

    def shortages(self, hosts: Hosts, spec: RequestSpec) -> Mapping[str, Values]:
        wanted, total, limit = self.reads(spec), hosts.vcpus_total, self.limits_of_all(hosts)
        lacking = _lacking(wanted, limit - hosts.vcpus_used, np.where(limit > 0, total, wanted))
        return {self.resource_class: np.where((total == 0) | hosts.has_inventories, 0, lacking)}

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        limit = self.limit_of(host_state)
        return {} if limit <= 0 or host_state.has_inventories else {"vcpu": limit}

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return _shortage(
            "vCPUs",
            wanted=self.reads(spec),
            total=host_state.vcpus_total,
            used=host_state.vcpus_used,
            reserved=host_state.reserved_host_cpus,
            ratio=self.ratio_of(host_state),
        )


class RamFilter(_OwnRatio, Filter):
    """Passes hosts with enough memory.

    Reads: the host's memory, its use and reserve, ``ram_allocation_ratio``; the flavor's memory.
    Example: 64 GiB at a ratio of 1.5 take flavors of up to 64 GiB, until 96 are used.
    """

    momentary = True
    limits_of_facts = True
    ratio = "ram_allocation_ratio"
    resource_class = "MEMORY_MB"

    def own(self, flavor: Flavor) -> int:
        return flavor.memory_mb

    def unreserved(self, of: Hosts | HostState) -> Any:
        return of.total_usable_ram_mb - of.reserved_host_memory_mb

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        wanted, total = self.reads(spec), hosts.total_usable_ram_mb
        fits: Mask = self.limits_of_all(hosts) - (total - hosts.free_ram_mb) >= wanted
        fits &= total >= wanted
        fits |= hosts.has_inventories
        return fits

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        wanted, total = self.reads(spec_obj), host_state.total_usable_ram_mb
        used = total - host_state.free_ram_mb
        fits = self.limit_of(host_state) - used >= wanted and total >= wanted
        return bool(fits or host_state.has_inventories)

    def demand(self, spec: RequestSpec) -> str:
        return f"have {self.reads(spec):,} MiB of memory left"

    def shortages(self, hosts: Hosts, spec: RequestSpec) -> Mapping[str, Values]:
        total = hosts.total_usable_ram_mb
        left = self.limits_of_all(hosts) - (total - hosts.free_ram_mb)
        lacking = _lacking(self.reads(spec), left, total)
        return {self.resource_class: np.where(hosts.has_inventories, 0, lacking)}

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        return {} if host_state.has_inventories else {"memory_mb": self.limit_of(host_state)}

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return _shortage(
            "MiB",
            wanted=self.reads(spec),
            total=host_state.total_usable_ram_mb,
            used=host_state.total_usable_ram_mb - host_state.free_ram_mb,
            reserved=host_state.reserved_host_memory_mb,
            ratio=self.ratio_of(host_state),
        )


class DiskFilter(_OwnRatio, Filter):
    """Passes hosts with enough local disk for root, ephemeral and swap.

    Reads: the host's local disk, its use and reserve, ``disk_allocation_ratio``; the flavor's root,
    ephemeral and swap disk.
    Example: ``root_gb = 0`` for flavors of instances that boot from a volume.
    """

    momentary = True
    limits_of_facts = True
    ratio = "disk_allocation_ratio"
    resource_class = "DISK_GB"
    unit = 1024

    def own(self, flavor: Flavor) -> int:
        return flavor.disk_mb

    def unreserved(self, of: Hosts | HostState) -> Any:
        return of.total_usable_disk_gb * 1024 - of.reserved_host_disk_mb

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        wanted, total = self.reads(spec), hosts.total_usable_disk_gb * 1024
        fits: Mask = self.limits_of_all(hosts) - (total - hosts.free_disk_mb) >= wanted
        fits &= total >= wanted
        fits |= hosts.has_inventories
        return fits

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        wanted, total = self.reads(spec_obj), host_state.total_usable_disk_gb * 1024
        used = total - host_state.free_disk_mb
        fits = self.limit_of(host_state) - used >= wanted and total >= wanted
        return bool(fits or host_state.has_inventories)

    def demand(self, spec: RequestSpec) -> str:
        return f"have {-(-self.reads(spec) // 1024):,} GiB of disk left"

    def shortages(self, hosts: Hosts, spec: RequestSpec) -> Mapping[str, Values]:
        total = hosts.total_usable_disk_gb * 1024
        left = self.limits_of_all(hosts) - (total - hosts.free_disk_mb)
        lacking = _lacking(self.reads(spec), left, total)
        return {self.resource_class: np.where(hosts.has_inventories, 0, np.ceil(lacking / 1024))}

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        return {} if host_state.has_inventories else {"disk_gb": self.limit_of(host_state) / 1024}

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        total = host_state.total_usable_disk_gb * 1024
        return _shortage(
            "MiB of disk",
            wanted=self.reads(spec),
            total=total,
            used=total - host_state.free_disk_mb,
            reserved=host_state.reserved_host_disk_mb,
            ratio=self.ratio_of(host_state),
        )


class AggregateCoreFilter(_AggregateRatio, CoreFilter):
    """CoreFilter with the ``cpu_allocation_ratio`` of the host's aggregates.

    Metadata: ``cpu_allocation_ratio``.
    Example: aggregate metadata ``cpu_allocation_ratio=1.0`` for hosts that are not overcommitted.
    """


class AggregateRamFilter(_AggregateRatio, RamFilter):
    """RamFilter with the ``ram_allocation_ratio`` of the host's aggregates.

    Metadata: ``ram_allocation_ratio``.
    Example: aggregate metadata ``ram_allocation_ratio=1.0`` for hosts that are not overcommitted.
    """


class AggregateDiskFilter(_AggregateRatio, DiskFilter):
    """DiskFilter with the ``disk_allocation_ratio`` of the host's aggregates.

    Metadata: ``disk_allocation_ratio``.
    Example: aggregate metadata ``disk_allocation_ratio=1.0`` for hosts that are not overcommitted.
    """


def _lacking(wanted: int, left: Values, total: Values) -> Values:
    """What is missing to the wanted amount: of what is left, or even of the whole."""
    lacking: Values = np.ceil(np.maximum(0, wanted - np.minimum(left, total)))
    return lacking


def _shortage(unit: str, *, wanted: int, total: int, used: int, reserved: int, ratio: float) -> str:
    if wanted > total:
        return f"needs {wanted} {unit}, more than the {total} it has"
    return f"needs {wanted} {unit}; {used} are used of ({total} - {reserved} reserved) x {ratio:g}"
