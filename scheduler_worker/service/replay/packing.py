"""How full the hosts of a snapshot are, and how evenly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, pstdev

from scheduler_worker.model.claims import Resources
from scheduler_worker.model.host_records import limits_of, reported_use
from scheduler_worker.model.rehearsals import Packing, UseSpread
from scheduler_worker.service.replay.snapshot import Snapshot, hosts_in, reservations_in

AMOUNTS = ("vcpus", "memory_mb", "disk_mb")


def packing_of(snapshot: Snapshot) -> list[Packing]:
    """That of each cluster, by name."""
    return [_of_cluster(name, snapshot.scopes[name]) for name in sorted(snapshot.clusters)]


def _of_cluster(name: str, found: dict[str, bytes]) -> Packing:
    reserved: defaultdict[str, list[Resources]] = defaultdict(list)
    for _, each in reservations_in(found):
        reserved[each.host_uuid].append(each.resources)
    shares: dict[str, list[float]] = {amount: [] for amount in AMOUNTS}
    hosts = unused = 0
    for host in hosts_in(found):
        hosts += 1
        limits, reported, held = limits_of(host), reported_use(host), reserved[host.uuid]
        used = {
            amount: getattr(reported, amount) + sum(getattr(each, amount) for each in held)
            for amount in AMOUNTS
        }
        unused += used["memory_mb"] <= host.reserved_host_memory_mb
        for amount in AMOUNTS:
            if limit := getattr(limits, amount):
                shares[amount].append(100 * used[amount] / limit)
    return Packing(
        cluster=name,
        hosts=hosts,
        unused=unused,
        use={amount: _spread(some) for amount, some in shares.items() if some},
    )


def _spread(shares: Sequence[float]) -> UseSpread:
    return UseSpread(round(fmean(shares), 2), round(pstdev(shares), 2))
