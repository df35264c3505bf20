"""Records what is on which host, as the fleet's agents would know it, and makes their reports.

Sends nothing itself. Not thread-safe: its owner locks it.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from replay.streams import Plain

RESOURCES = ("vcpus", "memory_mb", "disk_gb")


class Amounts(NamedTuple):
    """vCPUs, MiB of memory, GiB of local disk: of a flavor, of use, or of a limit."""

    vcpus: float
    memory_mb: float
    disk_gb: float

    def plus(self, other: "Amounts", times: int = 1) -> "Amounts":
        """The sum, or the difference with ``times`` -1."""
        return Amounts(
            self.vcpus + times * other.vcpus,
            self.memory_mb + times * other.memory_mb,
            self.disk_gb + times * other.disk_gb,
        )


NOTHING = Amounts(0, 0, 0)


def size_of(flavor: Plain) -> Amounts:
    """The resources of an instance of a flavor; swap counts as disk, in whole GiB."""
    swap_gb = math.ceil(flavor.get("swap", 0) / 1024)
    disk_gb = flavor.get("root_gb", 0) + flavor.get("ephemeral_gb", 0) + swap_gb
    return Amounts(flavor["vcpus"], flavor["memory_mb"], disk_gb)


def limit_of(host: Plain) -> Amounts:
    """(total - reserved) x ratio of a host report or record."""

    def limit(total: str, reserved: float, ratio: str) -> float:
        return float((host[total] - reserved) * (host.get(ratio) or 1.0))

    reserved_disk_gb = (host.get("reserved_host_disk_mb") or 0) / 1024
    return Amounts(
        limit("vcpus", host.get("reserved_host_cpus") or 0, "cpu_allocation_ratio"),
        limit("memory_mb", host.get("reserved_host_memory_mb") or 0, "ram_allocation_ratio"),
        limit("local_gb", reserved_disk_gb, "disk_allocation_ratio"),
    )


def use_of(host: Plain) -> Amounts:
    """The use that a host report or record states."""
    fields = ("vcpus_used", "memory_mb_used", "local_gb_used")
    return Amounts(*(host.get(field) or 0 for field in fields))


class HostBook:
    """One host: its limit, its use, and the instances of the stream that are on it."""

    __slots__ = ("base_stats", "host", "instances", "limit", "nodename", "use", "uuid")

    def __init__(self, report: Plain) -> None:
        self.uuid: str = report["uuid"]
        self.host: str = report["host"]
        self.nodename: str = (
            report.get("nodename") or report.get("hypervisor_hostname") or report["host"]
        )
        self.limit = limit_of(report)
        self.use = use_of(report)
        self.base_stats: Plain = report.get("stats") or {}
        self.instances: dict[str, Plain] = {}

    def report(self) -> Plain:
        """The report of the host's agent: use, and the full list of the stream's instances."""
        residents = int(self.base_stats.get("num_instances", 0))
        return {
            "uuid": self.uuid,
            "host": self.host,
            "nodename": self.nodename,
            "vcpus_used": int(self.use.vcpus),
            "memory_mb_used": int(self.use.memory_mb),
            "local_gb_used": int(self.use.disk_gb),
            "stats": {**self.base_stats, "num_instances": residents + len(self.instances)},
            "instances": list(self.instances.values()),
        }


class _Placed(NamedTuple):
    book: HostBook
    size: Amounts
    group: str | None


class Books:
    """All hosts and the live instances."""

    def __init__(self, reports: Iterable[Plain]) -> None:
        self.hosts = {book.uuid: book for book in map(HostBook, reports)}
        self._placed: dict[str, _Placed] = {}
        self._changed: dict[str, HostBook] = {}
        self._unreported: set[str] = set()
        self._members: dict[str, list[str]] = {}

    def __len__(self) -> int:
        """Live instances of the stream."""
        return len(self._placed)

    def __iter__(self) -> Iterator[HostBook]:
        return iter(self.hosts.values())

    def with_group(self, instance_uuid: str, spec: Plain) -> Plain:
        """The spec as a conductor sends it: with the group's members and hosts so far."""
        group = spec.get("instance_group")
        if not group:
            return spec
        members = self._members.setdefault(group["uuid"], [])
        members.append(instance_uuid)
        placed = (self._placed[uuid] for uuid in members if uuid in self._placed)
        hosts = sorted({each.book.host for each in placed})
        return {**spec, "instance_group": {**group, "members": members.copy(), "hosts": hosts}}

    def place(self, instance_uuid: str, host_uuid: str, spec: Plain) -> None:
        """An instance was started on a host."""
        book, size = self.hosts[host_uuid], size_of(spec["flavor"])
        book.use = book.use.plus(size)
        book.instances[instance_uuid] = {"uuid": instance_uuid, "vm_state": "active"}
        group = spec.get("instance_group")
        self._placed[instance_uuid] = _Placed(book, size, group["uuid"] if group else None)
        self._changed[host_uuid] = book
        self._unreported.add(instance_uuid)

    def end(self, instance_uuid: str) -> bool:
        """Delete an instance; False when no report listed it, so that its reservation remains."""
        book, size, group = self._placed.pop(instance_uuid)
        book.use = book.use.plus(size, -1)
        del book.instances[instance_uuid]
        if group:
            self._members[group].remove(instance_uuid)
        self._changed[book.uuid] = book
        was_reported = instance_uuid not in self._unreported
        self._unreported.discard(instance_uuid)
        return was_reported

    def take_reports(self, *, every_host: bool = False) -> list[Plain]:
        """Reports of the hosts that changed since the last time, or of all of them."""
        changed = self.hosts if every_host else self._changed
        reports = [book.report() for book in changed.values()]
        self._changed = {}
        self._unreported.clear()
        return reports


def totals(books: Iterable[HostBook]) -> tuple[Amounts, Amounts]:
    """Use and limit of all hosts together."""
    use = limit = NOTHING
    for book in books:
        use, limit = use.plus(book.use), limit.plus(book.limit)
    return use, limit


def shares(use: Amounts, limit: Amounts) -> dict[str, Any]:
    """Use as a share of the limit, for each resource that there is."""
    return {
        name: round(getattr(use, name) / getattr(limit, name), 4)
        for name in RESOURCES
        if getattr(limit, name) > 0
    }
