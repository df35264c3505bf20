"""Host reports, and how they are merged into the records of hosts.

A :class:`HostReport` has only what changed (:data:`msgspec.UNSET` = unchanged, None = cleared); a
:class:`.HostRecord` is the whole.

Several *sources* may report one host: its compute service, a collector of metrics, a script that
sets traits. A report names its source, or none; a source's reports are ordered among themselves,
and only the compute service's reports are heartbeats.
"""

from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType, structs

from scheduler_worker.conversion import convert
from scheduler_worker.model.facts import OWN, Fact, facts_of
from scheduler_worker.model.host_records import (
    COMPUTE,
    HOST_FACTS,
    MAX_FORMER_NAMES,
    NAMES,
    RIVALS_S,
    ClusterName,
    FormerNames,
    HostRecord,
    Names,
    SourceRecord,
    compute_reported_at_s,
    names_of,
)
from scheduler_worker.model.providers import ResourceProvider
from scheduler_worker.model.sizes import Name

UNNAMED = "unnamed"
"""Reports without a source that do not speak for the compute service."""
MAX_SOURCES = 8
"""Sources remembered of a host: a bound on the record, should a source's name vary."""

SourceName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}\Z")]
LONGEST_READING_S = 120.0
"""No answer of Placement is waited for so long."""


class ReportHead(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Which host a report is about, who measured it and when, and which instances it has."""

    host: Name
    uuid: Name | UnsetType = UNSET
    nodename: Name | UnsetType | None = UNSET
    cluster: ClusterName | UnsetType | None = UNSET
    cell_uuid: str | UnsetType | None = UNSET
    source: Annotated[
        SourceName | UnsetType | None,
        Fact("", text="the agent that reports: `compute`, or another name such as `metrics-agent`"),
    ] = UNSET
    updated_at: float | UnsetType | None = UNSET
    instances: Annotated[
        list[dict[str, Any]] | UnsetType | None,
        Fact(
            OWN,
            text="all instances on the host, as dicts, `Instance` objects or uuids. Their "
            "reservations end when the use includes them. `vm_state` and `task_state` say whether "
            "an instance is on its way, and that it was built elsewhere. They count for the "
            "filters, see below",
        ),
    ] = UNSET


if TYPE_CHECKING:

    class _Facts(ReportHead, frozen=True, gc=False, kw_only=True, omit_defaults=True):
        """The facts that code names; the others are derived alike."""

        hypervisor_hostname: str | UnsetType | None = UNSET
        resource_providers: list[ResourceProvider] | UnsetType | None = UNSET
        service: dict[str, Any] | UnsetType | None = UNSET

else:
    _Facts = msgspec.defstruct(
        "_Facts",
        [
            (name, (fact.reported or kind) | UnsetType | None, UNSET)
            for name, (kind, fact) in HOST_FACTS.items()
            if fact.group
        ],
        bases=(ReportHead,),
        frozen=True,
        gc=False,
        kw_only=True,
        omit_defaults=True,
    )


class HostReport(_Facts, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One host's report; see ``docs/rpc.md`` for the meaning of every field."""


FACT_OF = {name: fact for name, (_, fact) in (HOST_FACTS | facts_of(ReportHead)).items()}
"""Report field -> what it is."""
GROUP_OF = {name: fact.group for name, fact in FACT_OF.items() if fact.group}
"""Report field -> its group; identity, ``cluster`` and times are in none."""

_OF_COMPUTE = frozenset(
    {name for name, group in GROUP_OF.items() if group in {"capacity", "use", "service"}}
    | {"updated_at"}
)
"""Fields that only compute agents report: a report without a source that has one is theirs."""
USE_FIELDS = frozenset({"vcpus_used", "memory_mb_used", "free_ram_mb", "local_gb_used"})
"""Only a report with one of these is a report of use, which can absorb reservations."""
_REPLACED_BY = {"memory_mb_used": "free_ram_mb", "local_gb_used": "free_disk_gb"}
_HEARTBEATS = ("last_seen_up", "created_at")
"""Facts of ``service`` that count as liveness: only the compute service may report them."""

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
        names = itemgetter(*NAMES)(known)
        known.update(_of_names(record, names, stamped["reported_at_s"]))
    if known.get("stats"):
        stats = known["stats"].items()
        known["stats"] = {key: "" if value is None else str(value) for key, value in stats}
    present = {name: value for name, value in known.items() if value is not None}
    return convert(present, HostRecord)


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
