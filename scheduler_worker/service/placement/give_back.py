"""Takes back reservations that were stored for a decision which nobody will be answered with."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial

from scheduler_worker.errors import SchedulerWorkerError
from scheduler_worker.service.state import reservations
from scheduler_worker.service.state.dependencies import Dependencies
from scheduler_worker.service.state.replica import ClusterReplica
from scheduler_worker.service.state.writing import Plan

LOG = logging.getLogger(__name__)


def take_back(
    deps: Dependencies, reservation_ids: Iterable[str], committed: Mapping[str, int]
) -> set[str]:
    """Delete these reservations in each cluster, if they still have the committed version.

    ``committed`` has the version of the commit for each cluster. A reservation that was answered
    to another request since, or announced, has another version and stays. If the store cannot be
    reached the reservations expire. Returns the ids of those that were deleted.
    """
    ids = list(reservation_ids)
    deleted: set[str] = set()
    for cluster, version in committed.items():
        replica = deps.fleet.cluster(cluster)
        planned: dict[str, bool] = {}
        try:
            deps.writer.write(replica, ids, partial(_deletion, replica, version, planned))
            deleted |= {each for each, is_ours in planned.items() if is_ours}
        except SchedulerWorkerError as error:
            LOG.warning(
                "Reservations in cluster %s could not be taken back and will expire: %s",
                cluster,
                error,
            )
    return deleted


def _deletion(
    replica: ClusterReplica,
    version: int,
    planned: dict[str, bool],
    reservation_id: str,
    _now_s: float,
) -> Plan | None:
    """Also notes in ``planned`` whether the reservation is deleted."""
    plan = reservations.taken_back(replica, reservation_id, version)
    planned[reservation_id] = plan is not None
    return plan
