"""``--check-config`` and ``--check-connections``: print every problem of a configuration.

Nothing is started, and nothing is logged.
"""

import logging
import os
import sys
from collections.abc import Iterator

from scheduler_worker import conf as configuration
from scheduler_worker.cli import UNUSABLE
from scheduler_worker.cli.progress import ProgressReport, awaited
from scheduler_worker.compose import checks
from scheduler_worker.conf import Configuration, Settings
from scheduler_worker.redaction import redacted
from scheduler_worker.wording import lines

USABLE, PARTLY = 0, 1
"""The exit status where a worker would start, or would without parts of the configuration."""


def run(conf: Configuration) -> int:
    """Print every problem; return the exit status."""
    logging.disable()
    _print("read", ", ".join(conf.files) or "no file")
    unknown = configuration.unread(conf)
    wrong = checks.refusals(conf, embedded=conf.embedded)
    wrong += checks.unwritable_logs(conf)
    unused, notices = configuration.unused(conf), configuration.notices(conf)
    settings, _ = configuration.inspected(conf)
    missing = checks.left_out(settings)
    directory = settings.monitoring.dump_dir
    if directory and not os.access(directory, os.W_OK):
        missing.append(f"[monitoring] dump_dir: nothing can be written into {directory}")
    for kind, texts in (
        ("wrong", wrong),
        ("unknown", unknown),
        ("left out", missing),
        ("unused", unused),
        ("note", notices),
    ):
        for text in texts:
            _print(kind, text)
    if conf.check_connections and not wrong:
        with ProgressReport().shown():
            wrong += list(_broken_connections(conf, settings))
    if wrong:
        return _end("a worker would not start, or not serve, with this", UNUSABLE)
    if unknown or missing:
        return _end("a worker would start without some of this", PARTLY)
    return _end("a worker can start with this", USABLE)


def _broken_connections(conf: Configuration, settings: Settings) -> Iterator[str]:
    connections = awaited(checks.connections(conf, settings), "the next connection")
    for name, problem, notes, _ in connections:
        if problem:
            _print("wrong", problem)
            yield problem
        for note in notes:
            _print("note", note)
        if not problem:
            _print("connected", name)


def _end(result: str, status: int) -> int:
    _print("result", result)
    return status


def _print(kind: str, text: str) -> None:
    sys.stdout.write(lines(redacted(f"{kind}: {text}")) + "\n")
