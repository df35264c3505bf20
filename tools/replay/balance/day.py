"""A day of VMs' demand, arrivals and departures, and failures of hosts, drawn from a seed."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MINUTES = 1440
Demand = npt.NDArray[np.float64]


class Vm(NamedTuple):
    """A VM with its demand, in percent of one CPU, for each minute of the day."""

    id: str
    vcpus: int
    memory_mb: int
    first_minute: int
    last_minute: int
    """It is gone then."""
    can_move: bool
    demand: Demand


class Outage(NamedTuple):
    """A host that fails and returns empty."""

    host: int
    first_minute: int
    last_minute: int


class Day(NamedTuple):
    """All that happens, whatever a balance does."""

    hosts: int
    cpus: int
    """Of each host."""
    memory_mb: int
    """Of each host."""
    vms: list[Vm]
    outages: list[Outage]


def drawn(seed: int, hosts: int, *, cpus: int = 32, outages: int = 4) -> Day:
    """The day of a seed, for a cluster that is half busy on average."""
    rng = np.random.default_rng(seed)
    at_dawn = 12 * hosts
    later = 5 * hosts
    firsts = [0] * at_dawn + sorted(rng.integers(1, MINUTES, later).tolist())
    vms = [_vm(rng, number, first) for number, first in enumerate(firsts)]
    failing = rng.permutation(hosts)[: min(outages, hosts // 4)]
    starts = rng.integers(60, MINUTES - 240, len(failing))
    lengths = rng.integers(20, 120, len(failing))
    return Day(
        hosts=hosts,
        cpus=cpus,
        memory_mb=512 * 1024,
        vms=vms,
        outages=[
            Outage(int(host), int(start), int(start + length))
            for host, start, length in zip(failing, starts, lengths, strict=True)
        ],
    )


def _vm(rng: np.random.Generator, number: int, first: int) -> Vm:
    vcpus = int(rng.choice([1, 2, 4, 8, 16], p=[0.2, 0.3, 0.25, 0.17, 0.08]))
    lasts = MINUTES if rng.random() < 0.6 else first + int(rng.exponential(360)) + 10
    return Vm(
        id=f"vm{number}",
        vcpus=vcpus,
        memory_mb=vcpus * 4096,
        first_minute=first,
        last_minute=min(MINUTES, lasts),
        can_move=rng.random() > 0.05,
        demand=100.0 * vcpus * _share(rng),
    )


def _share(rng: np.random.Generator) -> Demand:
    """Which share of its vCPUs it wants: a level, the hour, noise, and bursts."""
    minutes = np.arange(MINUTES)
    level = rng.beta(2.0, 4.0)
    peak = rng.normal(14 * 60, 150)
    by_hour = 1.0 + 0.35 * np.cos((minutes - peak) * 2 * np.pi / MINUTES)
    share: Demand = level * by_hour + rng.normal(0.0, 0.03, MINUTES)
    for start in rng.integers(0, MINUTES, rng.poisson(5)):
        length = int(rng.lognormal(2.3, 1.0)) + 1
        share[start : start + length] += rng.uniform(0.3, 0.8)
    return np.clip(share, 0.01, 1.0)
