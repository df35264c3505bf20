"""Promises and remembered answers that serve a request that comes again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduler_worker.model.claims import Reservation
from scheduler_worker.model.host_table import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.pipeline import Request, may_use, resources_of
from scheduler_worker.service.replica import ClusterReplica


def promised_rows(replica: ClusterReplica, table: HostTable, request: Request) -> Mapping[str, int]:
    """The instances that have their host already, if it still suits the request, with its row."""
    kept: dict[str, int] = {}
    for uuid in request.instance_uuids:
        for promise in _earlier(replica, uuid, request.request_id):
            row = table.row_of(promise.host_uuid)
            if (
                row is not None
                and promise.resources.of_flavor == resources_of(request.spec.flavor)
                and _still_suits(table, row, request.spec)
            ):
                kept[uuid] = row
                break
    return kept


def _earlier(replica: ClusterReplica, uuid: str, request_id: str) -> Iterator[Reservation]:
    """Live promises for the instance, then what this very request was answered before.

    An instance that has become use may be asked for again by another request, to be moved or
    resized: that one is decided anew.
    """
    yield from replica.promises_of(uuid)
    answer = replica.answers.get(uuid)
    if answer is not None and request_id and answer.request_id == request_id:
        yield answer


def _still_suits(table: HostTable, row: int, spec: RequestSpec) -> bool:
    """False when the caller no longer wants that host: ignored, elsewhere, or tried and failed."""
    record = table.records[row]
    tried = spec.retry.hosts if spec.retry else ()
    return may_use(table, row, spec) and not any(
        (each.host, each.hypervisor_hostname) == (record.host, record.nodename) for each in tried
    )
