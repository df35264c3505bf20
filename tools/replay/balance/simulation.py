"""A cluster that lives through a day under one balance."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from replay.balance.day import MINUTES, Day, Vm
from scheduler_worker.model.cluster_load import (
    BalanceMemory,
    ClusterLoad,
    HostLoad,
    Migration,
    VmLoad,
)
from scheduler_worker.model.virt import over_commit_since_s
from scheduler_worker.scheduling.plugin import Balance

HOUR = 60
_MINUTE_MB = 8 * 1024
"""How much of a VM's memory moves in a minute."""
_PERCENT = 100.0


class Outcome(NamedTuple):
    """What a day was like."""

    moves: int
    undone: int
    """Moves of a VM to a host that it had left within the hour."""
    most_in_an_hour: int
    minutes_above: int
    """Minutes of hosts at or above the limit, added up."""
    minutes_full: int
    """Those in which VMs wanted more than the host has."""


class _Moving(NamedTuple):
    destination: int
    done_minute: int


class Simulation:
    """The cluster at a minute of the day."""

    def __init__(self, day: Day, balance: Balance, high_percent: int) -> None:
        self._day = day
        self._balance = balance
        self._high = high_percent
        self._place: dict[str, int] = {}
        self._running: dict[str, Vm] = {}
        self._moving: dict[str, _Moving] = {}
        self._down: set[int] = set()
        self._since_s: list[float | None] = [None] * day.hosts
        self._memory = BalanceMemory()
        self._left: dict[tuple[str, int], int] = {}
        """When a VM has left a host."""
        self._moved_at: list[int] = []
        self._undone = self._above = self._full = 0

    def run(self) -> Outcome:
        """Live through the day."""
        for minute in range(MINUTES):
            self._change(minute)
            hosts = self._observed(minute)
            self._balanced(ClusterLoad(hosts=tuple(hosts)), minute)
        return Outcome(
            moves=len(self._moved_at),
            undone=self._undone,
            most_in_an_hour=max(
                (sum(at <= each < at + HOUR for each in self._moved_at) for at in self._moved_at),
                default=0,
            ),
            minutes_above=self._above,
            minutes_full=self._full,
        )

    # What happens whatever the balance does

    def _change(self, minute: int) -> None:
        self._arrive(minute)
        for vm in [each for each in self._running.values() if each.last_minute <= minute]:
            self._gone(vm)
        for outage in self._day.outages:
            if outage.first_minute == minute:
                self._fail(outage.host, minute)
            elif outage.last_minute == minute:
                self._down.discard(outage.host)
        for each in self._day.vms:
            if each.first_minute == minute:
                self._start(each, minute)

    def _arrive(self, minute: int) -> None:
        for vm, (destination, done) in list(self._moving.items()):
            if done <= minute:
                self._place[vm] = destination
                del self._moving[vm]

    def _gone(self, vm: Vm) -> None:
        del self._running[vm.id], self._place[vm.id]
        self._moving.pop(vm.id, None)

    def _fail(self, host: int, minute: int) -> None:
        self._down.add(host)
        for vm, (destination, _) in list(self._moving.items()):
            if host in {destination, self._place[vm]}:
                del self._moving[vm]
        lost = [self._running[vm] for vm, place in self._place.items() if place == host]
        for each in lost:
            self._gone(each)
        for each in lost:
            self._start(each, minute)

    def _start(self, vm: Vm, minute: int) -> None:
        """On the host with the least load, as the weights of ``evenly_distributed`` choose."""
        loads = self._demands(minute)
        up = [host for host in range(self._day.hosts) if host not in self._down]
        self._running[vm.id] = vm
        self._place[vm.id] = min(up, key=lambda host: (loads[host], host))

    def _demands(self, minute: int) -> list[float]:
        found = [0.0] * self._day.hosts
        for vm, place in self._place.items():
            found[place] += float(self._running[vm].demand[minute])
        return found

    # What the balance sees

    def _observed(self, minute: int) -> list[HostLoad]:
        """The hosts that are up, with what they measure: never more than they have."""
        capacity = _PERCENT * self._day.cpus
        demands = self._demands(minute)
        on: list[list[Vm]] = [[] for _ in demands]
        for vm, place in self._place.items():
            on[place].append(self._running[vm])
        busy = {place for vm, to in self._moving.items() for place in (self._place[vm], to[0])}
        found = []
        for host, demand in enumerate(demands):
            if host in self._down:
                self._since_s[host] = None
                continue
            percent = min(_PERCENT, demand / self._day.cpus)
            self._above += int(percent >= self._high)
            self._full += int(demand > capacity)
            self._since_s[host] = over_commit_since_s(
                math.ceil(percent), self._since_s[host], 60.0 * minute, high=self._high, low=0
            )
            given = min(1.0, capacity / demand) if demand else 1.0
            found.append(
                HostLoad(
                    name=str(host),
                    load=percent * self._day.cpus,
                    shared_cpus=self._day.cpus,
                    free_mb=self._day.memory_mb - sum(vm.memory_mb for vm in on[host]),
                    num_vms=len(on[host]),
                    vms=tuple(self._vms(on[host], minute, given)),
                    out_of_bounds_since_s=self._since_s[host],
                    is_settled=host not in busy,
                )
            )
        return found

    def _vms(self, vms: list[Vm], minute: int, given: float) -> Iterator[VmLoad]:
        for vm in vms:
            yield VmLoad(
                id=vm.id,
                vcpus=vm.vcpus,
                memory_mb=vm.memory_mb,
                cpu_percent=given * float(vm.demand[minute]) / vm.vcpus,
                can_move=vm.can_move and vm.id not in self._moving,
            )

    # What it does

    def _balanced(self, cluster: ClusterLoad, minute: int) -> None:
        """Try the proposals until one migration begins, as oVirt does every minute."""
        now_s = 60.0 * minute
        plan = self._balance.plan(cluster, self._memory, now_s)
        self._memory = plan.memory
        for migration in plan.migrations:
            chosen = _least_loaded(cluster, migration)
            if chosen != migration.source:
                self._begin(migration, int(chosen), minute)
                self._memory = self._memory.with_move(migration.vm, migration.source, chosen, now_s)
                return

    def _begin(self, migration: Migration, destination: int, minute: int) -> None:
        vm = migration.vm
        took = 1 + self._running[vm].memory_mb // _MINUTE_MB
        self._moving[vm] = _Moving(destination, minute + took)
        self._moved_at.append(minute)
        self._undone += minute - self._left.get((vm, destination), -HOUR) < HOUR
        self._left[vm, int(migration.source)] = minute


def _least_loaded(cluster: ClusterLoad, migration: Migration) -> str:
    """The candidate that would have the least load with the VM, as the weights choose."""
    hosts = {host.name: host for host in cluster.hosts}
    [vm] = [each for each in hosts[migration.source].vms if each.id == migration.vm]

    def load(name: str) -> float:
        added = 0.0 if name == migration.source else vm.load
        return hosts[name].mean_percent(added) or 0.0

    return min(migration.candidates, key=lambda name: (round(load(name)), name))
