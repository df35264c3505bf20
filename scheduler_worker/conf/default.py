"""``[DEFAULT]``: who this worker is and what it assumes of hosts."""

from __future__ import annotations

import socket

from oslo_config import cfg

GROUP = None

OPTS = [
    cfg.StrOpt(
        "host",
        regex=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,199}$",
        default=socket.gethostname(),
        sample_default="<current hostname>",
        help="Name of this worker as an RPC server. It must be unique among the replicas and "
        "should stay the same over restarts, for it names a queue.",
    ),
    cfg.StrOpt(
        "default_cluster",
        default="default",
        regex=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$",
        help="The cluster of hosts whose reports name none.",
    ),
    cfg.ListOpt(
        "clusters",
        default=[],
        help="The only cluster names that a host report may use. Empty: any name; a new name "
        "makes a new cluster.",
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
        help="Seconds between two reports of a host. A service_down_time that is not longer is "
        "taken as 2.5 times this.",
    ),
    cfg.StrOpt(
        "default_availability_zone",
        default="nova",
        mutable=True,
        help="The zone of hosts that are in no aggregate with an availability zone.",
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
        help="Seconds a stopping worker has to finish the requests it took. What is not finished "
        "by then goes back to the queue for other workers; under [rpc] server = oslo, where that "
        "is not possible, it is given up, and its promises are given back.",
    ),
]
