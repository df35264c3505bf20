"""What is reserved on a table's hosts, by id, host and instance."""

from __future__ import annotations

from scheduler_worker.model.hosts import ClaimOrReservation
from scheduler_worker.model.set_index import SetIndex


class HostReservations:
    """Live claims and reservations; one for each pair of instance and host."""

    def __init__(self) -> None:
        self._by_id: dict[str, ClaimOrReservation] = {}
        self._by_host: SetIndex[str, str] = SetIndex()
        self._by_instance: SetIndex[str, str] = SetIndex()
        self._by_provider: SetIndex[str, str] = SetIndex()
        self.unannounced = 0
        """How many there are whose instances were not announced: the pending ones."""

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, reservation_id: str) -> ClaimOrReservation | None:
        """The one with this id."""
        return self._by_id.get(reservation_id)

    def of_host(self, host_uuid: str) -> list[ClaimOrReservation]:
        """Those on a host."""
        return [self._by_id[id] for id in self._by_host.get(host_uuid, ())]

    def of_instance(self, instance_uuid: str) -> list[ClaimOrReservation]:
        """Those for an instance."""
        ids = self._by_instance.get(instance_uuid)
        return [self._by_id[id] for id in ids] if ids else []

    def of_provider(self, provider: str) -> list[ClaimOrReservation]:
        """Those that take from a provider which is not the compute node of their host."""
        ids = self._by_provider.get(provider)
        return [self._by_id[id] for id in ids] if ids else []

    # The id is a parameter because a claim computes it on every access.

    def add(self, reservation_id: str, reservation: ClaimOrReservation) -> None:
        """Add one whose id is not there yet."""
        self._by_id[reservation_id] = reservation
        self.unannounced += reservation.is_unannounced
        self._by_host.add(reservation.host_uuid, reservation_id)
        self._by_instance.add(reservation.instance_uuid, reservation_id)
        for provider in _others(reservation):
            self._by_provider.add(provider, reservation_id)

    def replace(self, reservation_id: str, reservation: ClaimOrReservation) -> None:
        """Replace the one of the same id; both are announced or neither is."""
        self._by_id[reservation_id] = reservation

    def remove(self, reservation_id: str) -> ClaimOrReservation | None:
        """Remove one and return it; None: it is not there."""
        reservation = self._by_id.pop(reservation_id, None)
        if reservation is not None:
            self.unannounced -= reservation.is_unannounced
            self._by_host.discard(reservation.host_uuid, reservation_id)
            self._by_instance.discard(reservation.instance_uuid, reservation_id)
            for provider in _others(reservation):
                self._by_provider.discard(provider, reservation_id)
        return reservation

    def announced(self) -> HostReservations:
        """Those whose instances were announced."""
        found = HostReservations()
        for reservation_id, reservation in self._by_id.items():
            if not reservation.is_unannounced:
                found.add(reservation_id, reservation)
        return found


def _others(reservation: ClaimOrReservation) -> set[str]:
    """The providers that it takes from beside the compute node of its host."""
    taken = reservation.resources.providers
    return {use.provider for use in taken} - {reservation.host_uuid} if taken else set()
