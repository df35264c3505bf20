"""Idempotency: a repeated request is answered with the hosts it has already.

A request that excludes such a host gives up the reservation there.
"""

from collections.abc import Iterator, Mapping

from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.ports import ABSENT, Clock, Guard, Store, Transaction
from scheduler_worker.scheduling.destination import RequestedDestination, may_use
from scheduler_worker.scheduling.pipeline import Request
from scheduler_worker.scheduling.selections import resources_of
from scheduler_worker.service.state import records
from scheduler_worker.service.state.records import Verdict
from scheduler_worker.service.state.replica import ClusterReplica, RecordKind, Replica

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


SCOPE = "@verdicts"


class Verdicts(Replica):
    """The verdicts on casts of all workers in the last ``remember_s`` seconds; safe for threads.

    Two workers may decide the same request, and when capacity changes meanwhile one finds hosts and
    the other does not. A call is answered once, but a cast would be answered twice, differently. So
    whether it gets hosts is written under a guard before the answer: the second worker finds the
    verdict of the first, and answers the same.
    """

    def __init__(self, store: Store, clock: Clock, *, remember_s: float) -> None:
        self._verdicts = RecordKind("", records.read_verdict)
        super().__init__(SCOPE, self._verdicts)
        self._store = store
        self._clock = clock
        self._remember_s = remember_s
        self._offset_s: float | None = None
        """The store's clock less the monotonic clock of this process; None until it was read."""

    def record(self, digest: str, verdict: Verdict) -> Verdict:
        """Record a verdict unless there is one; returns the verdict that stands.

        ``digest`` is the same for all copies of a request. Raises StateUnavailable.
        """
        with self.lock:
            # Reading the scope for each cast would cost a round trip; the guard needs no copy.
            if self._offset_s is None:
                self._read()
            until_s = self._clock.monotonic_s() + (self._offset_s or 0.0) + self._remember_s
            put = records.put_verdict(digest, verdict, until_s)
            guarded = Transaction([put], [Guard(put.key, ABSENT)])
            if not self._store.write(self.scope, [guarded]).applied[0]:
                self._read()
                # If the other one has expired since, no copy will answer with it any more.
                verdict = self._verdicts.get(put.key, verdict)
        return verdict

    def _read(self) -> None:
        now_s = self._clock.monotonic_s()
        self._offset_s = self.refresh(self._store) - now_s
