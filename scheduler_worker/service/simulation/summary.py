"""The result of a rehearsal: how often it came to the same, what changed, how full hosts became."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import get_args

from scheduler_worker.model.claims import Resources
from scheduler_worker.model.host_records import limits_of, reported_use
from scheduler_worker.model.rehearsals import (
    BeforeAfter,
    Change,
    ChangedDecision,
    Packing,
    PackingChange,
    RehearsalSummary,
    UseSpread,
)
from scheduler_worker.service.simulation.copies import Snapshot, hosts_in, reservations_in

_AMOUNTS = ("vcpus", "memory_mb", "disk_mb")


def summarized(
    found: Sequence[ChangedDecision],
    left_out: Mapping[str, int],
    before: Snapshot,
    after: Snapshot,
    *,
    most: int | None = None,
) -> RehearsalSummary:
    """The summary of all decisions; ``most`` bounds the changes of each kind, None: all."""
    counts: Counter[Change] = Counter()
    changes = []
    for each in found:
        counts[each.change] += 1
        if each.change != "same" and (most is None or counts[each.change] <= most):
            changes.append(each)
    placed = BeforeAfter(
        sum(bool(each.hosts_before) for each in found), sum(bool(each.hosts) for each in found)
    )
    return RehearsalSummary(
        rehearsed=len(found),
        left_out=dict(left_out),
        placed=placed,
        refused=BeforeAfter(len(found) - placed.before, len(found) - placed.after),
        counts={change: counts[change] for change in get_args(Change)},
        changes=changes,
        packing=PackingChange(packing_of(before), packing_of(after)),
    )


def packing_of(snapshot: Snapshot) -> list[Packing]:
    """How full the hosts of each cluster are, by name, and how evenly."""
    return [_of_cluster(name, snapshot.scopes[name]) for name in sorted(snapshot.clusters)]


def _of_cluster(name: str, found: dict[str, str]) -> Packing:
    reserved: defaultdict[str, list[Resources]] = defaultdict(list)
    for each in reservations_in(found):
        reserved[each.host_uuid].append(each.resources)
    shares: dict[str, list[float]] = {amount: [] for amount in _AMOUNTS}
    hosts = unused = 0
    for host in hosts_in(found):
        hosts += 1
        limits, reported, held = limits_of(host), reported_use(host), reserved[host.uuid]
        used = {
            amount: getattr(reported, amount) + sum(getattr(each, amount) for each in held)
            for amount in _AMOUNTS
        }
        unused += used["memory_mb"] <= host.reserved_host_memory_mb
        for amount in _AMOUNTS:
            if limit := getattr(limits, amount):
                shares[amount].append(100 * used[amount] / limit)
    return Packing(
        cluster=name,
        hosts=hosts,
        unused=unused,
        use={
            amount: UseSpread(round(fmean(some), 2), round(pstdev(some), 2))
            for amount, some in shares.items()
            if some
        },
    )
