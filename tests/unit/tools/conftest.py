"""Makes ``tools/`` importable, and offers a worker that places first-fit."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from scheduler_worker.errors import NoValidHost

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))


class FirstFit:
    """A first-fit scheduler with the client's interface: reservations, absorption.

    ``absorbs`` False: reservations are never absorbed. ``fits`` False: capacity is not checked.
    """

    def __init__(self, *, fits=True, absorbs=True):
        self.fits, self.absorbs = fits, absorbs
        self.hosts, self.reserved, self.aggregates = {}, {}, []
        self.specs, self.updates, self.released = [], [], []
        self._lock = threading.Condition()

    def update_hosts(self, hosts):
        with self._lock:
            self.updates.append(hosts)
            for report in hosts:
                self.hosts.setdefault(report["uuid"], {}).update(report)
                if self.absorbs:
                    for instance in report.get("instances", ()):
                        self.reserved.pop(instance["uuid"], None)
            self._lock.notify_all()
        return {"default": len(self.updates)}

    def wait_until(self, condition):
        """Wait for reports that make ``condition()`` true."""
        with self._lock:
            assert self._lock.wait_for(condition, timeout=10)

    def update_aggregates(self, aggregates):
        self.aggregates += aggregates

    def select_destinations(self, spec, instance_uuids):
        with self._lock:
            self.specs.append(spec)
            flavor = spec["flavor"]
            for host in self.hosts.values():
                if not self.fits or self._has_room(host, flavor):
                    self.reserved[instance_uuids[0]] = (host["uuid"], flavor)
                    return [[SimpleNamespace(compute_node_uuid=host["uuid"])]]
        raise NoValidHost("There are not enough hosts available.")

    def _has_room(self, host, flavor):
        mine = [held for uuid, held in self.reserved.values() if uuid == host["uuid"]]
        return all(
            host.get(used, 0) + sum(held[name] for held in mine) + flavor[name] <= host[name]
            for name, used in (("vcpus", "vcpus_used"), ("memory_mb", "memory_mb_used"))
        )

    def release(self, instance_uuids):
        with self._lock:
            self.released += instance_uuids
            return sum(self.reserved.pop(uuid, None) is not None for uuid in instance_uuids)

    def explain(self, spec, instance_uuids=None, *, limit=None):
        verdict = {"host": "h0", "rejected_by": "CoreFilter", "reason": "has 0 of 1 vCPUs free"}
        step = {"name": "CoreFilter", "hosts_in": len(self.hosts), "hosts_out": 0}
        return {"filters": [step], "verdicts": [verdict], "chosen": next(iter(self.hosts), None)}

    def list_hosts(self, *, marker=None):
        return self._page("hosts", [self._shown(each) for each in self.hosts.values()], marker)

    def _shown(self, host):
        from replay.books import limit_of, size_of, use_of

        held = [size_of(flavor) for on, flavor in self.reserved.values() if on == host["uuid"]]
        amounts = {"name": host["host"], "uuid": host["uuid"]}
        for number, (name, factor) in enumerate(
            (("vcpus", 1), ("memory_mb", 1), ("disk_mb", 1024))
        ):
            amounts[name] = {
                "used": use_of(host)[number] * factor,
                "reserved": sum(each[number] for each in held) * factor,
                "limit": limit_of(host)[number] * factor,
            }
        return amounts

    def list_reservations(self, *, marker=None):
        held = [{"instance_uuid": instance} for instance in self.reserved]
        return self._page("reservations", held, marker)

    @staticmethod
    def _page(key, rows, marker, limit=2):
        start = int(marker or 0)
        end = start + limit
        return {key: rows[start:end], "next": str(end) if end < len(rows) else None}


def make_host(number=0, **fields):
    return {
        "uuid": f"host-{number}",
        "host": f"h{number}",
        "vcpus": 4,
        "memory_mb": 8192,
        "local_gb": 100,
        **fields,
    }


def make_arrival(number, at_s=0.0, lifetime_s=None, vcpus=1, **spec):
    from replay.streams import Arrival, flavor

    return Arrival(
        at_s, lifetime_s, f"vm-{number}", {"flavor": flavor("f", vcpus, 1024, root_gb=10), **spec}
    )


@pytest.fixture
def first_fit():
    return FirstFit


@pytest.fixture
def host():
    return make_host


@pytest.fixture
def arrival():
    return make_arrival
