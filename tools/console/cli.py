"""The command line of the demo cloud."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from console.cloud import Cloud, stream
from scheduler_worker import conf as configuration
from scheduler_worker.cli import UNUSABLE, signals
from scheduler_worker.cli.api import DEMO_USER, build_demo, serve
from scheduler_worker.cli.worker import open_log
from scheduler_worker.errors import SchedulerWorkerError


def parser() -> argparse.ArgumentParser:
    """All options."""
    options = argparse.ArgumentParser(
        prog="tools/console",
        description="A cloud to try the console with: 1,000 hosts in three clusters, and requests "
        "without end, all in this process. Prints one line `console: URL`; the URL logs in once.",
    )
    options.add_argument("--port", type=int, default=8780, help="0: a free one (8780)")
    options.add_argument(
        "--config-file", action="append", default=[], help="options of worker and API"
    )
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal; return 0 if stopped, 1 if failed, 2 for options that do not work."""
    parsed = parser().parse_args(argv)
    signals.block()
    arguments = [part for path in parsed.config_file for part in ("--config-file", path)]
    try:
        conf = configuration.load(arguments, prog="tools/console")
        conf.set_override("port", parsed.port, group="api")
        conf.set_default("use_stderr", True)  # the standard output has one line
        open_log(conf, program="console")
        with tempfile.TemporaryDirectory(prefix="scheduler-worker-console-") as directory:
            return _serve(conf, Path(directory))
    except (SchedulerWorkerError, ValueError) as error:
        sys.stderr.write(f"tools/console: {error}\n")
        return UNUSABLE


def _serve(conf: configuration.Configuration, directory: Path) -> int:
    from scheduler_worker.client import SchedulerClient

    api, password = build_demo(conf, directory)
    if api.worker is None or api.api.console is None:
        raise ValueError("[api] console is false; leave it out to try the console")
    cloud = Cloud(SchedulerClient(api.worker.bus, topic=api.worker.settings.rpc.topic), stream())
    invitation = api.api.console.invitations.invite(DEMO_USER)

    def announce() -> None:
        cloud.start()
        sys.stderr.write(f"Other browsers log in as {DEMO_USER} with {password}\n")
        sys.stdout.write(f"console: {api.console_url}#invitation={invitation}\n")
        sys.stdout.flush()

    return serve(api, announce, before_stop=cloud.stop)
