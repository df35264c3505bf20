"""What hosts say of instances, applied to the reservations of these instances on any host.

A reservation says where an instance is to come. Only the host where it is may say that it is on its
way, or that it went elsewhere. These may be hosts of two clusters, so what a message says of its
own host is stored first. Nothing is lost if this fails then: the next message says the same.
"""

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from msgspec import structs

from scheduler_worker.errors import Conflict
from scheduler_worker.model.claims import Reservation
from scheduler_worker.ports import Transaction
from scheduler_worker.scheduling.absorption import Facts, is_void, lasts
from scheduler_worker.service.state import records, reservations
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.service.state.writing import WritePlan, Writer


class _Sighting(NamedTuple):
    """A reservation, and what a host says of its instance."""

    reservation: Reservation
    host: str
    facts: Mapping[str, Any]


class Sightings:
    """Reservations last for ``ttl_s`` from when their instances are known to be on the way."""

    def __init__(self, fleet: Fleet, writer: Writer, *, ttl_s: float) -> None:
        self._fleet = fleet
        self._writer = writer
        self._ttl_s = ttl_s

    def last(self, host: str, instances: Facts) -> bool:
        """Whether reservations last longer if a host lists these instances."""
        return any(
            lasts(*seen)
            for replica in self._fleet.clusters()
            for seen in _sightings(replica, {host: instances})
        )

    def follow(self, news: Mapping[str, Facts]) -> dict[str, int]:
        """Keep or end reservations; ``news`` has the instances that were named of each host.

        Returns the version of each cluster that was written. Raises StateUnavailable.
        """
        versions: dict[str, int] = {}
        for replica in self._fleet.clusters():
            concerned = [
                seen for seen in _sightings(replica, news) if lasts(*seen) or is_void(*seen)
            ]
            if concerned:
                with contextlib.suppress(Conflict):
                    plan = partial(self._plan, replica)
                    versions[replica.scope] = self._writer.write(replica, concerned, plan)
        return versions

    def _plan(self, replica: ClusterReplica, seen: _Sighting, now_s: float) -> WritePlan | None:
        reservation = replica.reservations.get(seen.reservation.id)
        if reservation is None:
            return None
        guards = reservations.guards(replica, [reservation])
        if is_void(reservation, seen.host, seen.facts):
            puts = reservations.given_back([reservation])
            return WritePlan(Transaction(puts, guards), {"released": 1})
        if not lasts(*seen):
            return None
        expires_at_s = max(reservation.expires_at_s, now_s + self._ttl_s)
        longer = structs.replace(reservation, expires_at_s=expires_at_s)
        return WritePlan(Transaction([records.put_reservation(longer)], guards))


def _sightings(replica: ClusterReplica, news: Mapping[str, Facts]) -> Iterator[_Sighting]:
    """The reservations of a cluster for the instances of these hosts."""
    if not replica.reservations:
        return
    with replica.lock:
        found = [
            _Sighting(reservation, host, facts)
            for host, instances in news.items()
            for uuid, facts in instances.items()
            for reservation in replica.reservations_of(uuid)
        ]
    yield from found
