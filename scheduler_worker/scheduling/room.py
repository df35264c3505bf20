"""Adds up the room of hosts: by zone, by what limits them, and by what rejects them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from scheduler_worker.model.capacity import ClusterCapacity, FlavorCapacity, Limited, Lost
from scheduler_worker.model.hosts import Mask
from scheduler_worker.model.policies import PolicyReference
from scheduler_worker.scheduling.capacity import NOTHING, HostRoom
from scheduler_worker.scheduling.first_refusal import UNBOUNDED


def of_cluster(cluster: str, policy: PolicyReference, room: HostRoom) -> ClusterCapacity:
    """The capacity of a cluster for one kind of instance."""
    left = room.lost_to < 0
    limited = dict(sorted(_limited(room, left), key=lambda each: -each[1].hosts))
    return ClusterCapacity(
        cluster=cluster,
        policy=policy,
        instances=_sum(room, left),
        is_exact=room.is_exact,
        hosts=len(left),
        fitting_hosts=int(np.count_nonzero(room.instances[left])),
        runs_out_first=_most((name, each.hosts) for name, each in limited.items()),
        zones=_by_zone(room, left),
        limited_by=limited,
        lost_to=dict(_lost(room)),
    )


def of_flavor(name: str, clusters: Sequence[ClusterCapacity]) -> FlavorCapacity:
    """The capacity of all clusters for one flavor."""
    counts = [each.instances for each in clusters]
    hosts: dict[str, int] = {}
    for each in clusters:
        for limit, found in each.limited_by.items():
            hosts[limit] = hosts.get(limit, 0) + found.hosts
    return FlavorCapacity(
        name=name,
        instances=None if None in counts else sum(count or 0 for count in counts),
        is_exact=all(each.is_exact for each in clusters),
        runs_out_first=_most(hosts.items()),
        clusters=tuple(clusters),
    )


def _limited(room: HostRoom, left: Mask) -> Iterator[tuple[str, Limited]]:
    for number, name in enumerate(room.limits):
        of_it = left & (room.limited_by == number)
        if of_it.any():
            full = int(np.count_nonzero(of_it & (room.instances == 0)))
            yield name, Limited(hosts=int(np.count_nonzero(of_it)), full_hosts=full)


def _lost(room: HostRoom) -> Iterator[tuple[str, Lost]]:
    for number, name in enumerate(room.filters):
        of_it = room.lost_to == number
        if of_it.any():
            yield name, Lost(hosts=int(np.count_nonzero(of_it)), instances=_sum(room, of_it))


def _sum(room: HostRoom, rows: Mask) -> int | None:
    """None: a host among them takes any number."""
    counts = room.instances[rows]
    return None if (counts >= UNBOUNDED).any() else int(counts.sum())


def _most(counts: Iterable[tuple[str, int]]) -> str | None:
    """The name with the highest count, of those that limit anything; the first among equals."""
    found = [each for each in counts if each[0] != NOTHING]
    return max(found, key=lambda each: each[1])[0] if found else None


def _by_zone(room: HostRoom, left: Mask) -> dict[str, int | None]:
    numbers, zones = room.zones
    hosts = np.bincount(numbers, minlength=len(zones))
    endless = np.bincount(numbers[left & (room.instances >= UNBOUNDED)], minlength=len(zones))
    sums = np.bincount(numbers, np.where(left, room.instances, 0), minlength=len(zones))
    found: dict[str, int | None] = {}
    for number in np.flatnonzero(hosts).tolist():
        before = found.get(zones[number], 0)
        bounded = before is not None and not endless[number]
        found[zones[number]] = (
            before + int(sums[number]) if bounded and before is not None else None
        )
    return dict(sorted(found.items()))
