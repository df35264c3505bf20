"""Takes back reservations that were stored for a decision which nobody will be answered with."""

from __future__ import annotations

import logging
from functools import partial

from scheduler_worker.errors import SchedulerWorkerError
from scheduler_worker.model.claims import Reservation
from scheduler_worker.service.placement.dependencies import PlacementDependencies
from scheduler_worker.service.state import reservations
from scheduler_worker.service.state.replica import ClusterReplica
from scheduler_worker.service.state.routing import Routing
from scheduler_worker.service.state.writing import WritePlan

LOG = logging.getLogger(__name__)


def take_back(deps: PlacementDependencies, routing: Routing) -> set[str]:
    """Delete the reservations that were committed in each cluster, if they are still the same.

    A reservation that was answered to another request since, or announced, stays. If the store
    cannot be reached the reservations expire. Returns the ids of those that were deleted.
    """
    deleted: set[str] = set()
    while routing.committed:
        cluster, made = routing.committed.popitem()
        replica = deps.fleet.cluster(cluster)
        planned: dict[str, bool] = {}
        try:
            deps.writer.write(replica, made, partial(_deletion, replica, planned))
            deleted |= {each for each, is_ours in planned.items() if is_ours}
        except SchedulerWorkerError as error:
            LOG.warning(
                "Reservations in cluster %s could not be taken back and will expire: %s",
                cluster,
                error,
            )
    return deleted


def _deletion(
    replica: ClusterReplica, planned: dict[str, bool], made: Reservation, _now_s: float
) -> WritePlan | None:
    """Also notes in ``planned`` whether the reservation is deleted."""
    plan = reservations.taken_back(replica, made)
    planned[made.id] = plan is not None
    return plan
