"""Reservations: reading them, and releasing one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from scheduler_worker.api.access import Access
from scheduler_worker.api.rights import Action
from scheduler_worker.api.v1.operations import (
    Answer,
    Call,
    Operation,
    Page,
    PageQuery,
    given,
    moment,
)
from scheduler_worker.errors import NotFound
from scheduler_worker.model.claims import Reservation as StoredReservation
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.inventory.listing import Listing, reservations_of
from scheduler_worker.service.policies.audit import AuditLog
from scheduler_worker.service.state.replica import ClusterReplica, Fleet


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Resources that are held for an instance, until its host's report includes it."""

    id: str
    cluster: str
    instance_uuid: str
    host: str
    host_uuid: str
    state: Literal["held", "confirmed"]
    created_at: datetime | None
    expires_at: datetime | None
    vcpus: int
    memory_mb: int
    disk_mb: int
    request_id: str
    project_id: str | None


class ReservationQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which reservations are listed; `host` is a name or a uuid."""

    cluster: str | UnsetType = UNSET
    host: str | UnsetType = UNSET
    instance: str | UnsetType = UNSET


class ReservationOperations:
    """Serves reservations."""

    def __init__(self, access: Access, audit: AuditLog, fleet: Fleet, inventory: Inventory) -> None:
        self._access = access
        self._audit = audit
        self._listing = Listing(fleet)
        self._inventory = inventory

    def operations(self) -> Sequence[Operation]:
        """What is served."""
        return [
            Operation(
                "GET", "/reservations", "list_reservations", "Reservations by id.",
                self.list_reservations, answer=Page[Reservation], query=ReservationQuery,
            ),
            Operation(
                "GET", "/reservations/{id}", "get_reservation", "A reservation.",
                self.get_reservation, answer=Reservation,
            ),
            Operation(
                "DELETE", "/reservations/{id}", "release_reservation",
                "Release a reservation: its instance will not come.", self.release_reservation,
                conditions=("If-Match",), status=HTTPStatus.NO_CONTENT,
                errors=(HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED),
            ),
        ]  # fmt: skip

    def list_reservations(self, call: Call) -> Answer:
        self._check_reader(call)
        query: ReservationQuery = call.query

        def is_wanted(replica: ClusterReplica, reservation_id: str) -> bool:
            found = replica.reservations[reservation_id]
            return query.instance in {UNSET, found.instance_uuid} and (
                query.host in {UNSET, found.host, found.nodename, found.host_uuid}
            )

        page = self._listing.page(
            "reservations", reservations_of, _reservation,
            given(query.cluster), given(query.marker), query.limit, where=is_wanted,
        )  # fmt: skip
        return call.page(page["reservations"], page["next"])

    def get_reservation(self, call: Call, id: str) -> Answer:
        self._check_reader(call)
        return Answer(self._found(id)[0])

    def release_reservation(self, call: Call, id: str) -> Answer:
        found, stored = self._found(id)
        self._access.check(call.caller, Action.RELEASE, id, [found.cluster])
        call.check_match(found)
        before = msgspec.json.encode(found).decode()
        with self._audit.changing(call.actor, "reservation.release", id, before=before, after=None):
            self._inventory.release_one(found.cluster, stored)
        return Answer()

    def _found(self, reservation_id: str) -> tuple[Reservation, StoredReservation]:
        page = self._listing.page(
            "reservations",
            lambda replica: [reservation_id] if reservation_id in replica.reservations else [],
            lambda replica, key: (_reservation(replica, key), replica.reservations[key]),
            None, None, 1,
        )  # fmt: skip
        for found in page["reservations"]:
            pair: tuple[Reservation, StoredReservation] = found
            return pair
        raise NotFound("reservation", reservation_id)

    def _check_reader(self, call: Call) -> None:
        self._access.check(call.caller, Action.READ, "")


def _reservation(replica: ClusterReplica, reservation_id: str) -> Reservation:
    found = replica.reservations[reservation_id]
    return Reservation(
        id=reservation_id,
        cluster=replica.scope,
        instance_uuid=found.instance_uuid,
        host=found.host,
        host_uuid=found.host_uuid,
        state=found.state,
        created_at=moment(found.created_at_s),
        expires_at=moment(found.expires_at_s),
        vcpus=found.resources.vcpus,
        memory_mb=found.resources.memory_mb,
        disk_mb=found.resources.disk_mb,
        request_id=found.request_id,
        project_id=found.project_id,
    )
