"""Builds what operations are served with, for workers and for processes of the REST API."""

from collections.abc import Callable

from scheduler_worker.operations.services import OneWorker, UseCases
from scheduler_worker.service.balancing.administration import BalancingAdministration
from scheduler_worker.service.decisions.kept import KeptDecisions
from scheduler_worker.service.health.rules import ReportedWorkers
from scheduler_worker.service.inventory.inventory import Inventory
from scheduler_worker.service.placement.capacity import Capacity
from scheduler_worker.service.placement.scheduler import Scheduler
from scheduler_worker.service.policies.cluster_policies import ClusterPolicies
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state.replica import Fleet
from scheduler_worker.service.tuning.policies import TuningPolicies
from scheduler_worker.service.tuning.tuned_hosts import TunedHosts


def build_services(
    fleet: Fleet,
    pipelines: Callable[[], Pipelines],
    *,
    down_after_s: float,
    scheduler: Scheduler,
    inventory: Inventory,
    tuning: TuningPolicies,
    balancing: BalancingAdministration,
    capacity: Capacity | None = None,
    decisions: KeptDecisions | None = None,
    worker: OneWorker | None = None,
) -> UseCases:
    """The services of one process; a worker's services have the ``worker``."""

    def clusters() -> list[str]:
        fleet.refresh_globals()
        return list(fleet.names())

    return UseCases(
        fleet=fleet,
        scheduler=scheduler,
        inventory=inventory,
        capacity=capacity or Capacity(fleet, pipelines),
        tuning=tuning,
        tuned_hosts=TunedHosts(fleet, tuning),
        balancing=balancing,
        policies=ClusterPolicies(fleet, pipelines),
        workers=ReportedWorkers(fleet.store),
        decisions=decisions,
        clusters=clusters,
        down_after_s=down_after_s,
        worker=worker,
    )
