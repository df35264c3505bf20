"""What is heard of instances on one host, applied to their reservations on others.

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


class _Heard(NamedTuple):
    """A reservation, and what was heard of its instance on a host."""

    reservation: Reservation
    host: str
    facts: Mapping[str, Any]


class ReservationsElsewhere:
    """Reservations last for ``ttl_s`` from when their instances are known to be on the way."""

    def __init__(self, fleet: Fleet, writer: Writer, *, ttl_s: float) -> None:
        self._fleet = fleet
        self._writer = writer
        self._ttl_s = ttl_s

    def last(self, host: str, instances: Facts) -> bool:
        """Whether reservations last longer, here or elsewhere, if a host lists these instances."""
        return any(
            lasts(*heard)
            for replica in self._fleet.clusters()
            for heard in _heard(replica, {host: instances})
        )

    def follow(self, news: Mapping[str, Facts]) -> dict[str, int]:
        """Keep or end reservations on other hosts; ``news`` has the instances of each host.

        Returns the version of each cluster that was written. Raises StateUnavailable.
        """
        versions: dict[str, int] = {}
        for replica in self._fleet.clusters():
            concerned = [
                heard
                for heard in _heard(replica, news)
                if heard.host != heard.reservation.host and (lasts(*heard) or is_void(*heard))
            ]
            if concerned:
                with contextlib.suppress(Conflict):
                    plan = partial(self._plan, replica)
                    versions[replica.scope] = self._writer.write(replica, concerned, plan)
        return versions

    def _plan(self, replica: ClusterReplica, heard: _Heard, now_s: float) -> WritePlan | None:
        reservation = replica.reservations.get(heard.reservation.id)
        if reservation is None:
            return None
        guards = reservations.guards(replica, [reservation])
        if is_void(reservation, heard.host, heard.facts):
            puts = reservations.given_back([reservation])
            return WritePlan(Transaction(puts, guards), {"released": 1})
        if not lasts(*heard):
            return None
        expires_at_s = max(reservation.expires_at_s, now_s + self._ttl_s)
        longer = structs.replace(reservation, expires_at_s=expires_at_s)
        return WritePlan(Transaction([records.put_reservation(longer)], guards))


def _heard(replica: ClusterReplica, news: Mapping[str, Facts]) -> Iterator[_Heard]:
    """The reservations of a cluster for the instances of these hosts."""
    if not replica.reservations:
        return
    with replica.lock:
        found = [
            _Heard(reservation, host, facts)
            for host, instances in news.items()
            for uuid, facts in instances.items()
            for reservation in replica.reservations_of(uuid)
        ]
    yield from found
