"""vCPUs, memory and local disk: ``(total - reserved) x allocation ratio``, less what is used.

Use includes reservations. One instance never exceeds the physical total, at any ratio. The ratio is
the host's own; the Aggregate... filters use the smallest of the host's aggregates, if they have
one. Hosts that report inventories of these pass, and have no limits: their inventories decide, as
:mod:`~scheduler_worker.scheduling.prefilters.units` says.

These filters stand in for Placement: an amount that the flavor's ``resources:`` extra specs set is
wanted instead of its own, and 0 is always there. Use has the flavors' own sizes, as hosts report.

The Exact... filters are for hosts of exactly the instance's size, such as bare metal. Others limit
a host's instances, and its I/O operations under way.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter, sub
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from scheduler_worker.model.aggregates import lowest, raw_values
from scheduler_worker.model.hosts import Hosts, HostState, Mask, Values
from scheduler_worker.model.requests import Flavor, RequestSpec
from scheduler_worker.options import Opt
from scheduler_worker.scheduling.extra_specs import amount_set
from scheduler_worker.scheduling.plugin import Filter
from scheduler_worker.scheduling.sentence import UNITS


class FlavorAmount(NamedTuple):
    """A resource that flavors take of hosts: what the filters of it compare."""

    resource_class: str
    noun: str
    """Of an amount, in reasons."""
    own: Callable[[Flavor], int]
    """The flavor's own size."""
    total: Callable[[Hosts | HostState], Any]
    taken: str
    """The column of what is used, or of what is free."""
    used_of: Callable[[Any, Any], Any]
    """What is used, of the total and that column."""
    reserved: Callable[[Hosts | HostState], Any]
    """What a host keeps for itself."""
    ratio: str
    """The column, and the metadata key, of the allocation ratio."""
    limit: str
    """The name of the limit in a selection, in units of the class."""
    unit: int = 1
    """How much of what is compared is 1 of the class."""
    may_be_unlimited: bool = False
    """Whether a host that reports no total, or no limit, has none."""

    def used(self, of: Hosts | HostState, total: Any) -> Any:
        """What is used of the total."""
        return self.used_of(total, getattr(of, self.taken))


CPUS = FlavorAmount(
    "VCPU",
    "vCPUs",
    own=attrgetter("vcpus"),
    total=attrgetter("vcpus_total"),
    taken="vcpus_used",
    used_of=lambda _, used: used,
    reserved=attrgetter("reserved_host_cpus"),
    ratio="cpu_allocation_ratio",
    limit="vcpu",
    may_be_unlimited=True,
)
MEMORY = FlavorAmount(
    "MEMORY_MB",
    "MiB",
    own=attrgetter("memory_mb"),
    total=attrgetter("total_usable_ram_mb"),
    taken="free_ram_mb",
    used_of=sub,
    reserved=attrgetter("reserved_host_memory_mb"),
    ratio="ram_allocation_ratio",
    limit="memory_mb",
)
DISK = FlavorAmount(
    "DISK_GB",
    "MiB of disk",
    own=attrgetter("disk_mb"),
    total=lambda of: of.total_usable_disk_gb * 1024,
    taken="free_disk_mb",
    used_of=sub,
    reserved=attrgetter("reserved_host_disk_mb"),
    ratio="disk_allocation_ratio",
    limit="disk_gb",
    unit=1024,
)


class _OfAmount(Filter):
    """A filter of one amount, with one rule for columns and single hosts: ``_fits``."""

    momentary = True
    limits_of_facts = True
    amount: ClassVar[FlavorAmount]

    def reads(self, spec: RequestSpec) -> int:
        """What is wanted."""
        return self.amount.own(spec.flavor)

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        raise NotImplementedError


