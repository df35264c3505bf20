"""Host reports, and the host records that they are merged into.

A :class:`HostReport` has only what changed (:data:`msgspec.UNSET` = unchanged, None = cleared); a
:class:`HostRecord` is the whole. Field names are Nova's ``ComputeNode`` ones; sizes are MiB and
GiB as their names say, times are seconds since the epoch.

Several *sources* may report one host: its compute service, a collector of metrics, a script that
sets traits. A report names its source, or none; a source's reports are ordered among themselves,
and only the compute service's reports are heartbeats.

A host that sleeps sends no reports itself, so whoever manages its power reports that. What was
reported holds until something else is: a host that was switched off is not one that has failed.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType, structs

from scheduler_worker.conversion import convert
from scheduler_worker.model.claims import ReportedUse, Reservation
from scheduler_worker.model.providers import ResourceProvider
from scheduler_worker.model.sizes import MAX_SIZE, Name, Size
from scheduler_worker.model.virt import VirtHost
from scheduler_worker.wording import listed

COMPUTE = "compute"
"""The compute service of the host; also every report without a source that speaks for it."""
UNNAMED = "unnamed"
"""Reports without a source that do not speak for the compute service."""
SERVICE_DOWN_TIME_S = 60.0
"""A host that has not reported for so many seconds is down, unless an option says otherwise."""
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
    ``updated_at``, as compute agents' reports do, or nothing at all: a bare heartbeat.
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
    groups = before.groups | dict.fromkeys(sorted(groups_of(fields.keys())), now_s)
    updated_at = fields.get("updated_at", before.updated_at)
    after = {**sources, source: structs.replace(before, updated_at=updated_at, groups=groups)}
    if len(after) > MAX_SOURCES:
        del after[min(after.keys() - {source, COMPUTE}, key=lambda name: after[name].reported_at_s)]
    return after


PowerState = Literal["up", "maintenance", "down"]


class HostPower(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a host runs, and whether a balance may change that."""

    state: PowerState = "up"
    by_policy: bool | None = None
    """Whether a balance has put it into this state, and not a person; None: not said, which counts
    as a person where the worker does not know it either."""
    is_managed: bool = False
    """Whether it has power management that is on."""
    is_excluded: bool = False
    """Whether an administrator has excluded it from automatic power management."""
    is_healthy: bool = True
    """Whether outside monitoring finds nothing wrong with it."""

    def after(self, before: "HostPower", asked_for: PowerState | None) -> "HostPower":
        """What a report says, and who did it where it does not say that.

        ``asked_for`` is the state into which a balance is bringing the host; None: into none.
        """
        if self.by_policy is not None:
            return self
        is_kept = self.state == before.state and bool(before.by_policy)
        return structs.replace(self, by_policy=is_kept or self.state == asked_for)


UP = HostPower()
"""The power of a host of which nothing is reported."""


def phrase(to: PowerState) -> str:
    """``up``, ``down`` or ``into maintenance``."""
    return "into maintenance" if to == "maintenance" else to


HOST_SCHEMA = 1

Balance = Annotated[int, Meta(ge=-MAX_SIZE, le=MAX_SIZE)]
"""A free amount: negative when the host is oversubscribed."""
Ratio = Annotated[float, Meta(ge=0.0, le=100_000.0)]
ClusterName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}\Z")]
HvSpec = tuple[str, str, str]
HostState = Literal["up", "down", "disabled"]
"""Whether a host takes VMs: disabled by an operator, or not heard of, forced down, or asleep."""
HOST_STATES: tuple[str, ...] = get_args(HostState)


