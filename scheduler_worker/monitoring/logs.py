"""What leaves through the log: one line for each message, of bounded length, without secrets.

A formatter around each handler's own sees what really leaves: the message, the trace, and the
summary that oslo.log makes of an error that is under way. A filter sees the first of these.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from oslo_log.formatters import JSONFormatter

from scheduler_worker.redaction import MASK, SECRET_NAME, redacted

LOG = logging.getLogger(__name__)

_CUT = " ...(cut)"
_PREFIX = 200
"""Room for time, process, level and logger before a message."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\u2028\u2029]")
_ENDS_A_WORD = " \t,;'\""


def protect(max_line: int) -> None:
    """Put the formatter around those of all handlers there are, and log what ends a thread."""
    for handler in set(_handlers()):
        if not isinstance(handler.formatter, CarefulFormatter):
            inner = handler.formatter or logging.Formatter()
            handler.setFormatter(CarefulFormatter(inner, max_line))
    threading.excepthook = _log_end_of_thread


class Together(logging.LogRecord):
    """Records of the same logger, level and thread that are written in one piece."""

    def __init__(self, records: Sequence[logging.LogRecord]) -> None:
        first = records[0]
        super().__init__(first.name, first.levelno, first.pathname, 0, "", (), None)
        self.records = records


class CarefulFormatter(logging.Formatter):
    """What ``inner`` makes of a record, safe to be written down."""

    def __init__(self, inner: logging.Formatter, max_line: int) -> None:
        super().__init__()
        self._inner = inner
        self._max_line = max_line

    def format(self, record: logging.LogRecord) -> Any:
        """Text; for oslo.log's formatter for fluentd a dictionary."""
        if isinstance(record, Together):
            return "\n".join(self._together(record.records))
        record.msg = _one_line(cut(record.getMessage(), self._max_line))
        record.args = ()
        told: Any = self._inner.format(record)
        if record.exc_text:
            record.exc_text = self._lines(record.exc_text)
        if isinstance(self._inner, JSONFormatter):
            return json.dumps(self._plain(json.loads(told)))
        return self._lines(told) if isinstance(told, str) else self._plain(told)

    def _together(self, records: Sequence[logging.LogRecord]) -> Iterator[str]:
        """What differs between lines of the same millisecond is the message."""
        around: tuple[str, str] | None = None
        moment = 0
        for record in records:
            message, at = record.getMessage(), int(1000 * record.created)
            if around is None or at != moment:
                told = self.format(record)
                before, found, after = told.partition(message)
                is_text = found and not isinstance(self._inner, JSONFormatter)
                around, moment = (before, after) if is_text else None, at
            else:
                safe = self._lines(_one_line(cut(message, self._max_line)))
                told = f"{around[0]}{safe}{around[1]}"
            yield told

    def formatException(self, ei: Any) -> str:
        return self._lines(self._inner.formatException(ei))

    def _lines(self, text: str) -> str:
        """Each line bounded; what stands before a message may come on top of it."""
        longest = self._max_line + _PREFIX
        return "\n".join(redacted(cut(line, longest)) for line in text.split("\n"))

    def _plain(self, value: Any, name: str = "") -> Any:
        """A plain value, its texts redacted."""
        if isinstance(value, str):
            return MASK if SECRET_NAME.search(name) else self._lines(value)
        if isinstance(value, dict):
            return {key: self._plain(each, str(key)) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(each, name) for each in value]
        return value


def cut(text: str, longest: int) -> str:
    """The text, or its beginning; never cut inside of a URL, whose user would not be recognised."""
    if len(text) <= longest:
        return text
    kept = text[:longest]
    last_word = max(kept.rfind(each) for each in _ENDS_A_WORD) + 1
    if "://" in kept[last_word:]:
        kept = kept[:last_word]
    return kept + _CUT


def _one_line(text: str) -> str:
    """Nobody writes a line of his own into our log."""
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _handlers() -> Iterator[logging.Handler]:
    yield from logging.getLogger().handlers
    for each in logging.getLogger().manager.loggerDict.values():
        if isinstance(each, logging.Logger):
            yield from each.handlers


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    name = ended.thread.name if ended.thread else "?"
    if ended.exc_value is not None and ended.exc_type is not SystemExit:
        about = (ended.exc_type, ended.exc_value, ended.exc_traceback)
        LOG.error("The thread %s ended", name, exc_info=about)
