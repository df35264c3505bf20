"""Reservations: which a request has already, and what to write when they end.

A repeated request is answered with the hosts it has. One that excludes such a host gives up the
reservation there. Functions return puts, guards or a :class:`WritePlan`, and write nothing. Callers
hold the replica's lock.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import structs

from scheduler_worker.model.claims import ReportedUse, Reservation
from scheduler_worker.model.host_records import reported_use
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.ports import Guard, Put, Transaction
from scheduler_worker.scheduling import absorption
from scheduler_worker.scheduling.absorption import Facts
from scheduler_worker.scheduling.destination import RequestedDestination, may_use
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.scheduling.selections import resources_of
from scheduler_worker.service.state import records
from scheduler_worker.service.state.replica import ClusterReplica
from scheduler_worker.service.state.writing import WritePlan


def on_host(replica: ClusterReplica, host_uuid: str) -> list[Reservation]:
    """The stored reservations on a host."""
    reservations = replica.table.reservations_of_host(host_uuid)
    return [
        replica.reservations[reservation.id]
        for reservation in reservations
        if reservation.id in replica.reservations
    ]


def guards(replica: ClusterReplica, reservations: Iterable[Reservation]) -> list[Guard]:
    """Guards that the reservations have not changed."""
    return replica.guards(records.RESERVATION + reservation.id for reservation in reservations)


def announced(
    reserved: Iterable[Reservation], facts: Facts, known: Facts, now_s: float
) -> list[Put]:
    """Mark the reservations whose instances are announced on their host for the first time.

    ``facts`` are what is announced, ``known`` is what was known of the host's instances before.
    """
    return [
        records.put_reservation(structs.replace(each, announced_at_s=now_s))
        for each in reserved
        if each.announced_at_s is None and absorption.is_complete(each, facts, known)
    ]


def changed(before: Iterable[Reservation], after: Iterable[Reservation]) -> list[Put]:
    """Write the reservations that have changed."""
    known = {reservation.id: reservation for reservation in before}
    return [
        records.put_reservation(reservation)
        for reservation in after
        if reservation != known[reservation.id]
    ]


def other_use(replica: ClusterReplica, row: int) -> ReportedUse:
    """The use of a host that no instance explains that is known to be on it."""
    record = replica.table.records[row]
    use = reported_use(record)
    # Without a list of instances nothing says whose the use is.
    instances = replica.table.reported_instances(record.host)
    if not instances:
        return use
    reserved = {each.instance_uuid for each in replica.table.reservations_of_host(record.uuid)}
    return absorption.other_use(use, instances, reserved)


def absorbed(reservations: Iterable[Reservation], now_s: float, remember_s: float) -> list[Put]:
    """Delete reservations whose resources are in the use that the host reports.

    Until ``remember_s`` after it was made, a reservation is remembered as the answer to a repeated
    request.
    """
    puts: list[Put] = []
    for reservation in reservations:
        puts.append(records.gone(records.RESERVATION + reservation.id))
        until_s = reservation.created_at_s + remember_s
        # Only a request with an id can be recognised when it is repeated.
        if (reservation.request_id or reservation.repeated_for) and until_s > now_s:
            puts.append(records.put_answer(reservation, until_s))
    return puts


def confirmed(
    replica: ClusterReplica, instance_uuid: str, now_s: float, *, ttl_s: float
) -> WritePlan | None:
    """Extend the reservations of an existing instance by ``ttl_s``, until its use is reported."""
    reservations = replica.reservations_of(instance_uuid)
    puts = [
        records.put_reservation(
            structs.replace(
                reservation,
                state="confirmed",
                # Reports since the first announcement may include the instance.
                announced_at_s=reservation.announced_at_s or now_s,
                expires_at_s=now_s + ttl_s,
            )
        )
        for reservation in reservations
    ]
    return _plan(replica, reservations, puts, "confirmed")


def released(
    replica: ClusterReplica,
    instance_uuid: str,
    now_s: float,
    *,
    remember_s: float,
    only: Reservation | None = None,
) -> WritePlan | None:
    """Delete the reservations and the remembered answer of an instance that will not be created.

    That there were reservations is remembered for ``remember_s``, to answer a repeated release.
    With ``only`` this one alone ends, and only if it has not changed.
    """
    known = replica.reservations_of(instance_uuid)
    reservations = [reservation for reservation in known if only is None or reservation == only]
    if only is not None and not reservations:
        return None
    host = None if only is None else only.host
    puts = [*given_back(reservations), *forgotten(replica, instance_uuid, host=host)]
    # One that stays, on another host, will be released by its own call.
    if reservations and len(reservations) == len(known):
        puts.append(records.put_key(records.RELEASED + instance_uuid, now_s + remember_s))
    return _plan(replica, reservations, puts, "released")


def taken_back(replica: ClusterReplica, made: Reservation) -> WritePlan | None:
    """Delete a reservation that was never answered; None if it is another one by now.

    Then another request was answered with it, which renews it, or its instance was announced. What
    reports of its host note in it does not matter.
    """
    now = replica.reservations.get(made.id)
    if now is None or _without_notes(now) != _without_notes(made):
        return None
    return WritePlan(
        Transaction([records.gone(records.RESERVATION + made.id)], guards(replica, [made])),
        {"released": 1},
    )


def _without_notes(reservation: Reservation) -> Reservation:
    return structs.replace(reservation, other_use=None, allocated_at_s=None)


def given_back(reservations: Iterable[Reservation]) -> list[Put]:
    """Delete reservations."""
    return [records.gone(records.RESERVATION + reservation.id) for reservation in reservations]


def forgotten(replica: ClusterReplica, instance_uuid: str, *, host: str | None = None) -> list[Put]:
    """Delete the remembered answer of an instance, if it has one (on ``host``, where given)."""
    answer = replica.answers.get(instance_uuid)
    if answer is None or host not in {None, answer.host}:
        return []
    return [records.gone(records.ANSWER + instance_uuid)]


def renamed(
    replica: ClusterReplica, before: str, after: str, now_s: float, remember_s: float
) -> tuple[list[Put], list[Guard]]:
    """Carry reservations and answers over to a node that was created again, with another uuid."""
    puts: list[Put] = []
    reserved = on_host(replica, before)
    for each in reserved:
        puts.append(records.gone(records.RESERVATION + each.id))
        puts.append(records.put_reservation(structs.replace(each, host_uuid=after)))
    for each in replica.answers.values():
        until_s = each.created_at_s + remember_s
        if each.host_uuid == before and until_s > now_s:
            puts.append(records.put_answer(structs.replace(each, host_uuid=after), until_s))
    # Guard the answers too: one that was released meanwhile must not come back.
    keys = [put.key for put in puts if put.key.startswith(records.ANSWER)]
    return puts, [*guards(replica, reserved), *replica.guards(keys)]


def _plan(
    replica: ClusterReplica, reservations: Sequence[Reservation], puts: Sequence[Put], how: str
) -> WritePlan | None:
    if not puts:
        return None
    return WritePlan(Transaction(puts, guards(replica, reservations)), {how: len(reservations)})


_DESTINATION = RequestedDestination()


def reserved_rows(replica: ClusterReplica, table: HostTable, request: Request) -> Mapping[str, int]:
    """Instance uuid -> row of its host, for instances whose host still suits the request."""
    kept: dict[str, int] = {}
    for uuid in request.instance_uuids:
        for reservation in _earlier(replica, uuid, request.request_id):
            row = table.row_of_reservation(reservation)
            if (
                row is not None
                and reservation.resources.of_flavor == resources_of(request.spec.flavor)
                and _still_suits(table, row, request.spec)
            ):
                kept[uuid] = row
                break
    return kept


def given_up(replica: ClusterReplica, table: HostTable, request: Request) -> list[Reservation]:
    """The reservations of the request's instances on hosts that its caller excludes.

    A migration ignores the host that the instance leaves. So only a host that was tried in vain
    gives up the reservation of an instance that is known to be there.
    """
    return [
        reservation
        for uuid in request.instance_uuids
        for reservation in replica.reservations_of(uuid)
        if (row := table.row_of_reservation(reservation)) is not None
        and not _still_suits(table, row, request.spec)
        and (reservation.is_pending or _was_tried(table, row, request.spec))
    ]


def _earlier(replica: ClusterReplica, uuid: str, request_id: str) -> Iterator[Reservation]:
    """Live reservations of the instance, then the remembered answer to this very request.

    An absorbed instance may be in another request too, to be moved or resized: that request is
    decided again.
    """
    yield from replica.reservations_of(uuid)
    # An absorbed reservation is gone from the table, but its request may still be repeated.
    answer = replica.answers.get(uuid)
    if answer is not None and answer.answers(request_id):
        yield answer


def _still_suits(table: HostTable, row: int, spec: RequestSpec) -> bool:
    """False if the caller excludes the host: ignored, not the destination, or tried and failed."""
    return may_use(_DESTINATION, table.state(row), spec) and not _was_tried(table, row, spec)


def _was_tried(table: HostTable, row: int, spec: RequestSpec) -> bool:
    record = table.records[row]
    tried = spec.retry.hosts if spec.retry else ()
    return any(
        (selection.host, selection.hypervisor_hostname) == (record.host, record.nodename)
        for selection in tried
    )