class _Enough(_OfAmount):
    """Passes hosts with enough of the amount."""

    def applies(self, spec: RequestSpec) -> bool:
        return amount_set(spec.flavor, self.amount.resource_class) != 0

    def reads(self, spec: RequestSpec) -> int:
        amount, flavor = self.amount, spec.flavor
        set_amount = amount_set(flavor, amount.resource_class) if flavor.extra_specs else None
        return amount.own(flavor) if set_amount is None else set_amount * amount.unit

    def _fits(self, wanted: int, total: Any, limit: Any, used: Any) -> Any:
        """The rule, for figures of all hosts or one."""
        fits = (limit - used >= wanted) & (total >= wanted)
        return fits | (total == 0) if self.amount.may_be_unlimited else fits

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        total = self.amount.total(hosts)
        used = self.amount.used(hosts, total)
        fits: Mask = self._fits(self.reads(spec), total, self.limit(hosts), used)
        return fits | hosts.has_inventories

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        total = self.amount.total(host_state)
        used = self.amount.used(host_state, total)
        fits = self._fits(self.reads(spec_obj), total, self._known_limit(host_state), used)
        return bool(fits or host_state.has_inventories)

    def row_check(self, hosts: Hosts, spec: RequestSpec) -> Callable[[int], bool]:
        fits: Callable[..., bool] = self._fits
        wanted, used_of = self.reads(spec), self.amount.used_of
        total, limit = self.amount.total(hosts).item, self.limit(hosts).item
        taken, has_inventories = hosts.column(self.amount.taken).item, hosts.has_inventories.item

        def passes(row: int) -> bool:
            whole = total(row)
            used = used_of(whole, taken(row))
            return fits(wanted, whole, limit(row), used) or has_inventories(row)

        return passes

    def shortages(self, hosts: Hosts, spec: RequestSpec) -> Mapping[str, Values]:
        amount, wanted, limit = self.amount, self.reads(spec), self.limit(hosts)
        total, passed = amount.total(hosts), hosts.has_inventories
        free, most = limit - amount.used(hosts, total), total
        if amount.may_be_unlimited:
            most, passed = np.where(limit > 0, most, wanted), passed | (most == 0)
        # What is missing of what is free, or even of the whole.
        lacking = np.ceil(np.maximum(0, wanted - np.minimum(free, most)))
        return {amount.resource_class: np.where(passed, 0, np.ceil(lacking / amount.unit))}

    def demand(self, spec: RequestSpec) -> str:
        count, noun = -(-self.reads(spec) // self.amount.unit), UNITS[self.amount.resource_class]
        return f"have {count:,} {noun.removesuffix('s') if count == 1 else noun} left"

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        amount, wanted = self.amount, self.reads(spec)
        total = amount.total(host_state)
        used = amount.used(host_state, total)
        needs = f"needs {wanted} {amount.noun}"
        if wanted > total:
            return f"{needs}, more than the {total} it has"
        whole = f"({total} - {amount.reserved(host_state)} reserved)"
        return f"{needs}; {used} are used of {whole} x {self.ratio_of(host_state):g}"

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        limit = self._known_limit(host_state)
        is_unlimited = self.amount.may_be_unlimited and limit <= 0
        if is_unlimited or host_state.has_inventories:
            return {}
        return {self.amount.limit: limit / self.amount.unit}

    def limit(self, hosts: Hosts) -> Values:
        """The limit of each host."""
        return hosts.derived((type(self), "limit"), self.limit_of, "f8", self._limits_at_first)

    def _limits_at_first(self, hosts: Hosts) -> Values:
        unreserved = self.amount.total(hosts) - self.amount.reserved(hosts)
        limits: Values = unreserved * hosts.column(self.amount.ratio)
        return limits

    def _known_limit(self, host_state: HostState) -> float:
        return float(self.limit(host_state.table).item(host_state.row))

    def limit_of(self, host_state: HostState) -> float:
        """The limit of one host, computed."""
        unreserved = self.amount.total(host_state) - self.amount.reserved(host_state)
        limit: float = unreserved * self.ratio_of(host_state)
        return limit

    def ratio_of(self, host_state: HostState) -> float:
        """The allocation ratio of one host."""
        return float(getattr(host_state, self.amount.ratio))


class _AggregateRatio(_Enough):
    """The limit at the smallest ratio of the host's aggregates, else at its own."""

    def _limits_at_first(self, hosts: Hosts) -> Values:
        if self.amount.ratio not in hosts.metadata_keys:
            return super()._limits_at_first(hosts)
        return np.fromiter(map(self.limit_of, hosts.states()), "f8", len(hosts))

    def ratio_of(self, host_state: HostState) -> float:
        ratios = raw_values(host_state.aggregates, self.amount.ratio)
        return lowest(ratios, super().ratio_of(host_state), float)


class _Exact(_OfAmount):
    """Passes hosts of which exactly the requested amount is free."""

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        fits: Mask = self._fits(hosts, spec)
        return fits

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return bool(self._fits(host_state, spec_obj))

    def _fits(self, of: Hosts | HostState, spec: RequestSpec) -> Any:
        exact = self._free(of) == self.reads(spec)
        return exact & (self.amount.total(of) > 0) if self.amount.may_be_unlimited else exact

    def _free(self, of: Hosts | HostState) -> Any:
        total = self.amount.total(of)
        return total - self.amount.used(of, total)

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        return f"has {self._free(host_state)} free, not exactly {self.reads(spec)}"

    def limits(self, host_state: HostState, spec: RequestSpec) -> Mapping[str, Any]:
        return {self.amount.limit: self.amount.total(host_state) / self.amount.unit}


class CoreFilter(_Enough):
    """Passes hosts with enough vCPUs; a host that reports no total has no limit.

    Reads: the host's vCPUs, their use and reserve, ``cpu_allocation_ratio``; the flavor's vCPUs.
    Example: 8 vCPUs at a ratio of 4.0 take flavors of up to 8 vCPUs, until 32 are used.
    """

    amount = CPUS


class RamFilter(_Enough):
    """Passes hosts with enough memory.

    Reads: the host's memory, its use and reserve, ``ram_allocation_ratio``; the flavor's memory.
    Example: 64 GiB at a ratio of 1.5 take flavors of up to 64 GiB, until 96 are used.
    """

    amount = MEMORY


class DiskFilter(_Enough):
    """Passes hosts with enough local disk for root, ephemeral and swap.

    Reads: the host's local disk, its use and reserve, ``disk_allocation_ratio``; the flavor's root,
    ephemeral and swap disk.
    Example: ``root_gb = 0`` for flavors of instances that boot from a volume.
    """

    amount = DISK


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


class ExactCoreFilter(_Exact):
    """Passes hosts whose free vCPUs are the flavor's; a host that reports no total does not pass.

    Reads: the host's vCPUs and their use; the flavor's vCPUs.
    Example: bare metal hosts, of which an instance takes the whole.
    """

    amount = CPUS


class ExactRamFilter(_Exact):
    """Passes hosts whose free memory is the flavor's.

    Reads: the host's free memory; the flavor's memory.
    Example: bare metal hosts, of which an instance takes the whole.
    """

    amount = MEMORY


class ExactDiskFilter(_Exact):
    """Passes hosts whose free local disk is the flavor's, swap included.

    Reads: the host's free local disk; the flavor's root, ephemeral and swap disk.
    Example: bare metal hosts, of which an instance takes the whole.
    """

    amount = DISK


class IoOpsParameters(msgspec.Struct, frozen=True):
    """The most I/O operations a host may have under way."""

    max_io_ops_per_host: Annotated[int, Opt(min=0, mutable=True)] = 8
    """IoOpsFilter: a host with this many instances being built, resized, rescued and so on takes no
    more. The aggregate metadata key of that name overrides it for AggregateIoOpsFilter."""


class NumInstancesParameters(msgspec.Struct, frozen=True):
    """The most instances a host may have."""

    max_instances_per_host: Annotated[int, Opt(min=1, mutable=True)] = 50
    """NumInstancesFilter: a host with this many instances takes no more. The aggregate metadata key
    of that name overrides it for AggregateNumInstancesFilter."""


class _CountFilter(Filter):
    """Passes hosts whose ``column`` is below the parameter named ``most``."""

    momentary = True
    reads_request = False
    column: ClassVar[str]
    most: ClassVar[str]
    what: ClassVar[str]

    def passes(self, hosts: Hosts, spec: RequestSpec) -> Mask:
        fewer: Mask = hosts.column(self.column) < self.most_of_all(hosts)
        return fewer

    def host_passes(self, host_state: HostState, spec_obj: RequestSpec) -> bool:
        return bool(getattr(host_state, self.column) < self.most_of(host_state))

    def reason(self, host_state: HostState, spec: RequestSpec) -> str:
        count = getattr(host_state, self.column)
        return f"has {count} {self.what}, {self.most_of(host_state)} are allowed"

    @property
    def default(self) -> int:
        """The value of the option."""
        return int(getattr(self.parameters, self.most))

    def most_of_all(self, hosts: Hosts) -> Values | int:
        """How many each host may have, or one number for all."""
        return self.default

    def most_of(self, host_state: HostState) -> int:
        """How many one host may have."""
        return self.default


class _AggregateCountFilter(_CountFilter):
    """The same, with the aggregate metadata key of the option's name in place of the option."""

    def most_of_all(self, hosts: Hosts) -> Values | int:
        if self.most not in hosts.metadata_keys:
            return self.default
        return hosts.derived((type(self).__name__, self.default), self.most_of, "f8")

    def most_of(self, host_state: HostState) -> int:
        return lowest(raw_values(host_state.aggregates, self.most), self.default, int)


class IoOpsFilter(_CountFilter):
    """Passes hosts with fewer instances that are built, resized, rescued and so on than
    ``max_io_ops_per_host``.

    Reads: ``num_io_ops``.
    Options: ``max_io_ops_per_host``.
    Example: ``max_io_ops_per_host = 4``
    """

    column = "num_io_ops"
    most = "max_io_ops_per_host"
    parameters_type = IoOpsParameters
    what = "I/O operations under way"


class AggregateIoOpsFilter(_AggregateCountFilter, IoOpsFilter):
    """IoOpsFilter; the smallest ``max_io_ops_per_host`` of the host's aggregates overrides the
    option.

    Metadata: ``max_io_ops_per_host``.
    Example: aggregate metadata ``max_io_ops_per_host=20`` for hosts with fast disks.
    """


class NumInstancesFilter(_CountFilter):
    """Passes hosts with fewer instances than ``max_instances_per_host``.

    Reads: ``num_instances``.
    Options: ``max_instances_per_host``.
    Example: ``max_instances_per_host = 20``
    """

    column = "num_instances"
    most = "max_instances_per_host"
    parameters_type = NumInstancesParameters
    what = "instances"


class AggregateNumInstancesFilter(_AggregateCountFilter, NumInstancesFilter):
    """NumInstancesFilter; the smallest ``max_instances_per_host`` of the host's aggregates
    overrides the option.

    Metadata: ``max_instances_per_host``.
    Example: aggregate metadata ``max_instances_per_host=1`` for hosts with a single instance.
    """