class HostReport(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One host's report; see ``docs/rpc.md`` for the meaning of every field."""

    host: Name
    uuid: Name | UnsetType = UNSET
    nodename: Name | UnsetType | None = UNSET
    cluster: ClusterName | UnsetType | None = UNSET
    cell_uuid: str | UnsetType | None = UNSET
    source: SourceName | UnsetType | None = UNSET
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
    virt: VirtHost | UnsetType | None = UNSET
    power: HostPower | UnsetType | None = UNSET


_NAMES = ("uuid", "host", "nodename", "cluster")
"""What tells a node from others. Each may change: it is created again, renamed, or moved."""
Names = tuple[str, str, str, str]


class FormerNames(msgspec.Struct, frozen=True, gc=False):
    """Names under which a node was known."""

    names: Names
    until_s: float
    """When a report changed them, by the store's clock."""


RIVALS_S = 600.0
"""If former names return within so many seconds, and again, machines report as one."""
MAX_FORMER_NAMES = 8
"""Former names that are remembered: a bound on the record."""


class HostRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Everything known of one compute node, except its instances and reservations."""

    uuid: str
    host: str
    nodename: str
    cluster: str
    reported_at_s: float
    """When the last report was measured, of whatever source (:func:`measured_at_s`)."""
    vcpus: int
    memory_mb: int
    local_gb: int
    cell_uuid: str | None = None
    compute_reported_at_s: float | None = None
    """When the compute service reported last, 0.0 if never; None: at :attr:`reported_at_s`."""
    sources: dict[str, SourceRecord] = {}
    """Which source reported what and when; empty while only the compute service has reported."""
    updated_at: float | None = None
    """When the compute service's latest dated report was measured, by the host's clock."""
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
    virt: VirtHost | None = None
    power: HostPower = UP
    """As reported last, however long ago: a host that sleeps sends no reports."""
    over_commit_since_s: float | None = None
    """Since when the load has been out of its bounds, by the store's clock; None: it is not."""
    former_names: tuple[FormerNames, ...] = ()
    """The latest ones last; those older than :data:`RIVALS_S` go with the next change of names."""
    contested_at_s: float | None = None
    """When names replaced each other last (:func:`is_contested`), by the store's clock."""
    schema: int = HOST_SCHEMA


USE_FIELDS = frozenset({"vcpus_used", "memory_mb_used", "free_ram_mb", "local_gb_used"})
"""Only a report with one of these is a report of use, which can absorb reservations."""

_REPLACED_BY = {"memory_mb_used": "free_ram_mb", "local_gb_used": "free_disk_gb"}
_ASLEEP = {"maintenance": "it was put into maintenance", "down": "it was switched off"}
_HEARTBEATS = ("last_seen_up", "created_at")
"""Facts of ``service`` that count as liveness: only the compute service may report them."""


def fields_of(report: HostReport) -> dict[str, Any]:
    """The fields that a report carries, without those it leaves unchanged."""
    return {
        name: value
        for name in report.__struct_fields__
        if (value := getattr(report, name)) is not UNSET
    }


def merged(record: HostRecord | None, fields: dict[str, Any], **stamped: Any) -> HostRecord:
    """The record after a report with these fields; ``stamped`` is what the receiver adds.

    An absent field keeps its value and None returns it to its default. Use given without the
    matching free amount makes a stored free amount obsolete.

    Raises msgspec.ValidationError: a required field is neither known nor given.
    """
    known = structs.asdict(record) if record else {}
    if record and is_older_reading(fields.get("resource_providers"), record.resource_providers):
        fields = {name: value for name, value in fields.items() if name != "resource_providers"}
    for used, free in _REPLACED_BY.items():
        if used in fields and free not in fields:
            known.pop(free, None)
    known.update(fields, **stamped, **_of_source(record, fields, stamped["reported_at_s"]))
    known.pop("instances", None)
    if record:
        names = itemgetter(*_NAMES)(known)
        known.update(_of_names(record, names, stamped["reported_at_s"]))
    if known.get("stats"):
        stats = known["stats"].items()
        known["stats"] = {key: "" if value is None else str(value) for key, value in stats}
    present = {name: value for name, value in known.items() if value is not None}
    return convert(present, HostRecord)


names_of: Callable[[HostRecord], Names] = attrgetter(*_NAMES)
"""The present names of a node."""


def _of_names(record: HostRecord, names: Names, now_s: float) -> dict[str, Any]:
    """What a record remembers of its names after a report under these.

    A node that is created again, renamed or moved is known by its former names no more, unless
    somebody undoes the change. Names that return in place of names that had returned belong to
    another machine, or to an agent that disagrees.
    """
    before = names_of(record)
    if names == before:
        return {}
    recent = {each.names: each for each in record.former_names if now_s - each.until_s <= RIVALS_S}
    contested_at_s = now_s if {names, before} <= recent.keys() else record.contested_at_s
    recent.pop(before, None)
    former = (*recent.values(), FormerNames(before, now_s))[-MAX_FORMER_NAMES:]
    return {"former_names": former, "contested_at_s": contested_at_s}


def is_contested(record: HostRecord, now_s: float) -> bool:
    """Whether reports under different names have replaced each other lately."""
    return record.contested_at_s is not None and now_s - record.contested_at_s <= RIVALS_S


def contest_of(record: HostRecord) -> str:
    """The names under which a contested host is reported, in a sentence."""
    known = (names_of(record), *(each.names for each in record.former_names))
    values = zip(_NAMES, map(set, zip(*known, strict=True)), strict=True)
    differing = (f"{name} {listed(sorted(of))}" for name, of in values if len(of) > 1)
    return (
        f"host {record.host} is reported with {' and '.join(differing)} by turns: each report "
        "replaces the one before"
    )


LONGEST_READING_S = 120.0
"""No answer of Placement is waited for so long."""


def is_older_reading(
    reported: Iterable[ResourceProvider] | None, known: Iterable[ResourceProvider]
) -> bool:
    """Whether providers were read before the known ones: by another worker, say.

    Times say when a reading began, and one that began earlier may have ended later. So generations
    decide where they differ: what was allocated between two readings may have no reservation any
    more, and must not be forgotten. But a provider that was deleted and created again begins again
    at generation 0.
    """
    if reported is None:
        return False
    latest_s = max((provider.read_at_s for provider in known), default=0.0)
    read_at_s = max((provider.read_at_s for provider in reported), default=latest_s)
    before = {provider.uuid: provider.generation for provider in known}
    ages = [
        provider.generation - since
        for provider in reported
        if provider.generation is not None and (since := before.get(provider.uuid)) is not None
    ]
    if any(ages) and read_at_s < latest_s + LONGEST_READING_S:
        return min(ages) < 0
    return read_at_s < latest_s


def _of_source(record: HostRecord | None, fields: dict[str, Any], now_s: float) -> dict[str, Any]:
    source = source_of(fields)
    sources = record.sources if record else {}
    if source == COMPUTE:
        # Not stored for hosts of one source: most have no other, and a fleet has many records.
        return {
            "compute_reported_at_s": None,
            "sources": with_report(sources, source, fields, now_s) if sources else {},
        }
    if record and not sources:
        # All that is known so far counts as the compute service's, as of the latest report.
        known = [name for name, value in msgspec.to_builtins(record).items() if value is not None]
        groups = dict.fromkeys(sorted(groups_of(known)), record.reported_at_s)
        sources = {COMPUTE: SourceRecord(record.updated_at, groups)}
    changes = {
        "compute_reported_at_s": compute_reported_at_s(record) if record else 0.0,
        "sources": with_report(sources, source, fields, now_s),
        "updated_at": record.updated_at if record else None,
    }
    if fields.get("service"):
        facts = {key: value for key, value in fields["service"].items() if key not in _HEARTBEATS}
        kept = record.service if record else {}
        changes["service"] = facts | {key: kept[key] for key in _HEARTBEATS if key in kept}
    return changes


def is_outdated(record: HostRecord | None, fields: dict[str, Any]) -> bool:
    """Whether a report was measured before the latest one of the same source.

    Clocks of different agents are not compared: each source's reports are ordered by its own.
    """
    updated_at = fields.get("updated_at")
    if record is None or updated_at is None:
        return False
    source = source_of(fields)
    of_source = record if source == COMPUTE else record.sources.get(source, SourceRecord())
    latest = of_source.updated_at
    return latest is not None and bool(updated_at < latest)


def measured_at_s(record: HostRecord | None, fields: dict[str, Any], now_s: float) -> float:
    """When a report was measured: by its own account, at most now; else now.

    It may have waited in a queue, longer than its host has lived. What a feed reads is as new as
    the reading: ``updated_at`` is when the row changed.
    """
    updated_at = fields.get("updated_at")
    service = fields.get("service") or (record.service if record else {})
    return now_s if updated_at is None or service.get("watched") else min(updated_at, now_s)


def compute_reported_at_s(record: HostRecord) -> float:
    """When the last report of the compute service was measured; 0.0: never.

    Records of a release that knew no sources have :attr:`HostRecord.reported_at_s` alone.
    """
    own_s = record.compute_reported_at_s
    return record.reported_at_s if own_s is None else own_s


def is_watched(record: HostRecord) -> bool:
    """Whether a feed watches the compute service, and reports only when it goes up or down.

    Such a host is alive, however old its record is, until it is reported down.
    """
    return bool(record.service.get("watched"))


def is_silent(record: HostRecord, now_s: float, after_s: float) -> bool:
    """Whether what is known of the host may be out of date: no source reported for so long."""
    if is_watched(record):
        return is_forced_down(record)
    return now_s - record.reported_at_s > after_s


def heartbeat_s(record: HostRecord) -> float:
    """When the compute service was last alive: by its own account, else its latest report.

    Infinity for a host that is watched: each moment until it is reported down.
    """
    if is_watched(record):
        return math.inf
    seen = record.service.get("last_seen_up") or record.service.get("created_at")
    return seconds(seen) if seen else compute_reported_at_s(record)


class UseLimits(NamedTuple):
    """How much of a host may be used."""

    vcpus: int
    memory_mb: int
    disk_mb: int


def limits_of(record: HostRecord) -> UseLimits:
    """(total - reserved for the host) x ratio, of each amount."""
    return UseLimits(
        int((record.vcpus - record.reserved_host_cpus) * record.cpu_allocation_ratio),
        int((record.memory_mb - record.reserved_host_memory_mb) * record.ram_allocation_ratio),
        int((1024 * record.local_gb - record.reserved_host_disk_mb) * record.disk_allocation_ratio),
    )


def reported_use(record: HostRecord) -> ReportedUse:
    """The use that the host reports; a reported free amount counts before a reported use."""
    disk_gb = record.local_gb_used
    if record.free_disk_gb is not None:
        disk_gb = record.local_gb - record.free_disk_gb
    return ReportedUse(
        vcpus=record.vcpus_used,
        memory_mb=record.memory_mb - free_ram_mb(record),
        disk_mb=1024 * disk_gb,
    )


def is_forced_down(record: HostRecord) -> bool:
    """Whether the service counts as down, however recent its heartbeat is.

    So does that of a host in maintenance, or switched off.
    """
    is_up = record.power.state == "up" and record.service.get("up") is not False
    return bool(record.service.get("forced_down")) or not is_up


class HostCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many hosts of a cluster are in each state (:func:`state_of`)."""

    up: int = 0
    disabled: int = 0
    asleep: int = 0
    """Enabled and in maintenance, or switched off."""
    down: int = 0
    """Enabled and silent for too long, or forced down."""


def takes_vms(
    heartbeat_s: Any, disabled: Any, forced_down: Any, now_s: float, down_after_s: float
) -> Any:
    """Whether a host may take VMs: the one rule, for the facts of one host or columns of many.

    Its service is enabled and does not count as down (:func:`is_forced_down`), and its last
    heartbeat (:func:`heartbeat_s`) is at most ``down_after_s`` away. As in Nova one from the future
    counts as one that is as old.
    """
    is_alive = (abs(now_s - heartbeat_s) <= down_after_s) | (heartbeat_s == math.inf)
    return is_alive & ((disabled | forced_down) ^ True)  # a bool, or a column of them


def known_as(record: HostRecord) -> tuple[str, str, str]:
    """What an operator may call a host in any operation: its uuid, its name, its node's name."""
    return record.uuid, record.host, record.nodename


def state_of(record: HostRecord, now_s: float, down_after_s: float) -> HostState:
    """The state of a host: up where :func:`takes_vms` holds."""
    disabled, forced_down = bool(record.service.get("disabled")), is_forced_down(record)
    if takes_vms(heartbeat_s(record), disabled, forced_down, now_s, down_after_s):
        return "up"
    return "disabled" if disabled else "down"


def out_of_service(record: HostRecord) -> str | None:
    """Why the host is out of service, by its operator or its own report; None when it is not."""
    if record.service.get("disabled"):
        why = record.service.get("disabled_reason")
        return "its compute service is disabled" + (f": {why}" if why else "")
    if record.power.state != "up":
        return _ASLEEP[record.power.state] + (" by the policy" if record.power.by_policy else "")
    if record.service.get("forced_down"):
        return "its compute service is forced down"
    if is_forced_down(record):
        why = record.service.get("down_reason")
        return str(why) if why else "its compute service is reported down"
    return None


def seconds(moment: str | float) -> float:
    """Seconds since the epoch of an ISO 8601 text (UTC where it names no zone) or of a number."""
    if isinstance(moment, (int, float)):
        return float(moment)
    parsed = datetime.fromisoformat(moment)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


_MOST = 2**53


def stat(record: HostRecord, name: str) -> int:
    """A counter out of ``stats``, 0 where it is missing or no number that a column holds."""
    try:
        number = int(record.stats.get(name) or 0)
    except ValueError:
        return 0
    return number if abs(number) < _MOST else 0


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


MOVE_SCHEMA = 1


class Move(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The intent to move a host to another cluster; a host has at most one unfinished move."""

    id: str
    """Never used again: a late step of a finished move is recognised by it."""
    host_uuid: str
    to: str
    """The cluster that the host moves to."""
    schema: int = MOVE_SCHEMA


class Departure(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A host that left its cluster. Once packed, it contains all reservations on the host."""

    move: Move
    since_s: float
    """When it left, by the store's clock."""
    host: HostRecord | None = None
    """None: the cluster never had the host, only instances that were announced on it."""
    is_packed: bool = False
    has_arrived: bool = False
    """Whether a worker has seen all of it in the new cluster; see ``Moves``."""
    reservations: tuple[Reservation, ...] = msgspec.field(default=(), name="promises")
    answers: tuple[Reservation, ...] = ()
    instances: dict[str, dict[str, Any]] = {}
    """Instance uuid -> facts, of the instances that are known to be on the host name."""
    announcements: dict[str, float] = {}
    """Which announcements about the host name were read a short while ago, and when."""

    def carries(self, instance_uuid: str) -> bool:
        """Whether it contains a reservation or a remembered answer of the instance."""
        carried = (*self.reservations, *self.answers)
        return any(reservation.instance_uuid == instance_uuid for reservation in carried)
