"""The settings of balancing."""

from __future__ import annotations

from typing import Literal

import msgspec

from scheduler_worker.model.balancing import Mode
from scheduler_worker.model.migration_ledger import MigrationLimits

TargetName = Literal["agent", "nova"]


class BalancingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How clusters are balanced; times in seconds."""

    interval_s: float = 0.0
    """From one round of a cluster to the next; 0: this worker takes no part."""
    mode: Mode = "dry_run"
    """The mode of clusters for which none was set."""
    limits: MigrationLimits = MigrationLimits()
    target: TargetName = "agent"
    """Who migrates VMs: whoever listens to ``agent_topic``, or Nova."""
    agent_topic: str = "balancing_agent"
    down_after_s: float = 60.0
    """Hosts without a heartbeat for this long take part in no migration."""
