"""``scheduler-worker``: the daemon's command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from oslo_config import cfg
from oslo_log import log

from scheduler_worker import conf as configuration
from scheduler_worker.cli import daemon, signals, supervisor
from scheduler_worker.errors import SchedulerWorkerError

_CLI_OPTS = [
    cfg.IntOpt(
        "workers",
        default=1,
        min=1,
        max=64,
        help="Worker processes. More than one needs a [state] url that processes can share.",
    ),
    cfg.IntOpt(
        "instance",
        min=0,
        help="Which of several workers of this host this is; becomes part of its server name "
        "(host.N), so that each has its own queue.",
    ),
    cfg.IntOpt("lifeline", help="Set by --workers for its children; not for you."),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status: 0 stopped, 1 failed, 2 wrong arguments or options."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    signals.block()
    try:
        conf = configuration.load(arguments, cli_opts=_CLI_OPTS)
        settings = configuration.settings(conf)
        log.setup(conf, "scheduler_worker")
        if conf.workers > 1:
            return _supervise(conf, arguments, settings)
        if conf.instance is not None:
            conf.set_override("host", f"{settings.host}.{conf.instance}")
        return daemon.run(conf, lifeline_fd=conf.lifeline)
    except (SchedulerWorkerError, cfg.Error, ValueError) as error:
        sys.stderr.write(f"scheduler-worker: {error}\n")
        return 2


def _supervise(conf: Any, arguments: Sequence[str], settings: configuration.Settings) -> int:
    from scheduler_worker import app

    app.check_processes(settings, conf.workers)
    return supervisor.Supervisor(
        _without_workers(arguments),
        conf.workers,
        stop_timeout_s=settings.graceful_shutdown_timeout_s,
    ).run()


def _without_workers(arguments: Sequence[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for each in arguments:
        if skip:
            skip = False
        elif each == "--workers":
            skip = True
        elif not each.startswith("--workers="):
            kept.append(each)
    return kept
