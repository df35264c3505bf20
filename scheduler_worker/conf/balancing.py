"""``[balancing]``: migrations that the balances of cluster policies ask for."""

from __future__ import annotations

import contextlib
from typing import Any

from oslo_config import cfg

from scheduler_worker.model.balancing import MODES
from scheduler_worker.model.migration_ledger import MigrationLimits
from scheduler_worker.service.balancing.settings import BalancingSettings

GROUP = "balancing"
OPTS = [
    cfg.StrOpt(
        "mode",
        default="dry_run",
        choices=MODES,
        help="What the balances of cluster policies do: nothing (off), say what they would do "
        "(dry_run), or do it (on). `scheduler-workerctl balance` sets it for single clusters.",
    ),
    cfg.FloatOpt(
        "interval",
        default=60.0,
        min=0.0,
        max=86400.0,
        help="Seconds from one round of a cluster to the next, each on one of the workers; 0: this "
        "worker takes no part. The same in all workers: one that misses its turn loses it after "
        "twice this time, at least a second.",
    ),
    cfg.IntOpt(
        "max_migrations",
        default=2,
        min=1,
        max=1000,
        help="Migrations that a cluster has under way at a time.",
    ),
    cfg.FloatOpt(
        "begin_timeout",
        default=120.0,
        min=0.1,
        max=86400.0,
        help="Seconds in which a migration, or a power action, that was asked for has to begin, or "
        "it counts as failed.",
    ),
    cfg.FloatOpt(
        "migration_timeout",
        default=3600.0,
        min=1.0,
        max=604800.0,
        help="Seconds in which a migration, or a power action, that has begun has to end, or it "
        "counts as failed.",
    ),
    cfg.FloatOpt(
        "retry_wait",
        default=60.0,
        min=0.1,
        max=86400.0,
        help="Seconds for which a VM stays after its migration failed, or a host after its power "
        "action; twice as long after each further failure.",
    ),
    cfg.FloatOpt(
        "max_retry_wait",
        default=3600.0,
        min=0.1,
        max=604800.0,
        help="The longest of these waits, in seconds.",
    ),
    cfg.StrOpt(
        "target",
        default="agent",
        choices=[
            ("agent", "whoever listens to agent_topic"),
            ("nova", "Nova's API, which takes scheduler_worker[nova] and the section [nova]"),
        ],
        help="Who migrates VMs; the same in all workers. docs/balancing.md has both.",
    ),
    cfg.StrOpt(
        "agent_topic",
        default="balancing_agent",
        regex=r"^[A-Za-z0-9_.-]{1,100}$",
        help="Topic of whoever migrates VMs, and of whoever switches hosts off and on; `migrate` "
        "and `set_host_power` are cast to it. docs/balancing.md has the contract.",
    ),
]


def of_target(conf: Any) -> list[tuple[str, list[Any]]]:
    """The options of ``[nova]``: none where nobody asks Nova, or its library is missing."""
    if conf.balancing.target == "nova":
        # The missing library is reported where it is used.
        with contextlib.suppress(ImportError):
            from scheduler_worker.backends.nova import options

            return options.read(conf)
    return [("nova", [])]


def settings(conf: Any, *, down_after_s: float) -> BalancingSettings:
    """How clusters are balanced; hosts that have been silent for longer are left out."""
    group = conf.balancing
    return BalancingSettings(
        interval_s=group.interval,
        mode=group.mode,
        limits=MigrationLimits(
            most=group.max_migrations,
            begin_within_s=group.begin_timeout,
            end_within_s=group.migration_timeout,
            first_wait_s=group.retry_wait,
            longest_wait_s=group.max_retry_wait,
        ),
        target=group.target,
        agent_topic=group.agent_topic,
        down_after_s=down_after_s,
    )
