"""``scheduler-worker``: the command that runs the daemon."""

from __future__ import annotations

import faulthandler
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from oslo_config import cfg
from oslo_log import log

from scheduler_worker import __version__
from scheduler_worker.cli import UNUSABLE, signals
from scheduler_worker.errors import ConfigError, SchedulerWorkerError
from scheduler_worker.redaction import redacted
from scheduler_worker.wording import lines

if TYPE_CHECKING:
    from scheduler_worker.conf import Configuration, Settings

LOG = logging.getLogger(__name__)

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
        help="The number of this worker among several of its host. It becomes part of the server "
        "name (host.N), so that each has its own queue, and is added to [monitoring] port.",
    ),
    cfg.BoolOpt(
        "embedded",
        default=False,
        help="Serve a bus inside this process, which no other process can reach, where "
        "transport_url is not set. Without this option such a worker refuses to start.",
    ),
    cfg.BoolOpt(
        "check-config",
        default=False,
        help="Do not start; print everything that is wrong, unknown or unused in the "
        "configuration. The exit status is 2 if a worker would not start with it, 1 if it would "
        "start without parts of it, else 0.",
    ),
    cfg.BoolOpt(
        "check-connections",
        default=False,
        help="Like --check-config, and connect to the brokers and to the shared state. The exit "
        "status is 2 also if one of them would not serve a worker.",
    ),
    cfg.IntOpt(
        "lifeline",
        help="File descriptor of the supervisor's socket; set by --workers for its children.",
    ),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if stopped, 1 if failed, 2 for wrong arguments or options."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    return run("scheduler-worker", arguments, _CLI_OPTS, partial(_serve, arguments))


def run(
    program: str,
    arguments: Sequence[str],
    cli_opts: Sequence[Any],
    serve: Callable[[Configuration], int],
) -> int:
    """Serve with a configuration, and return the status; 2 for one that cannot be used."""
    signals.block()
    faulthandler.enable()  # prints all stacks after a crash or the watchdog's SIGABRT
    try:
        _answer_help(program, arguments, cli_opts)
        # Imported only now: numpy starts threads when it is imported, and the kernel may deliver a
        # signal to a thread that does not block it, which would end the process.
        from scheduler_worker import conf

        return serve(conf.load(arguments, cli_opts=cli_opts, prog=program))
    except (SchedulerWorkerError, cfg.Error, ValueError) as error:
        sys.stderr.write(f"{program}: {lines(redacted(str(error)))}\n")
        return UNUSABLE


def _answer_help(program: str, arguments: Sequence[str], cli_opts: Sequence[Any]) -> None:
    """Answer ``--help`` and ``--version``, and exit: that needs no options of files."""
    if {"-h", "--help", "--version"}.isdisjoint(arguments):
        return
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    conf.register_cli_opts(cli_opts)
    conf(list(arguments), project="scheduler_worker", prog=program, version=__version__)


def _serve(arguments: Sequence[str], conf: Configuration) -> int:
    if conf.check_config or conf.check_connections:
        from scheduler_worker.cli import check

        return check.run(conf)
    settings = opened(conf)
    from scheduler_worker.compose import checks

    checks.check_reachable(conf, embedded=conf.embedded)
    checks.check_processes(settings, conf.workers)
    if conf.workers > 1 and conf.lifeline is None:
        from scheduler_worker.cli.supervisor import Supervisor

        settings.monitoring.port_of(conf.workers - 1)
        timeout_s = settings.graceful_shutdown_timeout_s
        return Supervisor(arguments, conf.workers, stop_timeout_s=timeout_s).run()
    if conf.instance is not None:  # several workers have a server name and a port each
        conf.set_override("host", f"{settings.host}.{conf.instance}")
        conf.set_override("port", settings.monitoring.port_of(conf.instance), group="monitoring")
    from scheduler_worker.cli import daemon

    return daemon.run(conf, lifeline_fd=conf.lifeline)


def opened(conf: Configuration, program: str | None = None) -> Settings:
    """Open the log, which names the files that were read, and return the settings."""
    from scheduler_worker import conf as configuration
    from scheduler_worker.monitoring import protect

    settings = configuration.settings(conf)
    open_log(conf, program)
    protect(settings.monitoring.max_log_line)
    LOG.info("Configuration: %s", ", ".join(conf.files) or "no file")
    return settings


def open_log(conf: Any, program: str | None = None) -> None:
    """Open the log; in ``log_dir`` the file is named after the program, or a worker's number.

    Raises ConfigError where it cannot be written.
    """
    if conf.log_dir:  # else oslo.log names the file after sys.argv[0]
        number = "" if program or conf.instance is None else f".{conf.instance}"
        conf.set_default("log_file", f"{program or 'scheduler-worker'}{number}.log")
    from scheduler_worker.monitoring.log_config import refused

    try:
        log.setup(conf, "scheduler_worker")
    except OSError as error:
        raise ConfigError(
            f"[DEFAULT] log_dir, log_file: {error.filename} cannot be written: {error.strerror}"
        ) from None
    except log.LogConfigError as error:
        raise refused(error.log_config, error.err_msg) from None
    except Exception as error:
        if not conf.log_config_append:
            raise
        raise refused(conf.log_config_append, repr(error)) from None
