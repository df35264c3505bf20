"""``[monitoring]``: how the worker is watched."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "monitoring"

OPTS = [
    cfg.PortOpt(
        "port",
        default=0,
        help="Port of the HTTP server with /metrics, /livez and /readyz; 0: none. A worker that "
        "is one of several (--instance N, --workers) takes port + N.",
    ),
    cfg.HostAddressOpt(
        "address",
        default="127.0.0.1",
        help="Address that the HTTP server listens on. Whoever reaches it may read everything "
        "there; it holds names of clusters and filters, and no secrets.",
    ),
    cfg.FloatOpt(
        "stalled_after",
        default=30.0,
        min=1.0,
        help="Seconds without a sign of life of the thread that moves messages after which the "
        "worker counts as hung: /livez fails, and systemd's watchdog gets no more beats.",
    ),
    cfg.IntOpt(
        "max_log_line",
        default=2000,
        min=200,
        help="Characters of a log message, and of a line of a trace; longer ones are cut.",
    ),
    cfg.StrOpt(
        "dump_dir",
        help="Directory for the dumps that SIGUSR1 asks for, which go into the log in any case.",
    ),
]
