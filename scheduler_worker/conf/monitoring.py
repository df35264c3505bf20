"""``[monitoring]``: metrics, health checks, log lines and dumps."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scheduler_worker.monitoring.settings import MonitoringSettings

GROUP = "monitoring"

OPTS = [
    cfg.PortOpt(
        "port",
        default=0,
        help="Port of the HTTP server with /metrics, /livez and /readyz; 0: none. One of several "
        "workers (--instance N, --workers) uses port + N.",
    ),
    cfg.PortOpt(
        "api_port",
        default=0,
        help="The same of scheduler-worker-api without a worker inside; 0: none. A port of its "
        "own, so that both programs of a host may read one file.",
    ),
    cfg.HostAddressOpt(
        "address",
        default="127.0.0.1",
        help="Address that the HTTP server listens on. It has no access control; its pages contain "
        "names of clusters and filters, and no secrets.",
    ),
    cfg.FloatOpt(
        "stalled_after",
        default=30.0,
        min=1.0,
        help="Seconds without a heartbeat of the thread that moves messages after which the worker "
        "counts as hung: /livez fails, and systemd's watchdog gets no more heartbeats.",
    ),
    cfg.IntOpt(
        "max_log_line",
        default=2000,
        min=200,
        help="Characters of a log message, and of a line of a traceback; longer ones are cut.",
    ),
    cfg.StrOpt(
        "dump_dir",
        help="Directory for the dumps that SIGUSR1 triggers, which go into the log in any case.",
    ),
]


def settings(conf: Any) -> MonitoringSettings:
    """How the worker is observed."""
    group = conf.monitoring
    return MonitoringSettings(
        address=group.address,
        port=group.port,
        api_port=group.api_port,
        stalled_after_s=group.stalled_after,
        max_log_line=group.max_log_line,
        dump_dir=group.dump_dir,
    )
