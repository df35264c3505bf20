"""Records of the shared state, for simulations elsewhere."""

from typing import Annotated

import msgspec
from msgspec import Meta

from scheduler_worker.model.simulations import RecordsPage
from scheduler_worker.operations.operation import Call, operation


class RecordsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which records are read."""

    cluster: Annotated[
        str | None, Meta(description="Records of this cluster; else records of no cluster.")
    ] = None
    marker: Annotated[str | None, Meta(description="The `next` of the page before.")] = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="Records of a page at most.")] = 1000


@operation("GET", None)
def list_records(call: Call, query: RecordsQuery) -> RecordsPage:
    """List records of a cluster, or records of no cluster, by their keys."""
    from scheduler_worker.service.simulation.copies import page_of

    fleet = call.services.fleet
    if query.cluster is not None:
        fleet.known_cluster(query.cluster)
    return page_of(fleet, query.cluster, query.marker, query.limit)
