"""Dumps a process's state for an operator: versions, stacks, settings, the worker's description.

Nothing here takes a lock that requests may hold. Stacks have names and lines of code, no values;
secret settings are masked.
"""

import json
import logging
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from oslo_config import cfg

from scheduler_worker import __version__
from scheduler_worker.monitoring.health import call_in_thread
from scheduler_worker.redaction import redacted

LOG = logging.getLogger(__name__)

_TIMEOUT_S = 2.0
_LIBRARIES = ("oslo.config", "oslo.log", "oslo.messaging", "kombu", "amqp", "redis", "numpy")


def lines(describe: Callable[[], Mapping[str, Any]], options: cfg.ConfigOpts) -> Iterator[str]:
    """The lines of the dump; the section that may hang is the last."""
    for title, section in (
        ("Versions", versions),
        ("Threads", stacks),
        ("Settings", lambda: settings(options)),
        ("Worker", lambda: description(describe)),
    ):
        yield f"== {title} =="
        try:
            yield from (redacted(line) for line in section())
        except Exception as error:
            yield redacted(f"not available: {error!r}")


def write(dumped: Iterable[str], directory: str | None) -> None:
    """Write the lines into a new file in the directory, if one is given, and into the log."""
    output = list(dumped) if directory is None else _kept(dumped, Path(directory))
    for line in output:
        LOG.warning("%s", line)


def _kept(dumped: Iterable[str], directory: Path) -> list[str]:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = directory / f"scheduler-worker-{os.getpid()}-{stamp}-{time.monotonic_ns()}.txt"
    output = []
    try:
        # Readable by the owner only; an existing file is never overwritten.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            for line in dumped:
                output.append(line)
                file.write(f"{line}\n")
                file.flush()
    except OSError as error:
        LOG.error("[monitoring] dump_dir: %s", error)  # noqa: TRY400
        return [*output, *dumped]
    return [f"Dumped to {path}", *output]


def versions() -> Iterator[str]:
    """The versions of the worker, Python and the main libraries."""
    yield f"scheduler_worker {__version__}, pid {os.getpid()}"
    yield f"Python {platform.python_version()}, {platform.platform()}"
    for name in _LIBRARIES:
        yield f"{name} {metadata.version(name)}"


def stacks() -> Iterator[str]:
    """The stack of each thread, the innermost call last."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        yield f"-- {thread.name if thread else '?'} ({ident})"
        for entry in traceback.extract_stack(frame):
            yield f"{entry.filename}:{entry.lineno} {entry.name}: {entry.line}"


def settings(options: cfg.ConfigOpts) -> list[str]:
    """All options; secret ones are masked."""
    texts: list[str] = []

    class Collector:
        def log(self, _level: int, text: str, *args: Any) -> None:
            texts.append(text % args if args else text)

    options.log_opt_values(Collector(), logging.INFO)
    return texts


def description(describe: Callable[[], Mapping[str, Any]]) -> Iterator[str]:
    """The worker's description, if it answers within two seconds."""
    described = call_in_thread(describe).result(_TIMEOUT_S)
    for name, value in described.items():
        yield f"{name} = {json.dumps(value, default=repr, sort_keys=True)}"
