"""Makes log output safe: one line for each message, of bounded length, without secrets.

A formatter wraps that of each handler, because only a formatter sees the whole output: the message,
the traceback, and the summary that oslo.log adds of the exception being handled. A logging filter
would see the message alone.
"""

import json
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from oslo_log.formatters import JSONFormatter

from scheduler_worker.redaction import MASK, SECRET_NAME, redacted
from scheduler_worker.wording import lines, one_line

LOG = logging.getLogger(__name__)

_CUT = " ...(cut)"
_PREFIX = 200
"""Room for time, process, level and logger in front of a message."""
_MOMENT_S = 0.01
"""A format costs twice as much CPU as the rest of a line."""
_ENDS_A_WORD = " \t,;'\""


def protect(max_line: int) -> None:
    """Wrap the formatters of all present handlers, and log exceptions that end a thread."""
    for handler in {handler for logger in loggers() for handler in logger.handlers}:
        if not isinstance(handler.formatter, SafeFormatter):
            inner = handler.formatter or logging.Formatter()
            handler.setFormatter(SafeFormatter(inner, max_line))
    threading.excepthook = _log_end_of_thread


class Line(NamedTuple):
    """A message of a batch, and when it was logged, in seconds since 1970."""

    time_s: float
    text: str
    fields: dict[str, object]


class RecordBatch(logging.LogRecord):
    """Lines of the same logger, level and thread that are written with one call.

    ``record`` makes a record of one: few need their own.
    """

    def __init__(self, lines: Sequence[Line], record: Callable[[Line], logging.LogRecord]) -> None:
        first = record(lines[0])
        super().__init__(first.name, first.levelno, first.pathname, 0, "", (), None)
        self.lines = lines
        self.record = record


class SafeFormatter(logging.Formatter):
    """Formats a record with ``inner``, then bounds and redacts the result."""

    def __init__(self, inner: logging.Formatter, max_line: int) -> None:
        super().__init__()
        self._inner = inner
        self._max_line = max_line

    def format(self, record: logging.LogRecord) -> Any:
        """The text; a dictionary from oslo.log's formatter for fluentd."""
        if isinstance(record, RecordBatch):
            return "\n".join(self._batch(record))
        record.msg = one_line(cut(record.getMessage(), self._max_line))
        record.args = ()
        formatted: Any = self._inner.format(record)
        if isinstance(formatted, str):
            formatted = _without_repetition(formatted, record)
            for text in _of_errors(record):
                if not text.isprintable():
                    formatted = formatted.replace(text, lines(text))
        if record.exc_text:
            record.exc_text = self._lines(lines(record.exc_text))
        if isinstance(self._inner, JSONFormatter):
            return json.dumps(self._plain(json.loads(formatted)))
        return self._lines(formatted) if isinstance(formatted, str) else self._plain(formatted)

    def _batch(self, batch: RecordBatch) -> Iterator[str]:
        """The lines of a batch. Lines of a moment share the time of the first, and its format."""
        around: tuple[str, str] | None = None
        moment = 0
        for line in batch.lines:
            message, at = line.text, int(line.time_s / _MOMENT_S)
            if around is None or at != moment:
                formatted = self.format(batch.record(line))
                before, found, after = formatted.partition(message)
                is_text = found and not isinstance(self._inner, JSONFormatter)
                around, moment = (before, after) if is_text else None, at
            else:
                safe = redacted(one_line(cut(message, self._max_line)))
                formatted = f"{around[0]}{safe}{around[1]}"
            yield formatted

    def formatException(self, ei: Any) -> str:
        return self._lines(self._inner.formatException(ei))

    def _lines(self, text: str) -> str:
        """Bound and redact each line; the prefix in front of a message is not counted."""
        longest = self._max_line + _PREFIX
        return "\n".join(redacted(cut(line, longest)) for line in text.split("\n"))

    def _plain(self, value: Any, name: str = "") -> Any:
        """A plain value with all texts redacted."""
        if isinstance(value, str):
            return MASK if SECRET_NAME.search(name) else self._lines(value)
        if isinstance(value, dict):
            return {key: self._plain(item, str(key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(item, name) for item in value]
        return value


def cut(text: str, longest: int) -> str:
    """The text, or its beginning. Not cut inside of a URL, whose account would not be redacted."""
    if len(text) <= longest:
        return text
    kept = text[:longest]
    last_word = max(kept.rfind(mark) for mark in _ENDS_A_WORD) + 1
    if "://" in kept[last_word:]:
        kept = kept[:last_word]
    return kept + _CUT


def _without_repetition(formatted: str, record: logging.LogRecord) -> str:
    """Remove oslo.log's summary of the exception being handled, if the message has its text."""
    error = sys.exc_info()[1]
    if record.exc_info or error is None:
        return formatted
    text = one_line(str(error))
    if not text or text not in formatted:
        return formatted
    summary = ": " + traceback.format_exception_only(error)[0].rstrip().partition("\n")[0]
    before = formatted.removesuffix(summary)
    return before if text in before else formatted


def _of_errors(record: logging.LogRecord) -> Iterator[str]:
    """The texts that formatters add to a message: the traceback, and the error in a summary."""
    if record.exc_text:
        yield record.exc_text
    error = (record.exc_info or sys.exc_info())[1]
    yield from str(error).split("\n") if error else ()


def loggers() -> list[logging.Logger]:
    """All loggers, the root first."""
    root = logging.getLogger()
    known = list(root.manager.loggerDict.values())
    return [root, *(logger for logger in known if isinstance(logger, logging.Logger))]


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    name = ended.thread.name if ended.thread else "?"
    if ended.exc_value is not None and ended.exc_type is not SystemExit:
        about = (ended.exc_type, ended.exc_value, ended.exc_traceback)
        LOG.error("The thread %s ended", name, exc_info=about)
