"""Host records: everything known of each compute node.

Field names are Nova's ``ComputeNode`` ones; sizes are MiB and GiB as their names say, times are
seconds since the epoch. What hosts report is declared once, in the annotations of
:class:`HostRecord`: :class:`.Fact`.

A host that sleeps sends no reports itself, so whoever manages its power reports that. What was
reported holds until something else is: a host that was switched off is not one that has failed.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta, structs

from scheduler_worker.model.claims import ReportedUse
from scheduler_worker.model.facts import OWN, Fact, facts_of
from scheduler_worker.model.providers import ResourceProvider
from scheduler_worker.model.sizes import MAX_SIZE, Size
from scheduler_worker.model.virt import VirtHost
from scheduler_worker.wording import listed

COMPUTE = "compute"
"""The compute service of the host; also every report without a source that speaks for it."""
SERVICE_DOWN_TIME_S = 60.0
"""A host that has not reported for so many seconds is down, unless an option says otherwise."""


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


NAMES = ("uuid", "host", "nodename", "cluster")
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

    uuid: Annotated[
        str,
        Fact(
            "",
            attribute=OWN,
            text="**required**: of its compute node, always the same. Another `uuid` with the same "
            "names replaces the node and keeps its reservations. If former names come back again "
            "and again within ten minutes, Health names the host",
        ),
    ]
    host: Annotated[str, Fact("", attribute=OWN, text="**required** in every report: its name")]
    nodename: Annotated[
        str, Fact("", attribute=OWN, text="defaults to `hypervisor_hostname`, then `host`")
    ]
    cluster: Annotated[
        str,
        Fact(
            "",
            text="its cluster and cell. Another cluster moves the host there with its reservations",
        ),
    ]
    reported_at_s: float
    """When the last report was measured, of whatever source (:func:`.measured_at_s`)."""
    vcpus: Annotated[
        int,
        Fact(
            "capacity",
            Size,
            column="vcpus_total",
            unit="vCPU",
            attribute="vcpus_total",
            text="**required**: capacity",
        ),
    ]
    memory_mb: Annotated[
        int,
        Fact(
            "capacity",
            Size,
            column="total_usable_ram_mb",
            unit="MiB",
            attribute="total_usable_ram_mb",
        ),
    ]
    local_gb: Annotated[
        int,
        Fact(
            "capacity",
            Size,
            column="total_usable_disk_gb",
            unit="GiB",
            attribute="total_usable_disk_gb",
        ),
    ]
    cell_uuid: Annotated[str | None, Fact("", attribute=OWN)] = None
    compute_reported_at_s: float | None = None
    """When the compute service reported last, 0.0 if never; None: at :attr:`reported_at_s`."""
    sources: dict[str, SourceRecord] = {}
    """Which source reported what and when; empty while only the compute service has reported."""
    updated_at: Annotated[
        float | None,
        Fact(
            "",
            attribute="updated",
            text="time of measurement, ISO 8601 or seconds since 1970. If it is older than the "
            "last report of the source, the report is ignored. Of a Nova object it is not read: "
            "there it is when the row changed",
        ),
    ] = None
    """When the compute service's latest dated report was measured, by the host's clock."""
    vcpus_used: Annotated[
        int, Fact("use", Size, column=OWN, unit="vCPU", attribute=OWN, text="use")
    ] = 0
    memory_mb_used: Annotated[int, Fact("use", Size)] = 0
    free_ram_mb: Annotated[int | None, Fact("use", Balance)] = None
    local_gb_used: Annotated[int, Fact("use", Size)] = 0
    free_disk_gb: Annotated[int | None, Fact("use", Balance)] = None
    disk_available_least: Annotated[int | None, Fact("use", Balance)] = None
    cpu_allocation_ratio: Annotated[
        float,
        Fact(
            "allocation",
            Ratio,
            column=OWN,
            attribute=OWN,
            text="overcommitment; absent or 0: the configured default",
        ),
    ] = 1.0
    ram_allocation_ratio: Annotated[float, Fact("allocation", Ratio, column=OWN, attribute=OWN)] = (
        1.0
    )
    disk_allocation_ratio: Annotated[
        float, Fact("allocation", Ratio, column=OWN, attribute=OWN)
    ] = 1.0
    reserved_host_cpus: Annotated[
        int, Fact("allocation", Size, column=OWN, unit="vCPU", text="kept for the host itself")
    ] = 0
    reserved_host_memory_mb: Annotated[int, Fact("allocation", Size, column=OWN, unit="MiB")] = 0
    reserved_host_disk_mb: Annotated[int, Fact("allocation", Size, column=OWN, unit="MiB")] = 0
    hypervisor_type: Annotated[
        str | None, Fact("hypervisor", attribute=OWN, text="what it is, in Nova's forms")
    ] = None
    hypervisor_version: Annotated[int, Fact("hypervisor", Size, column=OWN, attribute=OWN)] = 0
    hypervisor_hostname: Annotated[str | None, Fact("hypervisor", attribute=OWN)] = None
    host_ip: Annotated[str | None, Fact("hypervisor", attribute=OWN)] = None
    cpu_info: Annotated[str | dict[str, Any] | None, Fact("hypervisor", attribute=OWN)] = None
    supported_hv_specs: Annotated[
        tuple[HvSpec, ...], Fact("hypervisor", attribute="supported_instances")
    ] = ()
    numa_topology: Annotated[
        dict[str, Any] | str | None,
        Fact(
            OWN,
            attribute=OWN,
            text="in Nova's forms; of `stats`, the worker reads `num_instances`, `io_workload` and "
            "`failed_builds`",
        ),
    ] = None
    pci_device_pools: Annotated[tuple[dict[str, Any], ...], Fact(OWN, list[dict[str, Any]])] = ()
    stats: Annotated[
        dict[str, str], Fact(OWN, dict[str, str | int | float | bool | None], attribute=OWN)
    ] = {}
    metrics: Annotated[
        tuple[dict[str, Any], ...], Fact(OWN, list[dict[str, Any]], attribute=OWN)
    ] = ()
    traits: Annotated[tuple[str, ...], Fact(OWN)] = ()
    networks: Annotated[tuple[str, ...], Fact(OWN)] = ()
    resource_providers: Annotated[
        tuple[ResourceProvider, ...],
        Fact(
            OWN,
            list[ResourceProvider],
            text="`{uuid, name, parent_provider_uuid, inventories, usages, traits, aggregates}` "
            "each. Inventories of the host's own `uuid` replace its capacity",
        ),
    ] = ()
    service: Annotated[
        dict[str, Any],
        Fact(
            OWN,
            attribute=OWN,
            text="`{disabled, disabled_reason, up, forced_down, last_seen_up}`, or Nova's "
            "`Service`",
        ),
    ] = {}
    load: Annotated[
        dict[str, Any],
        Fact(OWN, text="statistics for [Tuning](tuning.md) and [Balancing](balancing.md)"),
    ] = {}
    vms: Annotated[dict[str, Any] | list[Any], Fact(OWN)] = {}
    virt: Annotated[VirtHost | None, Fact(OWN, text="see below; each is replaced as a whole")] = (
        None
    )
    power: Annotated[HostPower, Fact(OWN)] = UP
    """As reported last, however long ago: a host that sleeps sends no reports."""
    over_commit_since_s: float | None = None
    """Since when the load has been out of its bounds, by the store's clock; None: it is not."""
    former_names: tuple[FormerNames, ...] = ()
    """The latest ones last; those older than :data:`RIVALS_S` go with the next change of names."""
    contested_at_s: float | None = None
    """When names replaced each other last (:func:`is_contested`), by the store's clock."""
    schema: int = HOST_SCHEMA


HOST_FACTS = facts_of(HostRecord)
"""Field -> its type and what it is; the worker itself adds the other fields."""
FIELD_OF = {fact.attribute: name for name, (_, fact) in HOST_FACTS.items() if fact.attribute}
"""Attribute of extra specs and queries -> the field with its value."""

_ASLEEP = {"maintenance": "it was put into maintenance", "down": "it was switched off"}
names_of: Callable[[HostRecord], Names] = attrgetter(*NAMES)
"""The present names of a node."""


def is_contested(record: HostRecord, now_s: float) -> bool:
    """Whether reports under different names have replaced each other lately."""
    return record.contested_at_s is not None and now_s - record.contested_at_s <= RIVALS_S


def contest_of(record: HostRecord) -> str:
    """The names under which a contested host is reported, in a sentence."""
    known = (names_of(record), *(each.names for each in record.former_names))
    values = zip(NAMES, map(set, zip(*known, strict=True)), strict=True)
    differing = (f"{name} {listed(sorted(of))}" for name, of in values if len(of) > 1)
    return (
        f"host {record.host} is reported with {' and '.join(differing)} by turns: each report "
        "replaces the one before"
    )


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
