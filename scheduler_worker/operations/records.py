"""Records of the shared state, for rehearsals elsewhere."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from scheduler_worker.operations.operation import Call, operation


class RecordsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which records are read."""

    cluster: Annotated[
        str | None, Meta(description="Those of this cluster; else those that belong to none.")
    ] = None
    marker: Annotated[str | None, Meta(description="The `next` of the page before.")] = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="Records of a page at most.")] = 1000


class RecordsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records by their keys, in the form that `docs/state.md` describes."""

    now_s: float
    records: dict[str, str]
    next: str | None


@operation("GET", None)
def list_records(call: Call, query: RecordsQuery) -> RecordsPage:
    """List records of a cluster, or those that belong to none, by their keys."""
    from scheduler_worker.service.replay.snapshot import Snapshots

    snapshots = Snapshots(call.services.fleet)
    if query.cluster is None:
        found = snapshots.globals()
    else:
        call.services.fleet.known_cluster(query.cluster)
        found = snapshots.page(query.cluster, query.marker, query.limit)
    records = {key: value.decode() for key, value in found.records.items()}
    return RecordsPage(now_s=found.now_s, records=records, next=found.next)
