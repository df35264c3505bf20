"""A data centre for tests of balancing: hosts that report what runs on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from scheduler_worker.client import SchedulerClient
from scheduler_worker.rpc.transport import Bus
from tests.support.balancers import busy_host
from tests.support.patience import SOON_S

INTERVAL_S = 0.3
MOST = 6
"""VMs from which on a host has too many."""
REPORT_S = 0.1
POLICY = {
    "id": "even",
    "name": "even",
    "version": 1,
    "weights": [{"unit": "RAMWeigher"}],
    "balance": {"unit": "OptimalForEvenGuestDistribution"},
    "parameters": {"HighVmCount": str(MOST), "MigrationThreshold": "2", "SpmVmGrace": "1"},
}
VMS = {
    "a": {f"a{number}": 10.0 for number in range(9)},
    "b": {"b0": 10.0},
    "c": {"c0": 340.0},  # a single VM, but a load of 85 %
    "d": {},
}
"""Host -> VM -> percent of one CPU that it uses."""
MEMORY_MB = {"a": 65536, "b": 65536, "c": 262144, "d": 65536}
"""The busy host has the most: the policy's weight would choose it."""


class Datacenter:
    """Hosts that report what runs on them."""

    def __init__(self, bus: Bus) -> None:
        self.vms: dict[str, dict[str, float]] = {host: dict(vms) for host, vms in VMS.items()}
        self.changed = threading.Condition()
        self.client = SchedulerClient(bus)
        self._stopping = threading.Event()
        self._reporter = threading.Thread(target=self._report_all, daemon=True)

    def start(self) -> None:
        self.report()
        self._reporter.start()

    def report(self) -> None:
        with self.changed:
            hosts = [
                busy_host(host, "default", **vms) | {"memory_mb": MEMORY_MB[host]}
                for host, vms in self.vms.items()
            ]
        self.client.update_hosts(hosts)

    def _report_all(self) -> None:
        while not self._stopping.wait(REPORT_S):
            self.report()

    def choose(self, vm: str, source: str) -> str:
        """A destination, asked for as for any live migration. Raises NoValidHost."""
        spec = {
            "flavor": {"vcpus": 1, "memory_mb": 64, "root_gb": 0},
            "ignore_hosts": [source],
            "instance_uuid": vm,
        }
        [[chosen]] = self.client.select_destinations(spec, [vm])
        return chosen.service_host

    def move(self, vm: str, source: str, destination: str) -> None:
        """The VM runs elsewhere, and all know it."""
        with self.changed:
            self.vms[destination][vm] = self.vms[source].pop(vm)
            self.changed.notify_all()
        self.report()
        self.client.release([vm])

    def wait_for(self, what: Callable[[], Any]) -> None:
        """Until the condition holds of what has been asked for or has moved."""
        with self.changed:
            assert self.changed.wait_for(what, SOON_S), self.vms

    def close(self) -> None:
        self._stopping.set()
        self._reporter.join(SOON_S)


def round_of_another(client: SchedulerClient, killed: str) -> None:
    """Wait for a whole round of a worker that took over."""
    first = None
    for found in rounds(client):
        if found["worker"] != killed and found["last_round"]:
            first = first or found["last_round"]["at"]
            if found["last_round"]["at"] > first:
                return


def rounds(client: SchedulerClient) -> Iterator[dict[str, Any]]:
    """The cluster's balancing again and again; fails after a while."""
    deadline_s = time.monotonic() + SOON_S
    while time.monotonic() < deadline_s:
        yield client.get_balancing("default")
    raise AssertionError(client.get_balancing("default"))
