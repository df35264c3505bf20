"""When the use that a host reports includes the instances that are reserved on it.

"The instance exists" and "the use includes it" are two facts: an agent may list an instance as soon
as its build begins. A reservation that ended with the first alone would be counted nowhere for a
while, and its resources would be reserved again. So an instance that is listed ends its reservation
only once the use accounts for it.

Use is one sum, in which no instance can be told from another. It is divided into what is explained
by instances of which is known what they take, and the *other use*, which is stored with each
reservation as it was when that was made. A report includes the instances that it lists if its use
is at least the other use, plus what the known instances take that it lists, plus what all of those
take that are reserved:

* All reservations that are listed are counted together, from the smallest other use. Were each
  compared alone, the growth by one would end the reservation of another that is only listed yet;
  the sums would come out right, but not the pinned CPUs and devices, which each has of its own.
* Known instances are in the sum because others end while one begins. The growth alone would be
  hidden by a deletion, and the instance would be counted twice until its reservation expires.
* One dimension that an instance takes something of is enough. vCPUs, memory and disk are measured
  at once, while some never grow, such as the disk of an instance that boots from a volume.

What nobody knows of errs to the side of counting twice until the reservation expires, if it ends;
if it begins, it may be taken for an instance that is listed early. So may one that was deleted and
comes again with a report that is older than its deletion.

Usages of providers that were read with their consumers are exact: an instance that is a consumer is
in them, and does not count there (:mod:`~scheduler_worker.model.inventories`). Its reservation ends
when both show it, use and consumers, for the use alone has NUMA cells and devices. It ends, too,
when the instance was a consumer and is none any more: its build failed, or it was deleted.

An *announced* instance (or a confirmed one) is complete: use that was measured later includes it.
If it was there before its reservation was made, an announcement tells of its former size, unless it
names the reserved size.

A build or a move may be slower than reservations last. So news that something is under way with an
instance makes its reservation last again: news of the host where it is reserved, or of the host it
is to leave. News that it has settled on another host since ends the reservation. *Since* is what
tells an instance that was built elsewhere from one that has not moved yet, so it is remembered of
each instance from when it is known or expected on its host.
"""

import operator
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from msgspec import structs

from scheduler_worker.model.claims import ReportedUse, Reservation, Resources
from scheduler_worker.model.host_records import HostRecord
from scheduler_worker.model.inventories import uses_on
from scheduler_worker.model.providers import ResourceProvider

TAKES = "takes"
"""The fact of an instance that says what it takes: vCPUs, MiB of memory, MiB of disk.

It is remembered when the instance's reservation is absorbed, since few reports tell it.
"""

SINCE = "since_s"
"""The fact of an instance that says since when it is known on its host, or was reserved there.

By the store's clock; absent if an earlier release listed it first. It is remembered while the
instance is on the host.
"""

Sizes = tuple[int, int, int]
Facts = Mapping[str, Mapping[str, Any]]
"""Instance uuid -> what is known of it."""
_DIMENSIONS = ("vcpus", "memory_mb", "disk_mb")
_BUILDING = "building"


class UseReport(NamedTuple):
    """A host after a report, as far as it concerns the host's reservations; times in seconds."""

    arrived_at_s: float
    """By the store's clock."""
    measured_at_s: float | None
    """By the host's clock, if the report says so."""
    use: ReportedUse | None
    """The host's use; None if the report tells nothing of it."""
    instances: Facts
    """The instances that are known to be on the host."""
    lists: bool
    """Whether the report named all of them."""
    record: HostRecord | None = None
    """The host with its providers; None: they do not matter."""


def settled(
    reservations: Sequence[Reservation], report: UseReport
) -> tuple[list[Reservation], list[Reservation]]:
    """Divide a host's reservations by a report: absorbed ones, and the others as they are then."""
    ended = _absorbed(reservations, report)
    # What the other use is at most after the report. Use that shrank took some of it away. And an
    # instance whose reservation ended is known from now on, while a reservation that was made
    # meanwhile may have counted it as other use.
    bounds = [each.other_use for each in ended if each.other_use is not None]
    if report.use is not None:
        reserved = {each.instance_uuid for each in reservations}
        bounds.append(other_use(report.use, report.instances, reserved))
    return ended, [_kept(each, report, bounds) for each in reservations if each not in ended]


