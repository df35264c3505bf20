"""``[tuning]``: policies that compute the values of tunables of hosts and VMs."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scheduler_worker.service.tuning.cycle import TuningSettings

GROUP = "tuning"
OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Whether this worker takes part in tuning. Each cluster is tuned by one of the "
        "workers that do; if that one stops, another takes over.",
    ),
    cfg.FloatOpt(
        "interval",
        default=15.0,
        min=0.0,
        max=3600.0,
        help="Seconds from one evaluation of a cluster to the next; 0: there is none. Not shorter "
        "than the interval of the hosts' reports. The same in all workers: one that misses its "
        "turn loses it after twice this time, at least a second.",
    ),
    cfg.IntOpt(
        "samples",
        default=10,
        min=1,
        max=100,
        help="Reports of a host over which averages (names that end in _avg) are taken.",
    ),
    cfg.ListOpt(
        "policy_files",
        default=[],
        mutable=True,
        help="Files with policies, and directories of which each *.yaml is one. The name of a "
        "policy is that of its file without .yaml. They are read again before each evaluation; "
        "a policy that does not load leaves the one before it in force.",
    ),
    cfg.StrOpt(
        "clusters_file",
        mutable=True,
        help="A YAML file that limits policies to clusters and gives them parameters; see "
        "docs/tuning.md. It is read again like policies.",
    ),
    cfg.StrOpt(
        "agent_topic",
        default="tuning_agent",
        regex=r"^[A-Za-z0-9_.-]{1,100}$",
        help="Topic of the hosts' agents; apply_tuning is cast to it, with the host as the server.",
    ),
]


def settings(conf: Any, *, silent_after_s: float) -> TuningSettings:
    """How clusters are tuned; hosts that have been silent for longer are left out."""
    group = conf.tuning
    return TuningSettings(
        interval_s=group.interval if group.enabled else 0.0,
        samples=group.samples,
        agent_topic=group.agent_topic,
        policy_files=tuple(group.policy_files),
        clusters_file=group.clusters_file,
        silent_after_s=silent_after_s,
    )
