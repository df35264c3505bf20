"""``scheduler-worker-api``: the command that serves the REST API.

SIGTERM or SIGINT: finish the requests in hand and exit with 0. A second one exits at once with 1.
The users file is read again by itself; other options need a restart.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oslo_config import cfg

from scheduler_worker.cli import signals, systemd
from scheduler_worker.cli.worker import opened, run
from scheduler_worker.errors import SchedulerWorkerError

if TYPE_CHECKING:
    from scheduler_worker.compose.api import ApiProcess
    from scheduler_worker.conf import Configuration

LOG = logging.getLogger(__name__)

PROGRAM = "scheduler-worker-api"
_TICK_S = 0.5
_SAME_SIGNAL_S = 1.0
"""A signal to a process group may arrive twice, from the sender and from a parent such as make."""
DEMO_USER = "admin@internal"
"""The administrator of a demo."""
_CLI_OPTS = [
    cfg.BoolOpt(
        "embedded",
        default=False,
        help="Run a worker inside this process, which no other process can reach, on a state in "
        "memory where [state] url is not set.",
    ),
    cfg.BoolOpt(
        "demo",
        default=False,
        help="As --embedded, with policies and users in a temporary directory. Makes an "
        "administrator with a random password and prints one line "
        "`api: URL user: NAME password: SECRET`.",
    ),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if stopped, 1 if failed, 2 for wrong arguments or options."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    return run(PROGRAM, arguments, _CLI_OPTS, _serve)


def _serve(conf: Configuration) -> int:
    if conf.demo:
        conf.set_default("use_stderr", True)  # the standard output has one line
    opened(conf, PROGRAM)
    if conf.demo:
        with tempfile.TemporaryDirectory(prefix=f"{PROGRAM}-") as directory:
            return _demo(conf, Path(directory))
    from scheduler_worker.compose.api import build_api, build_embedded

    return serve(build_embedded(conf) if conf.embedded else build_api(conf))


def _demo(conf: Configuration, directory: Path) -> int:
    api, password = build_demo(conf, directory)

    def announce() -> None:
        sys.stdout.write(f"api: {api.url} user: {DEMO_USER} password: {password}\n")
        sys.stdout.flush()

    return serve(api, announce)


def build_demo(conf: Configuration, directory: Path) -> tuple[ApiProcess, str]:
    """A process with a worker inside, policies and users in a directory; the user's password."""
    from scheduler_worker.api.users import edited, new_user
    from scheduler_worker.compose.api import build_embedded
    from scheduler_worker.operations.callers import Grant

    password = secrets.token_urlsafe(16)
    users_file = directory / "users.yaml"
    with edited(users_file) as users:
        users[DEMO_USER] = new_user(DEMO_USER, password, (Grant("administrator"),))
    conf.set_override("users_file", str(users_file), group="api")
    url = f"sqlite:///{directory / 'policies.sqlite'}"
    conf.set_override("connection", url, group="policy_store")
    return build_embedded(conf), password


def serve(
    api: ApiProcess,
    announce: Callable[[], object] = lambda: None,
    before_stop: Callable[[], object] = lambda: None,
) -> int:
    """Serve until a signal asks to stop; return the exit status.

    ``announce`` is called once it serves, ``before_stop`` while it still does.
    """
    try:
        api.start()
    except SchedulerWorkerError as error:
        LOG.error("The API cannot start: %s", error)  # noqa: TRY400 - the message is enough
        api.stop(0)
        return 1
    announce()
    systemd.notify("READY=1", "STATUS=Serving")
    status = 0
    while not signals.ends(signals.wait(_TICK_S)):
        if (broken := api.failure()) is not None:
            LOG.critical("The API cannot go on and ends: %s", broken)
            status = 1
            break
    systemd.notify("STOPPING=1", "STATUS=Finishing the requests in hand")
    threading.Thread(target=_exit_on_second_signal, name="stopping", daemon=True).start()
    before_stop()
    api.stop()
    LOG.info("Stopped")
    return status


def _exit_on_second_signal() -> None:
    began_s = time.monotonic()
    while not (signals.ends(signals.wait(_TICK_S)) and time.monotonic() > began_s + _SAME_SIGNAL_S):
        pass
    LOG.warning("A second signal to stop; exiting at once")
    os._exit(1)
