"""A worker that places first-fit, and arrivals for replays against it."""

import threading
from types import SimpleNamespace
from typing import Any

from replay.books import limit_of, size_of, use_of
from replay.streams import Arrival, Plain, flavor

from scheduler_worker.errors import NoValidHost


def arrival(
    number: int, at_s: float = 0.0, lifetime_s: float | None = None, vcpus: int = 1, **spec: Any
) -> Arrival:
    size = flavor("f", vcpus, 1024, root_gb=10)
    return Arrival(at_s, lifetime_s, f"vm-{number}", {"flavor": size, **spec})


class FirstFit:
    """A first-fit scheduler with the client's interface: reservations, absorption.

    ``absorbs`` False: reservations are never absorbed. ``fits`` False: capacity is not checked.
    """

    def __init__(self, *, fits: bool = True, absorbs: bool = True) -> None:
        self.fits, self.absorbs = fits, absorbs
        self.hosts: dict[str, Plain] = {}
        self.reserved: dict[str, tuple[str, Plain]] = {}
        self.aggregates: list[Plain] = []
        self.specs: list[Plain] = []
        self.released: list[str] = []
        self._lock = threading.Lock()

    def update_hosts(self, hosts: list[Plain]) -> dict[str, int]:
        with self._lock:
            for report in hosts:
                self.hosts.setdefault(report["uuid"], {}).update(report)
                if self.absorbs:
                    for instance in report.get("instances", ()):
                        self.reserved.pop(instance["uuid"], None)
        return {}

    def update_aggregates(self, aggregates: list[Plain]) -> None:
        self.aggregates += aggregates

    def select_destinations(self, spec: Plain, instance_uuids: list[str]) -> list[list[Any]]:
        with self._lock:
            self.specs.append(spec)
            for each in self.hosts.values():
                if not self.fits or self._has_room(each, spec["flavor"]):
                    self.reserved[instance_uuids[0]] = (each["uuid"], spec["flavor"])
                    return [[SimpleNamespace(compute_node_uuid=each["uuid"])]]
        raise NoValidHost("There are not enough hosts available.")

    def _held(self, uuid: str) -> list[Plain]:
        return [size for on, size in self.reserved.values() if on == uuid]

    def _has_room(self, report: Plain, size: Plain) -> bool:
        held = self._held(report["uuid"])
        return all(
            report.get(used, 0) + sum(each[name] for each in held) + size[name] <= report[name]
            for name, used in (("vcpus", "vcpus_used"), ("memory_mb", "memory_mb_used"))
        )

    def release(self, instance_uuids: list[str]) -> int:
        with self._lock:
            self.released += instance_uuids
            return sum(self.reserved.pop(uuid, None) is not None for uuid in instance_uuids)

    def explain(self, spec: Plain, instance_uuids: Any = None, *, limit: Any = None) -> Plain:
        verdict = {"host": "h0", "rejected_by": "CoreFilter", "reason": "has 0 of 1 vCPUs free"}
        step = {"name": "CoreFilter", "hosts_in": len(self.hosts), "hosts_out": 0}
        return {"filters": [step], "verdicts": [verdict], "chosen": next(iter(self.hosts), None)}

    def list_hosts(self, *, marker: str | None = None) -> Plain:
        return self._page("hosts", [self._shown(each) for each in self.hosts.values()], marker)

    def _shown(self, report: Plain) -> Plain:
        held = [size_of(each) for each in self._held(report["uuid"])]
        amounts: Plain = {"name": report["host"], "uuid": report["uuid"]}
        for at, (name, factor) in enumerate((("vcpus", 1), ("memory_mb", 1), ("disk_mb", 1024))):
            amounts[name] = {
                "used": use_of(report)[at] * factor,
                "reserved": sum(each[at] for each in held) * factor,
                "limit": limit_of(report)[at] * factor,
            }
        return amounts

    def list_reservations(self, *, marker: str | None = None) -> Plain:
        held = [{"instance_uuid": instance} for instance in self.reserved]
        return self._page("reservations", held, marker)

    @staticmethod
    def _page(key: str, rows: list[Plain], marker: str | None) -> Plain:
        """Of two rows."""
        start = int(marker or 0)
        end = start + 2
        return {key: rows[start:end], "next": str(end) if end < len(rows) else None}
