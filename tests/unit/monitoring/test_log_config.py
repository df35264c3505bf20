"""Logging that is changed while a program runs."""

import logging

import pytest

from scheduler_worker.errors import ConfigError
from scheduler_worker.monitoring.log_config import LogConfig, read
from scheduler_worker.monitoring.logs import SafeFormatter, loggers

GOOD = """\
[loggers]
keys = root
[logger_root]
level = INFO
handlers = file
[handlers]
keys = file
[handler_file]
class = FileHandler
args = ({path!r},)
[formatters]
keys =
"""


@pytest.fixture(autouse=True)
def restored():
    before = [(each, each.level, each.propagate, each.handlers) for each in loggers()]
    yield
    for logger, level, propagate, handlers in before:
        logger.setLevel(level)
        logger.propagate, logger.handlers = propagate, handlers


@pytest.fixture
def change():
    """Changes logging to a text, as a reload does."""
    config = LogConfig(None, debug=False)
    return lambda text, debug=False: config.change("log.conf", text, debug=debug, max_line=1000)


def test_a_file_that_cannot_be_loaded_leaves_logging_as_it_was(tmp_path, change):
    log = tmp_path / "log"
    change(GOOD.format(path=str(log)))
    for broken in ("", "[loggers", GOOD.replace("FileHandler", "NoSuchHandler")):
        if broken:
            with pytest.raises(ConfigError, match=r"\[DEFAULT\] log_config_append: log.conf: "):
                change(broken)
        logging.getLogger("tests").info("password=%s", "hush")
    assert log.read_text() == 3 * "password=***\n"


def test_a_new_file_is_loaded_once_and_its_handlers_redact(tmp_path, change):
    good = GOOD.format(path=str(tmp_path / "log"))
    change(good)
    [handler] = logging.getLogger().handlers
    assert isinstance(handler.formatter, SafeFormatter)
    change(good, debug=True)
    assert logging.getLogger().handlers == [handler]
    assert logging.getLogger().level == logging.DEBUG


def test_a_file_that_cannot_be_read_is_refused():
    with pytest.raises(ConfigError, match="/no/such: FileNotFoundError"):
        read("/no/such")
