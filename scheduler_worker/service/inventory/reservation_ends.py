"""Confirmation and release of reservations by their callers."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial

from scheduler_worker.errors import Conflict
from scheduler_worker.model.claims import Reservation
from scheduler_worker.service.inventory.known_hosts import KnownHosts
from scheduler_worker.service.state import reservations
from scheduler_worker.service.state.moves import Moves
from scheduler_worker.service.state.replica import ClusterReplica, Fleet
from scheduler_worker.service.state.writing import WritePlan, Writer

_ROUNDS = 8
"""Attempts to find reservations that others move meanwhile."""

_Ending = Callable[[ClusterReplica, str, float], WritePlan | None]


class ReservationEnds:
    """Confirms and releases the reservations of instances, in whichever clusters they are."""

    def __init__(
        self,
        fleet: Fleet,
        writer: Writer,
        moves: Moves,
        *,
        reservation_ttl_s: float,
        remember_answers_s: float,
    ) -> None:
        self._fleet = fleet
        self._known_hosts = KnownHosts(fleet)
        self._writer = writer
        self._moves = moves
        self._reservation_ttl_s = reservation_ttl_s
        self._remember_answers_s = remember_answers_s

    def confirm(self, instance_uuids: Sequence[str]) -> int:
        """The instances exist: their reservations last for another TTL, or until reported.

        Returns how many instances had reservations. Raises Conflict, StateUnavailable.
        """
        confirmed = partial(reservations.confirmed, ttl_s=self._reservation_ttl_s)
        return self._end(instance_uuids, confirmed)

    def release(self, instance_uuids: Sequence[str]) -> int:
        """The instances will not come: give their reservations back.

        Returns how many instances had reservations, or had them released a short while ago, so
        that a repeated release answers the same. Raises Conflict, StateUnavailable.
        """
        released = partial(reservations.released, remember_s=self._remember_answers_s)
        return self._end(instance_uuids, released, ended=lambda replica: replica.released)

    def release_one(self, cluster: str, reservation: Reservation) -> None:
        """Give back one reservation that was read before.

        Raises:
            Conflict: it has ended, changed or moved since; nothing was released.
            StateUnavailable: the store cannot be reached.
        """
        replica = self._fleet.cluster(cluster)
        is_there = False

        def plan(uuid: str, now_s: float) -> WritePlan | None:
            nonlocal is_there
            found = reservations.released(
                replica, uuid, now_s, remember_s=self._remember_answers_s, only=reservation
            )
            is_there = found is not None
            return found

        self._writer.write(replica, [reservation.instance_uuid], plan)
        if not is_there:
            raise Conflict(
                f"Reservation {reservation.id} has ended or changed in the meantime; read it again."
            )

    def _end(
        self,
        instance_uuids: Sequence[str],
        end: _Ending,
        *,
        ended: Callable[[ClusterReplica], Container[str]] = lambda _: (),
    ) -> int:
        """End reservations; returns how many instances had some, or are among those ``ended``."""
        self._fleet.refresh_globals()
        found: set[str] = set()
        before: set[str] = set()
        for _ in range(_ROUNDS):
            left = [each for each in instance_uuids if each not in found]
            moves_seen = self._known_hosts.moves_seen()
            self._moves.finish(instances=left)
            for replica in self._fleet.clusters():
                found |= self._end_in(replica, left, end)
                before |= {each for each in left if each in ended(replica)}
            # One may have moved from a cluster not yet read to one that was. That an instance's
            # earlier reservation has ended does not say that there is no later one.
            if found.issuperset(left) or moves_seen == self._known_hosts.moves_seen():
                break
        return len(found | before)

    def _end_in(
        self, replica: ClusterReplica, instance_uuids: Sequence[str], end: _Ending
    ) -> set[str]:
        """End the reservations in one cluster; returns the instances that had some."""
        found: set[str] = set()

        def plan(uuid: str, now_s: float) -> WritePlan | None:
            # A plan may be made several times; the last one is what was written, if anything.
            (found.add if replica.reservations_of(uuid) else found.discard)(uuid)
            return end(replica, uuid, now_s)

        self._writer.write(replica, instance_uuids, plan)
        return found
