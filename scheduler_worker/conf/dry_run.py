"""``[dry_run]``: decide on copies of the requests that another scheduler serves."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scheduler_worker.service.dry_run.settings import DryRunSettings

GROUP = "dry_run"
OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Whether this worker serves nobody, and decides on copies of the requests that "
        "nova-scheduler serves on [rpc] topic; it logs where Nova put an instance elsewhere, and "
        "why. Reserves and claims nothing. Needs [nova_feed] enabled, and RabbitMQ.",
    ),
    cfg.FloatOpt(
        "wait",
        default=120.0,
        min=1.0,
        max=3600.0,
        help="Seconds within which an instance has to show on a host in Nova's databases to be "
        "compared.",
    ),
    cfg.IntOpt(
        "max_requests",
        default=1000,
        min=1,
        max=100_000,
        help="Requests that wait for that, at most, and messages in the queue of copies. Beyond "
        "these the oldest are dropped, and counted.",
    ),
    cfg.FloatOpt(
        "summary_interval",
        default=60.0,
        min=1.0,
        max=86400.0,
        help="Seconds between two lines of the log with how many requests were decided alike.",
    ),
]


def settings(conf: Any) -> DryRunSettings | None:
    """How copies are compared; None: the worker serves."""
    group = conf.dry_run
    if not group.enabled:
        return None
    return DryRunSettings(
        wait_s=group.wait,
        max_requests=group.max_requests,
        summary_interval_s=group.summary_interval,
        subset_size=conf.filter_scheduler.host_subset_size,
    )
