"""Parts of the server that is oslo.messaging's."""

from __future__ import annotations

import queue
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_worker.rpc.oslo_server import _patience_s, _Pulse

SOON_S = 10.0


def incoming(**context: object) -> Any:
    stopwatch = SimpleNamespace(elapsed=lambda: 1.5)
    return SimpleNamespace(
        ctxt=context, unique_id="id", message={}, expiration_ms=None, stopwatch=stopwatch
    )


def test_a_cast_is_never_too_late() -> None:
    assert _patience_s(incoming()) == float("inf")


@pytest.mark.parametrize(("expiration", "left_s"), [("4000", 2.5), ("1000", -0.5)])
def test_patience_is_what_the_message_allows_less_what_has_passed(
    expiration: str, left_s: float
) -> None:
    message = incoming()
    message.message = type("Message", (dict,), {})()
    message.message._raw_message = SimpleNamespace(properties={"expiration": expiration})
    assert _patience_s(message) == pytest.approx(left_s)


# Signs of life


@pytest.fixture
def pulse() -> Any:
    pulse = _Pulse()
    pulse.start()
    yield pulse
    pulse.stop()


def monitored(tolerated_s: object, heartbeat: Callable[[], None]) -> Any:
    return SimpleNamespace(client_timeout=tolerated_s, heartbeat=heartbeat)


def test_calls_beat_until_they_are_answered(pulse: Any) -> None:
    beats: queue.SimpleQueue[str] = queue.SimpleQueue()
    slow = monitored(60, lambda: beats.put("slow"))
    quick = monitored(0.1, lambda: beats.put("quick"))
    pulse.add(slow)
    pulse.add(quick)
    assert [beats.get(timeout=SOON_S) for _ in range(3)] == ["quick"] * 3
    pulse.remove(quick)
    while not beats.empty():
        beats.get()
    with pytest.raises(queue.Empty):
        beats.get(timeout=0.3)


def test_a_caller_that_is_gone_does_not_stop_the_others(pulse: Any) -> None:
    beats: queue.SimpleQueue[str] = queue.SimpleQueue()

    def fail() -> None:
        beats.put("failed")
        raise ConnectionError("gone")

    pulse.add(monitored(0.1, fail))
    assert beats.get(timeout=SOON_S) == "failed"
    pulse.add(monitored(0.1, lambda: beats.put("alive")))
    assert [beats.get(timeout=SOON_S) for _ in range(2)] == ["alive"] * 2


@pytest.mark.parametrize("tolerated_s", [None, 0, -1, "soon"])
def test_calls_without_a_monitor_do_not_beat(pulse: Any, tolerated_s: object) -> None:
    pulse.add(monitored(tolerated_s, lambda: None))
    assert not pulse._calls
