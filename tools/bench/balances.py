"""A round of each balance: load, plan, the check for highly available VMs, the record."""

import argparse
import itertools
import logging
import random
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import structs

from bench import fleet
from bench.table import show
from scheduler_worker import codec
from scheduler_worker import conf as configuration
from scheduler_worker.compose.parts import Parts
from scheduler_worker.model.policies import BalanceUse, ClusterPolicy
from scheduler_worker.scheduling.ovirt import policies

MIB = 2**20
STEP_S = 180.0
"""From one report to the next: longer than a load has to last."""
CHUNK = 1000
_LIMITS = {"MinFreeMemoryForUnderUtilized": "4096", "MaxFreeMemoryForOverUtilized": "1024"}
_SWITCHING = {"EnableAutomaticHostPowerManagement": "true", "HostsInReserve": "1"}


def _policy(base: ClusterPolicy, **parameters: str) -> ClusterPolicy:
    return structs.replace(base, parameters={**base.parameters, **parameters})


BALANCES = {
    "None": policies.NONE,
    "OptimalForEvenDistribution": _policy(policies.EVENLY_DISTRIBUTED, **_LIMITS),
    "OptimalForPowerSaving": _policy(policies.POWER_SAVING, **_LIMITS, **_SWITCHING),
    "OptimalForEvenGuestDistribution": policies.VM_EVENLY_DISTRIBUTED,
    "EvenLoad": structs.replace(policies.NONE, balance=BalanceUse(unit="EvenLoad")),
}


class _Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def time_s(self) -> float:
        return self.now_s

    def monotonic_s(self) -> float:
        return self.now_s


class _Nobody:
    """Whom a dry run sends nothing."""

    def cast(self, **_: object) -> None:
        raise AssertionError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, nargs="+", default=[1000])
    parser.add_argument("--vms", type=int, default=10, help="for each host; default: %(default)s")
    parser.add_argument("--balances", nargs="+", choices=BALANCES, help="default: all")


def run(arguments: argparse.Namespace) -> list[dict]:
    logging.disable(logging.WARNING)
    rows = [
        _row(name, hosts, arguments.vms, room)
        for hosts, room, name in itertools.product(
            arguments.hosts, ("some", "none"), arguments.balances or BALANCES
        )
    ]
    logging.disable(logging.NOTSET)
    show("A round of a balance (dry run; CPU seconds; MB at most that it adds)", rows)
    return rows


def _row(name: str, hosts: int, vms: int, room: str) -> dict:
    bench = _Bench(BALANCES[name], list(_reports(hosts, vms, room)))
    begun_s = time.process_time()
    bench.run()
    took_s = time.process_time() - begun_s
    found = bench.last_round()
    bench.report()
    tracemalloc.start()
    bench.run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "balance": name,
        "hosts": hosts,
        "vms": hosts * vms,
        "room": room,
        "cpu_s": took_s,
        "peak_mb": peak / MIB,
        "proposals": len(found.considered),
        "record_kb": len(msgspec.json.encode(found)) / 1024,
    }


class _Parts(Parts):
    publisher = _Nobody()


class _Bench:
    """A cluster whose loads have lasted for long enough, under a policy."""

    def __init__(self, policy: ClusterPolicy, reports: list[dict]) -> None:
        settings = configuration.settings(configuration.load([]))
        self._reports = reports
        self._clock = _Clock()
        self._parts = parts = _Parts(settings, clock=self._clock)
        self.report()
        parts.policies.settle("default", lambda _: policy)
        self.report()
        self.report()

    def report(self) -> None:
        self._clock.now_s += STEP_S
        for at in range(0, len(self._reports), CHUNK):
            chunk = codec.decode_host_reports(self._reports[at : at + CHUNK])
            self._parts.inventory.update_hosts(chunk)

    def run(self) -> None:
        self._parts.balancer.run_due()

    def last_round(self) -> Any:
        return self._parts.balancing.status("default").last_round


def _reports(hosts: int, vms: int, room: str) -> Iterator[dict]:
    """Some hosts have too much load and many VMs, some have little, some none; others are between.

    Without room no host has the memory that a VM takes.
    """
    rng = random.Random(5)
    for number, report in enumerate(fleet.reports_with_loads(hosts)):
        kind, percent = number % 20, rng.randrange(30, 60)
        count = vms + 1 if kind < 19 else 0
        if kind < 4:
            percent, count = 84, vms + 4
        elif kind < 12:
            percent, count = 10, vms - 2
        virt, memory_mb = report["virt"], report["memory_mb"]
        virt |= {
            "cpu_percent": percent if count else 0,
            "committed_mb": memory_mb // 2 if room == "some" else memory_mb,
            "overcommit_percent": 100,
            "vms": [
                {
                    "id": f"{report['host']}-{at}",
                    "vcpus": 4,
                    "memory_mb": 8192 + 1024 * rng.randrange(8),
                    "cpu_percent": percent * virt["cores"] / count / 4 * rng.uniform(0.5, 1.5),
                    "highly_available": at == 0,
                }
                for at in range(count)
            ],
        }
        yield report | {
            "power": {"is_managed": True},
            "stats": {"num_instances": str(count)},
            "memory_mb_used": memory_mb // 2,
        }
