"""The settings of balancing."""

from typing import Annotated, Literal

import msgspec

from scheduler_worker.model.cluster_load import Mode
from scheduler_worker.model.ledgers import MigrationLimits
from scheduler_worker.options import Opt

TargetName = Literal["agent", "nova"]


class BalancingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How clusters are balanced; times in seconds."""

    mode: Annotated[Mode, Opt()] = "dry_run"
    """What the balances of cluster policies do: nothing (off), say what they would do (dry_run), or
    do it (on). `scheduler-workerctl balance` sets it for single clusters."""
    interval_s: Annotated[float, Opt(min=0, max=86_400)] = 60.0
    """Seconds from one round of a cluster to the next, each on one of the workers; 0: this worker
    takes no part. The same in all workers: a leader that runs no round for twice this time is
    replaced, after at least a second."""
    limits: MigrationLimits = MigrationLimits()
    target: Annotated[
        TargetName,
        Opt(
            choices={
                "agent": "whoever listens to agent_topic",
                "nova": "Nova's API, which takes scheduler_worker[nova] and the section [nova]",
            }
        ),
    ] = "agent"
    """Who migrates VMs; the same in all workers. docs/balancing.md has both."""
    agent_topic: Annotated[str, Opt(regex=r"^[A-Za-z0-9_.-]{1,100}$")] = "balancing_agent"
    """Topic of whoever migrates VMs, and of whoever switches hosts off and on; `migrate` and
    `set_host_power` are cast to it. docs/balancing.md has the contract."""
    down_after_s: float = 60.0
    """Hosts without a heartbeat for this long take part in no migration."""
