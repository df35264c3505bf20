"""``[decisions]``: records of decisions."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scheduler_worker.decision_log import Bounds
from scheduler_worker.service.decisions.settings import DecisionSettings

GROUP = "decisions"
OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=True,
        help="Whether a record of each decision is kept in the shared state: what was asked, how "
        "many hosts each filter left, why the chosen host came first. list_decisions and "
        "get_decision show them.",
    ),
    cfg.IntOpt(
        "max_per_cluster",
        default=100_000,
        min=1,
        max=10_000_000,
        help="Decisions of which a cluster keeps a record; the oldest go first. In Redis one takes "
        "1 to 2 kB.",
    ),
    cfg.IntOpt(
        "max_records",
        default=1_000_000,
        min=1,
        max=100_000_000,
        help="Records of all clusters together: where clusters are many, each keeps an equal share "
        "of these in place of max_per_cluster.",
    ),
    cfg.FloatOpt(
        "max_age",
        default=7 * 86_400.0,
        min=60.0,
        max=366 * 86_400.0,
        help="Seconds for which a record is kept.",
    ),
    cfg.IntOpt(
        "max_waiting",
        default=10_000,
        min=1,
        max=1_000_000,
        help="Records of one worker that wait to be written, at most. While the shared state is "
        "away further ones are dropped and counted; no request waits for them.",
    ),
]

RANKED_HOSTS = 5
"""How many of the best hosts a record names."""


def settings(conf: Any) -> DecisionSettings | None:
    """How much is kept; None: nothing."""
    group = conf.decisions
    if not group.enabled:
        return None
    return DecisionSettings(
        bounds=Bounds(group.max_per_cluster, group.max_age, group.max_records),
        max_waiting=group.max_waiting,
    )
