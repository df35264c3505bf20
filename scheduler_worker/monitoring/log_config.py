"""Changes logging while the program runs: the root's level, the file of ``log_config_append``."""

import io
import logging
import logging.config
from pathlib import Path

from scheduler_worker.errors import ConfigError
from scheduler_worker.monitoring.logs import loggers, protect


class LogConfig:
    """The logging in force; it stays where another cannot be loaded."""

    def __init__(self, path: str | None, *, debug: bool) -> None:
        """Raises ConfigError where the file cannot be read."""
        self._text = read(path)
        self._debug = debug

    def change(self, path: str | None, text: str, *, debug: bool, max_line: int) -> None:
        """Put the file's text in force, which :func:`read` returned. Raises ConfigError."""
        if text not in {"", self._text}:
            _load(path, text)
            protect(max_line)
            self._text = text
        if debug != self._debug:
            logging.getLogger().setLevel(logging.DEBUG if debug else logging.INFO)
            self._debug = debug


def read(path: str | None) -> str:
    """The text of the file; empty where none is configured. Raises ConfigError."""
    try:
        return Path(path).read_text() if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise refused(path, repr(error)) from None


def _load(path: str | None, text: str) -> None:
    before = [(logger, logger.level, logger.propagate, logger.handlers) for logger in loggers()]
    try:
        for logger, *_ in before:  # loggers that the file does not name would stay as they were
            logger.setLevel(logging.NOTSET)
            logger.propagate, logger.handlers = True, []
        logging.config.fileConfig(io.StringIO(text), disable_existing_loggers=False)
    except Exception as error:  # whatever the constructors of handlers and formatters raise
        for logger, level, propagate, handlers in before:
            logger.setLevel(level)
            logger.propagate, logger.handlers = propagate, handlers
        raise refused(path, repr(error)) from None


def refused(path: str | None, why: str) -> ConfigError:
    """The error of a file that cannot be loaded."""
    return ConfigError(
        f"[DEFAULT] log_config_append: {path}: {why}; correct it, or name another file"
    )
