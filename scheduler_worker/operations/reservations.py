"""Reservations: what is set aside for instances until their hosts report them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta, structs

from scheduler_worker.conversion import convert
from scheduler_worker.errors import NotFound
from scheduler_worker.model.claims import ForInstance
from scheduler_worker.operations.callers import Right
from scheduler_worker.operations.operation import Call, Page, PageQuery, moment, operation

if TYPE_CHECKING:
    from scheduler_worker.model.claims import Reservation
    from scheduler_worker.service.state.replica import ClusterReplica


class ReservationView(ForInstance, frozen=True, kw_only=True):
    """Resources that are held for an instance, until its host's report includes it."""

    id: str
    cluster: str
    state: Literal["held", "confirmed"]
    created_at: datetime | None
    expires_at: datetime | None
    vcpus: int
    memory_mb: int
    disk_mb: int


class ReservationQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which reservations are listed."""

    cluster: Annotated[str | None, Meta(description="Only reservations of this cluster.")] = None
    host: Annotated[
        str | None, Meta(description="Only those on this host: name, node name or uuid.")
    ] = None
    instance: Annotated[str | None, Meta(description="Only reservations of this instance.")] = None


class OneReservation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reservation."""

    id: Annotated[str, Meta(description="The id of a reservation, or the uuid of an instance.")]


@operation(
    "GET",
    "/reservations",
    command="reservation list",
    columns={
        "Instance": "instance_uuid",
        "Host": "host",
        "Cluster": "cluster",
        "State": "state",
        "VCPUs": "vcpus",
        "Memory MB": "memory_mb",
        "Disk MB": "disk_mb",
        "Age": ("age", "created_at"),
        "Expires In": ("left", "expires_at"),
    },
)
def list_reservations(call: Call, query: ReservationQuery) -> Page[ReservationView]:
    """List the live reservations, by id.

    A reservation is held, or confirmed: its instance was announced. It ends when its host's report
    includes the instance, when it is released, or when it expires.
    """
    from scheduler_worker.service.inventory import listing

    def is_wanted(replica: ClusterReplica, id: str) -> bool:
        reservation = replica.reservations[id]
        names = {None, reservation.host, reservation.nodename, reservation.host_uuid}
        return query.host in names and query.instance in {None, reservation.instance_uuid}

    return Page(
        *listing.page(
            call.services.fleet,
            lambda replica: replica.reservations,
            lambda replica, key: _view(replica.scope, replica.reservations[key]),
            cluster=query.cluster,
            marker=query.marker,
            limit=query.limit,
            where=is_wanted,
        )
    )


@operation("GET", "/reservations/{id}", command="reservation show")
def get_reservation(call: Call, target: OneReservation) -> ReservationView:
    """Show what is reserved for an instance."""
    return _view(*_find(call, target.id))


@operation(
    "DELETE",
    "/reservations/{id}",
    command="reservation release",
    done="released: {}",
    right=Right.RELEASE,
    has_condition=True,
)
def release_reservation(call: Call, target: OneReservation) -> None:
    """Give back what is reserved for an instance that will not be built.

    Others can use the resources at once. What is being built now would be placed twice, so release
    only what nobody waits for.
    """
    cluster, stored = _find(call, target.id)
    call.allow(cluster)
    now = _view(cluster, stored)
    call.check_match(now, is_needed=False)
    with call.changing("reservation.release", now.id, before=now):
        call.services.inventory.release_one(cluster, stored)


def _find(call: Call, name: str) -> tuple[str, Reservation]:
    """The reservation of this id, else the first one of an instance of this uuid."""
    fleet = call.services.fleet
    fleet.refresh_globals()
    of_instance: tuple[str, Reservation] | None = None
    for replica in fleet.clusters():
        with replica.reading(fleet.store):
            if name in replica.reservations:
                return replica.scope, replica.reservations[name]
            for reservation in replica.reservations_of(name):
                of_instance = of_instance or (replica.scope, reservation)
    if of_instance is None:
        raise NotFound("reservation", name)
    return of_instance


def _view(cluster: str, reservation: Reservation) -> ReservationView:
    same = structs.asdict(reservation) | structs.asdict(reservation.resources)
    times = {name: moment(same[f"{name}_s"]) for name in ("created_at", "expires_at")}
    own = {"id": reservation.id, "cluster": cluster}
    return convert(same | times | own, ReservationView)
