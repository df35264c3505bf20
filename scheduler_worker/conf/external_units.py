"""``[external_units]``: units from files, which run in processes of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from oslo_config import cfg

from scheduler_worker.backends.cage.settings import CageSettings

GROUP = "external_units"

OPTS = [
    cfg.StrOpt(
        "directory",
        help="Directory with units: each *.py in it is a file in the form of oVirt's external "
        "scheduler, or with filters and weighers in ours. Not set: there are none. Files are "
        "watched. The same files on all workers and API processes; docs/external-units.md.",
    ),
    cfg.StrOpt(
        "python",
        help="The interpreter that runs them, Python 3.9 or later; not set: that of the "
        "worker, which units in our own form need. The user below must be able to read its "
        "libraries.",
    ),
    cfg.StrOpt(
        "user",
        default="nobody",
        help="The user that they run as where the worker runs as root; never root. Otherwise they "
        "run as the worker's user.",
    ),
    cfg.FloatOpt(
        "timeout",
        default=2.0,
        min=0.01,
        max=60.0,
        help="Seconds for one call of a unit; then its processes are killed, and the decision goes "
        "on without it. The cluster's lock is held meanwhile, so it must be shorter than "
        "[cluster_lock] hold_timeout.",
    ),
    cfg.IntOpt(
        "memory",
        default=512,
        min=64,
        max=65536,
        help="MiB of address space that each process of a unit may have.",
    ),
    cfg.IntOpt(
        "processes",
        default=2,
        min=1,
        max=64,
        help="Calls of the units of one file that run at a time, each in a warm process of its "
        "own; others wait.",
    ),
    cfg.IntOpt(
        "max_tasks",
        default=32,
        min=4,
        max=4096,
        help="Processes and threads that a unit may start in a call, all of which end with it.",
    ),
    cfg.BoolOpt(
        "network",
        default=False,
        help="Whether they may use the network, as a unit that asks an oVirt engine has to.",
    ),
    cfg.StrOpt(
        "on_failure",
        default="pass",
        choices=[
            ("pass", "all hosts pass a filter that fails, as in oVirt"),
            ("refuse", "no host passes a filter that fails"),
        ],
        help="What a filter that fails or is too slow does, unless its class declares on_failure. "
        "Of a weight that fails every score is 0; of a balance nothing moves.",
    ),
]


def settings(conf: Any) -> CageSettings | None:
    """How units from files are run; None: there are none."""
    group = conf.external_units
    if not group.directory:
        return None
    return CageSettings(
        directory=Path(group.directory),
        python=group.python or sys.executable,
        user=group.user,
        timeout_s=group.timeout,
        memory_mb=group.memory,
        processes=group.processes,
        max_tasks=group.max_tasks,
        network=group.network,
        on_failure=group.on_failure,
    )
