"""What a process is doing, for an operator who asks: versions, stacks, state, settings.

Nothing here takes a lock that work may hold. Of the stacks there are names and lines of code, no
values; of the settings everything but secrets.
"""

from __future__ import annotations

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
from typing import Any, Protocol

from scheduler_worker import __version__
from scheduler_worker.monitoring.health import ask
from scheduler_worker.redaction import redacted

LOG = logging.getLogger(__name__)

_PATIENCE_S = 2.0
_LIBRARIES = ("oslo.config", "oslo.log", "oslo.messaging", "kombu", "amqp", "redis", "numpy")


class Options(Protocol):
    """An oslo.config ``ConfigOpts``, as far as a dump needs it."""

    def log_opt_values(self, logger: Any, lvl: int) -> None: ...


def lines(describe: Callable[[], Mapping[str, Any]], options: Options) -> Iterator[str]:
    """The dump, line by line; what may hang comes last."""
    for title, section in (
        ("Versions", versions),
        ("Threads", stacks),
        ("Settings", lambda: settings(options)),
        ("Worker", lambda: described(describe)),
    ):
        yield f"== {title} =="
        try:
            yield from (redacted(each) for each in section())
        except Exception as error:
            yield redacted(f"cannot be told: {error!r}")


def write(dumped: Iterable[str], directory: str | None) -> None:
    """Log each line, after it was written into a new file of the directory, if there is one."""
    told = list(dumped) if directory is None else _kept(dumped, Path(directory))
    for each in told:
        LOG.warning("%s", each)


def _kept(dumped: Iterable[str], directory: Path) -> list[str]:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = directory / f"scheduler-worker-{os.getpid()}-{stamp}-{time.monotonic_ns()}.txt"
    told = []
    try:
        # Others may not read it, and what is there already is not touched.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            for each in dumped:
                told.append(each)
                file.write(f"{each}\n")
                file.flush()
    except OSError as error:
        LOG.error("[monitoring] dump_dir: %s", error)  # noqa: TRY400
        return [*told, *dumped]
    return [f"Dumped to {path}", *told]


def versions() -> Iterator[str]:
    """What runs here."""
    yield f"scheduler_worker {__version__}, pid {os.getpid()}"
    yield f"Python {platform.python_version()}, {platform.platform()}"
    for name in _LIBRARIES:
        yield f"{name} {metadata.version(name)}"


def stacks() -> Iterator[str]:
    """Where each thread is, the innermost call last."""
    threads = {each.ident: each for each in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        yield f"-- {thread.name if thread else '?'} ({ident})"
        for entry in traceback.extract_stack(frame):
            yield f"{entry.filename}:{entry.lineno} {entry.name}: {entry.line}"


def settings(options: Options) -> list[str]:
    """All options, those that are marked secret masked."""
    told: list[str] = []

    class Collector:
        def log(self, _level: int, text: str, *args: Any) -> None:
            told.append(text % args if args else text)

    options.log_opt_values(Collector(), logging.INFO)
    return told


def described(describe: Callable[[], Mapping[str, Any]]) -> Iterator[str]:
    """What the worker tells of itself, if it does within two seconds."""
    told = ask(describe).result(_PATIENCE_S)
    for name, value in told.items():
        yield f"{name} = {json.dumps(value, default=repr, sort_keys=True)}"
