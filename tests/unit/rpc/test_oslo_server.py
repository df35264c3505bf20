"""Parts of oslo.messaging's own server."""

from __future__ import annotations

import queue
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_worker.rpc.oslo_server import _Heartbeats, _patience_s
from tests.support.patience import SOON_S


def incoming(**context: object) -> Any:
    stopwatch = SimpleNamespace(elapsed=lambda: 1.5)
    return SimpleNamespace(
        ctxt=context, unique_id="id", message={}, expiration_ms=None, stopwatch=stopwatch
    )


def test_a_cast_never_expires() -> None:
    assert _patience_s(incoming()) == float("inf")


@pytest.mark.parametrize(("expiration", "left_s"), [("4000", 2.5), ("1000", -0.5)])
def test_patience_is_the_expiration_less_the_elapsed_time(expiration: str, left_s: float) -> None:
    message = incoming()
    message.message = type("Message", (dict,), {})()
    message.message._raw_message = SimpleNamespace(properties={"expiration": expiration})
    assert _patience_s(message) == pytest.approx(left_s)


# Heartbeats


@pytest.fixture
def heartbeats() -> Any:
    heartbeats = _Heartbeats()
    heartbeats.start()
    yield heartbeats
    heartbeats.stop()


def monitored(tolerated_s: object, heartbeat: Callable[[], None]) -> Any:
    return SimpleNamespace(client_timeout=tolerated_s, heartbeat=heartbeat)


def test_calls_get_heartbeats_until_they_are_answered(heartbeats: Any) -> None:
    beats: queue.SimpleQueue[str] = queue.SimpleQueue()
    slow = monitored(10_000, lambda: beats.put("slow"))
    quick = monitored(0.1, lambda: beats.put("quick"))
    heartbeats.add(slow)
    heartbeats.add(quick)
    assert [beats.get(timeout=SOON_S) for _ in range(3)] == ["quick"] * 3
    heartbeats.remove(quick)
    assert [each.incoming for each in heartbeats._calls.values()] == [slow]


def test_a_failed_heartbeat_does_not_stop_others(heartbeats: Any) -> None:
    beats: queue.SimpleQueue[str] = queue.SimpleQueue()

    def fail() -> None:
        beats.put("failed")
        raise ConnectionError("gone")

    heartbeats.add(monitored(0.1, fail))
    assert beats.get(timeout=SOON_S) == "failed"
    heartbeats.add(monitored(0.1, lambda: beats.put("other")))
    assert [beats.get(timeout=SOON_S) for _ in range(2)] == ["other"] * 2


@pytest.mark.parametrize("tolerated_s", [None, 0, -1, "soon"])
def test_calls_without_a_monitor_get_no_heartbeats(heartbeats: Any, tolerated_s: object) -> None:
    heartbeats.add(monitored(tolerated_s, lambda: None))
    assert not heartbeats._calls
