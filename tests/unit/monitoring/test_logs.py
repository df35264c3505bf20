"""Log output has bounded lines and no secrets."""

import io
import json
import logging
import threading

import pytest
from oslo_log import formatters

from scheduler_worker import conf
from scheduler_worker.monitoring.logs import SafeFormatter, cut, protect

MAX = 300


def context_formatter():
    return formatters.ContextFormatter(config=conf.load([]))


@pytest.fixture(params=["plain", "oslo", "json"])
def log(request):
    """A logger under each kind of formatter; ``log.lines()`` is its output."""
    inner = {
        "plain": logging.Formatter,
        "oslo": context_formatter,
        "json": formatters.JSONFormatter,
    }[request.param]()
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(SafeFormatter(inner, MAX))
    log = logging.Logger("test")  # noqa: LOG001 - only the handler of this test
    log.addHandler(handler)
    log.lines = lambda: stream.getvalue().splitlines()  # type: ignore[attr-defined]
    return log


def test_no_secret_is_logged(log):
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
        log.warning("It failed again")
    output = "\n".join(log.lines())
    assert "hush" not in output
    assert "It failed" in output
    assert "OSError: amqp://***@h/ is away" in output


def test_a_long_message_is_cut(log):
    log.info("word %s end", "x" * 10_000)
    (line,) = log.lines()
    assert line.count("x") < 2 * MAX  # JSON has the message twice
    assert "...(cut)" in line
    assert "end" not in line.partition("...(cut)")[0]


def test_a_long_error_is_cut(log):
    try:
        raise ValueError("y" * 10_000)
    except ValueError:
        log.exception("It failed")
    assert max(len(line) for line in log.lines()) < 8_000
    assert "ValueError: yyy" in "\n".join(log.lines())


def test_a_message_cannot_forge_a_line(log):
    log.info("host %s", "h\n2026-01-01 INFO forged\r\x1b[2K")
    assert len(log.lines()) == 1
    assert "\x1b" not in log.lines()[0]


def test_no_error_and_no_name_steers_the_terminal_of_who_reads_the_log(log):
    log.info("host %s", "Zürich\x9b\u202e")
    try:
        try:
            raise ValueError("cause \x1b[2J\u202e")
        except ValueError as error:
            raise OSError("h\x1b]0;\x07\u2066") from error
    except OSError:
        log.exception("It failed")
        log.warning("It failed again")
    output = "\n".join(log.lines())
    assert output.replace("\n", "").isprintable()
    assert "OSError: h" in output


@pytest.mark.parametrize("log", ["oslo"], indirect=True)
def test_an_error_in_the_message_is_not_repeated_by_its_summary(log):
    try:
        raise ConnectionError("gone")
    except ConnectionError as error:
        log.warning("Redis is away: %s", error)
        log.warning("Redis is away")
    first, second = log.lines()
    assert first.endswith(" Redis is away: gone")
    assert second.endswith(" Redis is away: ConnectionError: gone")


def test_json_stays_json():
    record = logging.LogRecord("a", logging.INFO, "f", 1, 'x="%s" password="hush"', ("q",), None)
    found = json.loads(SafeFormatter(formatters.JSONFormatter(), MAX).format(record))
    assert found["message"] == 'x="q" password=***'
    assert found["levelname"] == "INFO"


def test_output_for_fluentd_is_redacted():
    record = logging.LogRecord("a", logging.INFO, "f", 1, "x", (), None)
    record.extra = {"password": "hush", "urls": ["amqp://u:hush@h/"]}
    found = SafeFormatter(formatters.FluentFormatter(), MAX).format(record)
    assert found["extra"] == {"password": "***", "urls": ["amqp://***@h/"]}


def test_the_traceback_for_journald_is_redacted():
    """oslo.log's handler for journald sends ``exc_text`` as a field of its own."""
    try:
        raise ValueError("password=hush")
    except ValueError as error:
        about = (type(error), error, error.__traceback__)
    record = logging.LogRecord("a", logging.ERROR, "f", 1, "x", (), about)
    formatter = SafeFormatter(context_formatter(), MAX)
    formatter.format(record)
    assert "hush" not in record.exc_text  # type: ignore[operator]
    assert "hush" not in formatter.formatException(about)


def test_a_text_is_not_cut_inside_of_a_url():
    url = "redis://user:hush-" + "x" * 50 + "@h/"
    assert "hush" not in cut(f"talks to {url}", 40)
    assert cut("short", 40) == "short"
    assert cut("x" * 50, 40).startswith("x" * 40)


@pytest.fixture
def protected():
    """All handlers are wrapped; afterwards they are as before."""
    before = {each: each.formatter for each in logging.getLogger().handlers}
    protect(MAX)
    yield
    for each, formatter in before.items():
        each.setFormatter(formatter)


def test_all_handlers_are_wrapped_once(protected):
    handler = logging.StreamHandler(io.StringIO())
    logger = logging.getLogger("tests.some.library")
    logger.addHandler(handler)
    protect(MAX)
    protect(MAX)
    logger.removeHandler(handler)
    assert isinstance(handler.formatter, SafeFormatter)
    assert not isinstance(handler.formatter._inner, SafeFormatter)


def test_an_exception_that_ends_a_thread_is_logged(protected, caplog):
    thread = threading.Thread(target=lambda: 1 / 0, name="unlucky", daemon=True)
    thread.start()
    thread.join()
    assert "The thread unlucky ended" in caplog.text
    assert "ZeroDivisionError" in caplog.text