def withdrawn(reservations: Iterable[Reservation], record: HostRecord) -> list[Reservation]:
    """Those whose instances were consumers of the host's providers and are none any more."""
    return [
        each
        for each in reservations
        if each.allocated_at_s is not None
        and (providers := _providers_of(each, record))
        and all(one.excludes(each.instance_uuid, each.allocated_at_s) for one in providers)
    ]


def other_use(use: ReportedUse, instances: Facts, reserved: Container[str]) -> ReportedUse:
    """The part of a host's use that the instances on it, less the reserved ones, do not explain."""
    return ReportedUse(*map(operator.sub, structs.astuple(use), _known(instances, reserved)))


def remembering(
    instances: Facts, known: Facts, seen_s: float = 0.0, reserved: Iterable[Reservation] = ()
) -> Facts:
    """The instances of a host with new facts, and with what is remembered of known ones.

    Others are on the host since they were ``seen_s``, or since they were ``reserved`` there.
    """
    expected_s = {each.instance_uuid: each.created_at_s for each in reserved}
    after = {uuid: dict(facts) for uuid, facts in instances.items()}
    for uuid, facts in after.items():
        if (before := known.get(uuid)) is None:
            facts[SINCE] = min(seen_s, expected_s.get(uuid, seen_s))
            continue
        for name in (SINCE, TAKES):
            if name in before:
                facts[name] = before[name]
    return after


def takes(resources: Resources) -> Sizes:
    """What an instance takes, as the fact :data:`TAKES`."""
    return resources.vcpus, resources.memory_mb, resources.disk_mb


def lasts(reservation: Reservation, host: str, facts: Mapping[str, Any]) -> bool:
    """Whether these facts of its instance on a host say that a reservation is still needed.

    The instance is being built or worked on where it is reserved; or a task is under way with it
    elsewhere, which may be its move. What is being built elsewhere is on its way from nowhere.
    """
    if host != reservation.host and facts.get("vm_state") == _BUILDING:
        return False
    return _is_under_way(facts)


def is_void(reservation: Reservation, host: str, facts: Mapping[str, Any]) -> bool:
    """Whether these facts of its instance on a host say that a reservation elsewhere is not needed.

    The instance has come to the host since the reservation was made, and nothing is under way with
    it. A uuid alone does not say that. Facts that are announced by a host that the instance has
    left name the host where it is.
    """
    return (
        reservation.host not in {host, facts.get("host")}
        and "vm_state" in facts
        and not _is_under_way(facts)
        and facts.get(SINCE, 0.0) > reservation.created_at_s
    )


def is_complete(reservation: Reservation, announced: Facts, known: Facts) -> bool:
    """Whether an announcement says that what is reserved is there, all of it.

    ``known`` are the host's instances before. One that was there before the reservation was made is
    to be resized; only its new size says that it was.
    """
    facts = announced.get(reservation.instance_uuid)
    if facts is None or _is_under_way(facts):
        return False
    before = known.get(reservation.instance_uuid)
    is_new = before is None or before.get(SINCE, 0.0) >= reservation.created_at_s
    return is_new or _takes(facts) == takes(reservation.resources)


def _is_under_way(facts: Mapping[str, Any]) -> bool:
    """Whether an instance is being built, moved, or otherwise worked on."""
    return facts.get("vm_state") == _BUILDING or facts.get("task_state") is not None


def _absorbed(reservations: Sequence[Reservation], report: UseReport) -> list[Reservation]:
    if report.use is None:
        return []
    if report.lists:
        existing = [each for each in reservations if each.instance_uuid in report.instances]
    else:
        existing = [each for each in reservations if not each.is_pending]
    shown = _shown(existing, report.use, report.instances)
    return [reservation for reservation in existing if _is_over(reservation, report, shown)]


