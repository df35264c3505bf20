"""The programs that an installation has: each needs the server, which a client's has not.

Nothing else is imported here, so that a program can say what to install.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from scheduler_worker.cli import UNUSABLE
from scheduler_worker.errors import ConfigError
from scheduler_worker.extras import needing_extra

_OF_SERVER = "numpy"
"""A package of the extra ``server`` that no client has; pip installs all of an extra or nothing."""


def worker() -> int:
    """``scheduler-worker``."""
    return _run("scheduler-worker", "worker")


def api() -> int:
    """``scheduler-worker-api``."""
    return _run("scheduler-worker-api", "api")


def manage() -> int:
    """``scheduler-worker-manage``."""
    return _run("scheduler-worker-manage", "manage")


def ctl() -> int:
    """``scheduler-workerctl``."""
    return _run("scheduler-workerctl", "ctl")


def _run(program: str, module: str) -> int:
    """Run a program of ``cli/``; returns its exit status, 2 where the server is not installed."""
    try:
        with needing_extra("server", "this program"):
            if find_spec(_OF_SERVER) is None:
                raise ImportError(f"No module named {_OF_SERVER!r}")
    except ConfigError as error:
        sys.stderr.write(f"{program}: {error}\n")
        return UNUSABLE
    main: Callable[[], int] = import_module(f"scheduler_worker.cli.{module}").main
    return main()
