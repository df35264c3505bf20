"""Logs one INFO line for each decision: ``key=value`` pairs in a fixed order.

With oslo.log's ``use_json`` the pairs are fields under ``extra``.
"""

import contextlib
import json
import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue

from scheduler_worker.monitoring.logs import Line, RecordBatch, SafeFormatter, cut
from scheduler_worker.observer import Outcome

LOG = logging.getLogger(__name__)

COLLECT_S = 0.02
MAX_WAITING = 20_000
"""For how long lines are collected before a write, and how many may wait for a slow log."""
STOP_S = 5.0
"""How long a stopping worker waits for the last lines to be written."""
MAX_SHOWN = 10
REASON_CHARACTERS = 300
"""How many hosts and instances a line names (more are counted), and the length of a reason."""

_PLAIN = re.compile(r"[\w.,:+@/*-]*", re.ASCII)


class Journal:
    """Writes the lines, many at a time, in a thread of its own.

    A write releases the interpreter lock, and getting it back takes longer than making the line.
    So requests do not write themselves; nor do they wait for a slow disk.
    """

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[Outcome, float] | None] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._dropped = 0

    def start(self) -> None:
        """Start the thread; from now on :meth:`record` does not block. Idempotent."""
        if self._thread is not None:
            return
        self._stopping.clear()
        thread = threading.Thread(target=self._run, name="journal", daemon=True)
        thread.start()
        self._thread = thread  # only now may it be joined

    def stop(self) -> None:
        """Write the waiting lines; later ones are written at once, by their callers. Idempotent."""
        if self._thread is not None:
            self._stopping.set()
            self._waiting.put(None)
            self._thread.join(STOP_S)
            self._thread = None
            self._write_waiting()

    def record(self, outcome: Outcome) -> None:
        """Log how a request for destinations ended."""
        if not LOG.isEnabledFor(logging.INFO):
            return
        if self._thread is None:
            _write([_line(outcome, time.time())])  # no thread collects them
        elif self._waiting.qsize() < MAX_WAITING:
            self._waiting.put((outcome, time.time()))
        else:
            self._dropped += 1

    def _run(self) -> None:
        while not self._stopping.is_set():
            first = self._waiting.get()
            self._stopping.wait(COLLECT_S)
            self._write_waiting(first)
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                LOG.warning("The log is too slow: %d lines of decisions were dropped", dropped)

    def _write_waiting(self, *before: tuple[Outcome, float] | None) -> None:
        try:
            _write([_line(*each) for each in (*before, *self._drain()) if each])
        except Exception:  # raised by a logging plugin; the thread must go on
            LOG.exception("Lines of decisions cannot be written")

    def _drain(self) -> Iterator[tuple[Outcome, float] | None]:
        with contextlib.suppress(Empty):
            while True:
                yield self._waiting.get_nowait()


def _line(outcome: Outcome, time_s: float) -> Line:
    values = fields(outcome)
    return Line(time_s, line(values), values)


def _record(logged: Line) -> logging.LogRecord:
    record = LOG.makeRecord(
        LOG.name, logging.INFO, __file__, 0, logged.text, (), None, extra={"extra": logged.fields}
    )
    record.created, record.msecs = logged.time_s, int(logged.time_s % 1 * 1000)
    return record


def _write(lines: Sequence[Line]) -> None:
    """Pass the lines to all handlers; to stream handlers as one record, for a single write."""
    logger: logging.Logger | None = LOG
    while logger and lines:
        for handler in logger.handlers:
            if handler.level > logging.INFO:
                continue
            if isinstance(handler, logging.StreamHandler) and isinstance(
                handler.formatter, SafeFormatter
            ):
                handler.handle(RecordBatch(lines, _record))
                continue
            for logged in lines:
                handler.handle(_record(logged))
        logger = logger.parent if logger.propagate else None


def fields(outcome: Outcome) -> dict[str, object]:
    """The fields of an outcome's line, in their order; times are seconds."""
    return {
        "request_id": outcome.request_id,
        "global_request_id": outcome.global_request_id,
        "project": outcome.project_id,
        "cluster": outcome.cluster,
        "policy": outcome.policy,
        "result": outcome.result,
        "reason": outcome.reason and cut(outcome.reason, REASON_CHARACTERS),
        "hosts": _listed(outcome.hosts),
        "instances": outcome.instances,
        "instance_uuids": _listed(outcome.instance_uuids),
        "repeated": outcome.repeated,
        "candidates": outcome.candidates,
        "passed": outcome.passed,
        "rejections": ",".join(f"{name}:{count}" for name, count in outcome.rejections if count),
        "lock_wait_s": round(outcome.waits.lock_s, 6),
        "hold_s": round(outcome.waits.hold_s, 6),
        "pending_wait_s": round(outcome.waits.pending_s, 6),
        "claim_s": round(outcome.waits.claim_s, 6),
        "token": outcome.token,
        "attempts": outcome.attempts,
        "duration_s": round(outcome.duration_s, 6),
    }


def _listed(names: Sequence[str]) -> str:
    shown, more = names[:MAX_SHOWN], len(names) - MAX_SHOWN
    return ",".join([*shown, f"+{more}"] if more > 0 else shown)


def line(values: dict[str, object]) -> str:
    """``key=value`` text; values that are no plain words are JSON strings, empty ones ``-``."""
    if not _PLAIN.fullmatch(
        "".join([value for value in values.values() if isinstance(value, str)])
    ):
        values = {name: _quoted(value) for name, value in values.items()}
    return " ".join(
        [
            f"{name}={'-' if value is None or value == '' else value}"
            for name, value in values.items()
        ]
    )


def _quoted(value: object) -> object:
    is_quoted = isinstance(value, str) and not _PLAIN.fullmatch(value)
    return json.dumps(value) if is_quoted else value
