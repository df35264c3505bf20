"""What the rounds of all clusters share: their collaborators."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from scheduler_worker.observer import Observer
from scheduler_worker.ports import Clock, ClusterLock, MigrationTarget, PowerTarget
from scheduler_worker.service.balancing.ledgers import Ledgers
from scheduler_worker.service.balancing.settings import BalancingSettings
from scheduler_worker.service.policies.pipelines import Pipelines
from scheduler_worker.service.state.replica import Fleet

ASKED, SHOWN = "asked for", "would be asked for"


class BalancingDependencies(NamedTuple):
    """The collaborators of all clusters' rounds."""

    fleet: Fleet
    lock: ClusterLock
    pipelines: Callable[[], Pipelines]
    target: MigrationTarget
    power_target: PowerTarget
    ledgers: Ledgers
    clock: Clock
    observer: Observer
    settings: BalancingSettings
