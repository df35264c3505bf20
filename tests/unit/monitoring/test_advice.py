"""Warnings about settings that endanger the state are logged when they begin and end."""

import logging
import threading

import pytest

from scheduler_worker.errors import StateUnavailable
from scheduler_worker.monitoring.advice import Advice
from tests.support.interrupted import raising

EVICTS = "Redis at r:6379 may evict reservations"


@pytest.fixture
def logged(caplog) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def test_each_warning_is_logged_once_while_it_applies(logged):
    warnings: list[str] = []
    advice = Advice(lambda: warnings)
    advice.check()
    warnings.append(EVICTS)
    advice.check()
    advice.check()
    assert [(each.levelname, each.getMessage()) for each in logged.records] == [("WARNING", EVICTS)]
    warnings.clear()
    advice.check()
    warnings.append(EVICTS)
    advice.check()
    assert logged.messages == [EVICTS, f"No longer applies: {EVICTS}", EVICTS]


def test_a_start_with_an_unreachable_state_fails(logged):
    with pytest.raises(StateUnavailable):
        Advice(raising(StateUnavailable("away"))).start()


def test_checks_continue_after_an_outage(logged):
    asked = 0
    enough = threading.Event()

    def check():
        nonlocal asked
        asked += 1
        if asked == 2:
            raise StateUnavailable("away")
        if asked > 4:
            enough.set()
        return [EVICTS] if asked > 3 else []

    advice = Advice(check, every_s=0.001)
    advice.start()
    assert enough.wait(10)
    advice.stop()
    assert logged.messages == [EVICTS]
