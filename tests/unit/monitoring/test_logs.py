"""What leaves through the log."""

import io
import json
import logging
import threading

import pytest
from oslo_log import formatters

from scheduler_worker import conf
from scheduler_worker.monitoring.logs import CarefulFormatter, cut, protect

MAX = 300


def context_formatter():
    return formatters.ContextFormatter(config=conf.load([]))


@pytest.fixture(params=["plain", "oslo", "json"])
def log(request):
    """A logger under each kind of formatter; ``log.lines()`` is what left."""
    inner = {
        "plain": logging.Formatter,
        "oslo": context_formatter,
        "json": formatters.JSONFormatter,
    }[request.param]()
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(CarefulFormatter(inner, MAX))
    log = logging.Logger("test")  # noqa: LOG001 - no handler but ours
    log.addHandler(handler)
    log.lines = lambda: stream.getvalue().splitlines()
    return log


def test_no_secret_leaves_by_any_way(log):
    log.info("to %s", "redis://u:hush@h/")
    log.info("%(context)s", {"context": {"auth_token": "hush"}})
    log.info("a field", extra={"extra": {"password": "hush", "url": "amqp://u:hush@h/"}})
    try:
        try:
            raise ValueError("auth_token=hush")
        except ValueError as error:
            raise OSError("amqp://u:hush@h/ is away") from error
    except OSError:
        log.exception("It failed")
        log.warning("It failed, says nobody")
    said = "\n".join(log.lines())
    assert "hush" not in said
    assert "It failed" in said
    assert "OSError: amqp://***@h/ is away" in said


def test_a_long_message_is_cut(log):
    log.info("word %s end", "x" * 10_000)
    (line,) = log.lines()
    assert line.count("x") < 2 * MAX  # JSON tells the message twice
    assert "...(cut)" in line
    assert "end" not in line.partition("...(cut)")[0]


def test_a_long_error_is_cut(log):
    try:
        raise ValueError("y" * 10_000)
    except ValueError:
        log.exception("It failed")
    assert max(len(line) for line in log.lines()) < 8_000
    assert "ValueError: yyy" in "\n".join(log.lines())


def test_nobody_writes_a_line_of_his_own(log):
    log.info("host %s", "h\n2026-01-01 INFO forged\r\x1b[2K")
    assert len(log.lines()) == 1
    assert "\x1b" not in log.lines()[0]


def test_json_stays_json():
    record = logging.LogRecord("a", logging.INFO, "f", 1, 'x="%s" password="hush"', ("q",), None)
    told = json.loads(CarefulFormatter(formatters.JSONFormatter(), MAX).format(record))
    assert told["message"] == 'x="q" password=***'
    assert told["levelname"] == "INFO"


def test_what_goes_to_fluentd_is_safe_too():
    record = logging.LogRecord("a", logging.INFO, "f", 1, "x", (), None)
    record.extra = {"password": "hush", "urls": ["amqp://u:hush@h/"]}
    told = CarefulFormatter(formatters.FluentFormatter(), MAX).format(record)
    assert told["extra"] == {"password": "***", "urls": ["amqp://***@h/"]}


def test_what_the_journal_gets_beside_the_line_is_safe_too():
    """oslo.log's handler for journald sends ``exc_text`` as a field of its own."""
    try:
        raise ValueError("password=hush")
    except ValueError as error:
        about = (type(error), error, error.__traceback__)
    record = logging.LogRecord("a", logging.ERROR, "f", 1, "x", (), about)
    careful = CarefulFormatter(context_formatter(), MAX)
    careful.format(record)
    assert "hush" not in record.exc_text
    assert "hush" not in careful.formatException(about)


def test_a_cut_leaves_no_half_of_a_url():
    url = "redis://user:hush-" + "x" * 50 + "@h/"
    assert "hush" not in cut(f"talks to {url}", 40)
    assert cut("short", 40) == "short"
    assert cut("x" * 50, 40).startswith("x" * 40)


def test_all_handlers_are_protected_once():
    handler = logging.StreamHandler(io.StringIO())
    logger = logging.getLogger("tests.some.library")
    logger.addHandler(handler)
    before = {each: each.formatter for each in logging.getLogger().handlers}
    hook = threading.excepthook
    try:
        protect(MAX)
        protect(MAX)
        assert isinstance(handler.formatter, CarefulFormatter)
        assert not isinstance(handler.formatter._inner, CarefulFormatter)
    finally:
        logger.removeHandler(handler)
        for each, formatter in before.items():
            each.setFormatter(formatter)
        threading.excepthook = hook


def test_what_ends_a_thread_is_logged(caplog):
    hook = threading.excepthook
    before = {each: each.formatter for each in logging.getLogger().handlers}
    try:
        protect(MAX)
        thread = threading.Thread(target=lambda: 1 / 0, name="unlucky")
        thread.start()
        thread.join()
    finally:
        threading.excepthook = hook
        for each, formatter in before.items():
            each.setFormatter(formatter)
    assert "The thread unlucky ended" in caplog.text
    assert "ZeroDivisionError" in caplog.text
