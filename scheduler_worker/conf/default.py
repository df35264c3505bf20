"""``[DEFAULT]``: the worker's name, and what it assumes of hosts."""

from __future__ import annotations

import socket
from typing import Any

from oslo_config import cfg

from scheduler_worker.service.inventory.reports import DefaultRatios
from scheduler_worker.service.inventory.settings import InventorySettings

GROUP = None
_REPORTS_BEFORE_DOWN = 2.5
"""How many reports of a host are missing before it counts as down, at least."""

OPTS = [
    cfg.StrOpt(
        "host",
        regex=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}$",
        default=socket.gethostname(),
        sample_default="<current hostname>",
        help="Name of this worker as an RPC server. It must be unique among the replicas and "
        "should stay the same over restarts, since it names a queue.",
    ),
    cfg.StrOpt(
        "default_cluster",
        default="default",
        regex=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$",
        help="The cluster of hosts whose reports do not name one.",
    ),
    cfg.ListOpt(
        "clusters",
        default=[],
        help="The only clusters that a host report may name. Empty: any; a new name makes a new "
        "cluster.",
    ),
    cfg.FloatOpt(
        "service_down_time",
        default=60.0,
        min=1.0,
        mutable=True,
        help="Seconds without a report after which a host counts as down.",
    ),
    cfg.IntOpt(
        "report_interval",
        default=10,
        min=0,
        mutable=True,
        help="Seconds between two reports of a host. A service_down_time that is not longer than "
        "this is taken as 2.5 times this.",
    ),
    cfg.StrOpt(
        "default_availability_zone",
        default="nova",
        mutable=True,
        help="The availability zone of hosts that are in no aggregate with one.",
    ),
    *(
        cfg.FloatOpt(
            f"{kind}_allocation_ratio",
            min=0.0,
            help=f"Allocation ratio of {what} for hosts that report none. Unset or 0.0: "
            f"initial_{kind}_allocation_ratio.",
        )
        for kind, what in (("cpu", "vCPUs"), ("ram", "memory"), ("disk", "local disk"))
    ),
    *(
        cfg.FloatOpt(
            f"initial_{kind}_allocation_ratio",
            default=ratio,
            min=0.0,
            help=f"Used while {kind}_allocation_ratio is unset or 0.0.",
        )
        for kind, ratio in (("cpu", 4.0), ("ram", 1.0), ("disk", 1.0))
    ),
    cfg.FloatOpt(
        "graceful_shutdown_timeout",
        default=60.0,
        min=0.0,
        help="Seconds a stopping worker has to finish the requests it has taken. Unfinished ones "
        "go back to the queue for other workers; on the embedded bus, which ends with the "
        "process, they are dropped, and their reservations are given back.",
    ),
]


def service_down_time_s(conf: Any) -> float:
    """Seconds after which a silent host is down: long enough for it to report in the meantime."""
    if conf.service_down_time <= conf.report_interval:
        return float(int(_REPORTS_BEFORE_DOWN * conf.report_interval))
    return float(conf.service_down_time)


def inventory(conf: Any) -> InventorySettings:
    """Defaults for host reports, and how long reservations and answers are kept."""

    def ratio(kind: str) -> float:
        return float(
            conf[f"{kind}_allocation_ratio"] or conf[f"initial_{kind}_allocation_ratio"] or 1.0
        )

    return InventorySettings(
        ratios=DefaultRatios(cpu=ratio("cpu"), ram=ratio("ram"), disk=ratio("disk")),
        clusters=tuple(conf.clusters),
        reservation_ttl_s=conf.pending.ttl,
        remember_answers_s=conf.pending.remember_answers,
    )
