"""``scheduler-worker``: the daemon's command."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oslo_config import cfg
from oslo_log import log

from scheduler_worker.cli import signals
from scheduler_worker.errors import ConfigError, SchedulerWorkerError
from scheduler_worker.redaction import redacted

if TYPE_CHECKING:
    from scheduler_worker.conf import Settings

_MAX_PORT = 65535
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
        "(host.N), so that each has its own queue, and is added to [monitoring] port.",
    ),
    cfg.IntOpt("lifeline", help="Set by --workers for its children; not for you."),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status: 0 stopped, 1 failed, 2 wrong arguments or options."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    signals.block()
    faulthandler.enable()  # a crash, or the watchdog's SIGABRT, leaves all stacks on stderr
    # Only now: numpy starts threads when it is imported, and one that does not hold signals back
    # may be given ours, which would end the process.
    from scheduler_worker import conf as configuration
    from scheduler_worker.monitoring import protect

    try:
        conf = configuration.load(arguments, cli_opts=_CLI_OPTS)
        settings = configuration.settings(conf)
        log.setup(conf, "scheduler_worker")
        protect(settings.max_log_line)
        if conf.workers > 1:
            return _supervise(conf, arguments, settings)
        if conf.instance is not None:
            _number(conf, settings)
        from scheduler_worker.cli import daemon

        return daemon.run(conf, lifeline_fd=conf.lifeline)
    except (SchedulerWorkerError, cfg.Error, ValueError) as error:
        sys.stderr.write(f"scheduler-worker: {redacted(str(error))}\n")
        return 2


def _number(conf: Any, settings: Settings) -> None:
    """Tell one of several workers from the others."""
    conf.set_override("host", f"{settings.host}.{conf.instance}")
    if settings.monitoring_port:
        port = settings.monitoring_port + conf.instance
        if port > _MAX_PORT:
            raise ConfigError(
                f"[monitoring] port: {port} is no port; with --instance {conf.instance} choose "
                f"one up to {_MAX_PORT - conf.instance}"
            )
        conf.set_override("port", port, group="monitoring")


def _supervise(conf: Any, arguments: Sequence[str], settings: Settings) -> int:
    from scheduler_worker import app
    from scheduler_worker.cli import supervisor

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