def _is_over(reservation: Reservation, report: UseReport, shown: Set[str]) -> bool:
    """Whether the use has the instance, and usages by consumer may not lack it."""
    announced_at_s, measured_at_s = reservation.announced_at_s, report.measured_at_s
    was_announced = announced_at_s is not None and (
        measured_at_s is None or measured_at_s >= announced_at_s
    )
    is_listed = report.lists or reservation.listed_at_s is not None
    if not (was_announced or (is_listed and _is_included(reservation, shown))):
        return False
    return report.record is None or not any(
        provider.may_lack(reservation.instance_uuid, reservation.created_at_s)
        for provider in _providers_of(reservation, report.record)
    )


def _allocated_at_s(reservation: Reservation, record: HostRecord) -> float | None:
    """When the instance was known to be a consumer of all providers it takes from."""
    providers = _providers_of(reservation, record)
    if reservation.allocated_at_s is not None or not providers:
        return reservation.allocated_at_s
    uuid, since_s = reservation.instance_uuid, reservation.created_at_s
    if all(provider.includes(uuid, since_s) for provider in providers):
        return min(provider.read_at_s for provider in providers)
    return None


def _providers_of(reservation: Reservation, record: HostRecord) -> list[ResourceProvider]:
    """The providers from which a reservation takes, as the host reports them."""
    taken_from = {use.provider for use in uses_on(record, reservation.resources)}
    return [provider for provider in record.resource_providers if provider.uuid in taken_from]


def _shown(existing: Sequence[Reservation], use: ReportedUse, instances: Facts) -> set[str]:
    """The dimensions in which the use accounts for all of these reservations."""
    uses = [reservation.other_use for reservation in existing if reservation.other_use is not None]
    if not uses:
        return set()
    least = _smallest(uses)
    known = _known(instances, {reservation.instance_uuid for reservation in existing})
    reserved = _sum(takes(reservation.resources) for reservation in existing)
    return {
        name
        for name, explained, taken in zip(_DIMENSIONS, known, reserved, strict=True)
        if getattr(use, name) >= getattr(least, name) + explained + taken
    }


def _is_included(reservation: Reservation, shown: Set[str]) -> bool:
    if reservation.other_use is None:
        return True  # An earlier release made it, for which it was enough to be listed.
    taken = [name for name in _DIMENSIONS if getattr(reservation.resources, name)]
    return not taken or not shown.isdisjoint(taken)


def _kept(
    reservation: Reservation, report: UseReport, bounds: Iterable[ReportedUse]
) -> Reservation:
    """A reservation that a report did not end, as it is from then on."""
    listed_at_s, use = reservation.listed_at_s, reservation.other_use
    allocated_at_s = reservation.allocated_at_s
    if report.record is not None:
        allocated_at_s = _allocated_at_s(reservation, report.record)
    if listed_at_s is None and report.lists and reservation.instance_uuid in report.instances:
        listed_at_s = report.arrived_at_s
    if use is not None:
        use = _smallest([use, *bounds])
    return structs.replace(
        reservation, listed_at_s=listed_at_s, other_use=use, allocated_at_s=allocated_at_s
    )


def _smallest(uses: Sequence[ReportedUse]) -> ReportedUse:
    """The smallest in each dimension."""
    return ReportedUse(*map(min, zip(*map(structs.astuple, uses), strict=True)))


def _known(instances: Facts, reserved: Container[str]) -> Sizes:
    """What the instances take that are not reserved, as far as that is known."""
    return _sum(_takes(facts) for uuid, facts in instances.items() if uuid not in reserved)


def _takes(facts: Mapping[str, Any]) -> Sizes:
    """What the reports tell of an instance, else what was remembered, else nothing."""
    if facts.get("vcpus") is None:
        vcpus, memory_mb, disk_mb = facts.get(TAKES, (0, 0, 0))
        return vcpus, memory_mb, disk_mb
    disk_gb = (facts.get("root_gb") or 0) + (facts.get("ephemeral_gb") or 0)
    return facts["vcpus"], facts.get("memory_mb") or 0, 1024 * disk_gb


def _sum(sizes: Iterable[Sizes]) -> Sizes:
    vcpus, memory_mb, disk_mb = map(sum, zip((0, 0, 0), *sizes, strict=True))
    return vcpus, memory_mb, disk_mb
