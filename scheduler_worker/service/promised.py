"""Promises that live and answer a request that comes again."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_worker.model.hosts import HostTable
from scheduler_worker.model.requests import RequestSpec
from scheduler_worker.scheduling.pipeline import Request, may_use, resources_of
from scheduler_worker.service.replica import ClusterReplica


def promised_rows(replica: ClusterReplica, table: HostTable, request: Request) -> Mapping[str, int]:
    """The instances whose promise lives and still suits the request, with the row of the host."""
    kept: dict[str, int] = {}
    wanted = resources_of(request.spec.flavor)
    for uuid in request.instance_uuids:
        for promise in replica.promises_of(uuid):
            row = table.row_of(promise.host_uuid)
            if (
                row is not None
                and promise.resources == wanted
                and _still_suits(table, row, request.spec)
            ):
                kept[uuid] = row
    return kept


def _still_suits(table: HostTable, row: int, spec: RequestSpec) -> bool:
    """False when the caller no longer wants that host: ignored, elsewhere, or tried and failed."""
    record = table.records[row]
    tried = spec.retry.hosts if spec.retry else ()
    return may_use(table, row, spec) and not any(
        (each.host, each.hypervisor_hostname) == (record.host, record.nodename) for each in tried
    )
