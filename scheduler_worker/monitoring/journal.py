"""One INFO line for each decision, in ``key=value`` text of a fixed order.

With oslo.log's ``use_json`` the same stand as fields under ``extra``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue

from scheduler_worker.monitoring.logs import CarefulFormatter, Together
from scheduler_worker.ports import Outcome

LOG = logging.getLogger(__name__)

GATHER_S = 0.02
MOST_WAITING = 20_000
"""For how long lines are gathered, and how many may wait for a log that takes none."""
STOP_S = 5.0
"""How long a worker that stops waits for the log to take the last lines."""
HOSTS_SHOWN = 5
FIELDS = (
    "request_id",
    "cluster",
    "result",
    "hosts",
    "instances",
    "repeated",
    "candidates",
    "passed",
    "rejections",
    "lock_wait_s",
    "hold_s",
    "pending_wait_s",
    "token",
    "attempts",
    "duration_s",
)
"""The fields of the line, in their order."""

_PLAIN = re.compile(r"[\w.,:+@/*-]+", re.ASCII)


class Journal:
    """Writes the lines, many at a time, from a thread of its own.

    Each write lets another thread have the interpreter, and to get it back takes longer than to
    make the line: so decisions leave it to somebody else. Nor do they wait for a slow disk.
    """

    def __init__(self) -> None:
        self._told: SimpleQueue[tuple[Outcome, float] | None] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._left_out = 0

    def start(self) -> None:
        """From now on :meth:`tell` does not wait. Harmless if repeated."""
        if self._thread is not None:
            return
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what was told; later decisions are written as they come. Harmless if repeated."""
        if self._thread is not None:
            self._stopping.set()
            self._told.put(None)
            self._thread.join(STOP_S)
            self._thread = None
            self._write_waiting()

    def tell(self, outcome: Outcome) -> None:
        """How a request for destinations ended."""
        if not LOG.isEnabledFor(logging.INFO):
            return
        if self._thread is None:
            _write([_record(outcome, time.time())])  # nobody gathers
        elif self._told.qsize() < MOST_WAITING:
            self._told.put((outcome, time.time()))
        else:
            self._left_out += 1

    def _run(self) -> None:
        while not self._stopping.is_set():
            first = self._told.get()
            self._stopping.wait(GATHER_S)
            self._write_waiting(first)
            if self._left_out:
                left_out, self._left_out = self._left_out, 0
                LOG.warning("The log is too slow: %d lines of decisions were left out", left_out)

    def _write_waiting(self, *before: tuple[Outcome, float] | None) -> None:
        try:
            _write([_record(*each) for each in (*before, *self._waiting()) if each])
        except Exception:  # a plugin of logging; the thread must go on
            LOG.exception("Lines of decisions cannot be written")

    def _waiting(self) -> Iterator[tuple[Outcome, float] | None]:
        with contextlib.suppress(Empty):
            while True:
                yield self._told.get_nowait()


def _record(outcome: Outcome, told_s: float) -> logging.LogRecord:
    told = fields(outcome)
    record = LOG.makeRecord(
        LOG.name, logging.INFO, __file__, 0, line(told), (), None, extra={"extra": told}
    )
    record.created, record.msecs = told_s, int(told_s % 1 * 1000)
    return record


def _write(records: Sequence[logging.LogRecord]) -> None:
    """Hand them to all handlers, to those that write to a stream in one piece."""
    logger: logging.Logger | None = LOG
    while logger and records:
        for handler in logger.handlers:
            if handler.level <= logging.INFO:
                for record in _as_taken_by(handler, records):
                    handler.handle(record)
        logger = logger.parent if logger.propagate else None


def _as_taken_by(
    handler: logging.Handler, records: Sequence[logging.LogRecord]
) -> Sequence[logging.LogRecord]:
    is_stream = isinstance(handler, logging.StreamHandler)
    if is_stream and isinstance(handler.formatter, CarefulFormatter) and len(records) > 1:
        return [Together(records)]
    return records


def fields(outcome: Outcome) -> dict[str, object]:
    """What is told of an outcome; the names are :data:`FIELDS`, times are seconds."""
    shown = outcome.hosts[:HOSTS_SHOWN]
    more = len(outcome.hosts) - len(shown)
    return {
        "request_id": outcome.request_id,
        "cluster": outcome.cluster,
        "result": outcome.result,
        "hosts": ",".join([*shown, f"+{more}"] if more else shown),
        "instances": outcome.instances,
        "repeated": outcome.repeated,
        "candidates": outcome.candidates,
        "passed": outcome.passed,
        "rejections": ",".join(f"{name}:{count}" for name, count in outcome.rejections if count),
        "lock_wait_s": round(outcome.lock_wait_s, 6),
        "hold_s": round(outcome.hold_s, 6),
        "pending_wait_s": round(outcome.waited_for_pending_s, 6),
        "token": outcome.token,
        "attempts": outcome.attempts,
        "duration_s": round(outcome.duration_s, 6),
    }


def line(told: dict[str, object]) -> str:
    """``key=value`` text; what is not a plain word is quoted as JSON does, nothing is ``-``."""
    return " ".join([f"{name}={_value(value)}" for name, value in told.items()])


def _value(value: object) -> object:
    if isinstance(value, str) and value:
        return value if _PLAIN.fullmatch(value) else json.dumps(value)
    return "-" if value is None or value == "" else value
