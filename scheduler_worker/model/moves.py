"""Moves of hosts between clusters, and what leaves a cluster with a host."""

from typing import Any

import msgspec

from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.host_records import HostRecord

MOVE_SCHEMA = 1


class Move(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The intent to move a host to another cluster; a host has at most one unfinished move."""

    id: str
    """Never used again: a late step of a finished move is recognised by it."""
    host_uuid: str
    to: str
    """The cluster that the host moves to."""
    schema: int = MOVE_SCHEMA


class Departure(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A host that left its cluster. Once packed, it contains all reservations on the host."""

    move: Move
    since_s: float
    """When it left, by the store's clock."""
    host: HostRecord | None = None
    """None: the cluster never had the host, only instances that were announced on it."""
    is_packed: bool = False
    has_arrived: bool = False
    """Whether a worker has seen all of it in the new cluster; see ``Moves``."""
    reservations: tuple[Reservation, ...] = msgspec.field(default=(), name="promises")
    answers: tuple[Reservation, ...] = ()
    instances: dict[str, dict[str, Any]] = {}
    """Instance uuid -> facts, of the instances that are known to be on the host name."""
    announcements: dict[str, float] = {}
    """Which announcements about the host name were read a short while ago, and when."""

    def carries(self, instance_uuid: str) -> bool:
        """Whether it contains a reservation or a remembered answer of the instance."""
        carried = (*self.reservations, *self.answers)
        return any(reservation.instance_uuid == instance_uuid for reservation in carried)
