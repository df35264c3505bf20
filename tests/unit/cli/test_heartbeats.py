"""Heartbeats to systemd and the supervisor are sent while a worker is healthy, and only then."""

import math
import os
import socket
import time
import types
from typing import Any
from unittest.mock import Mock

import pytest

from scheduler_worker.cli import supervisor, systemd
from scheduler_worker.cli.daemon import ALIVE, READY, Daemon


@pytest.fixture
def notified(monkeypatch):
    """The notifications to systemd."""
    found = []
    monkeypatch.setattr(systemd, "notify", lambda *assignments: found.extend(assignments))
    return found


@pytest.fixture
def clock(monkeypatch):
    """The watchdog's clock, moved by the test."""
    clock = types.SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now_s)
    return clock


@pytest.fixture
def watched(monkeypatch):
    """Systemd wants a heartbeat every six seconds."""
    monkeypatch.setenv("WATCHDOG_USEC", "6000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))


@pytest.fixture
def daemon(watched, clock, notified):
    """Of a worker that starts, lacks nothing and does not hang."""
    worker = Mock()
    worker.vitals.is_alive.return_value = None
    worker.monitor.last_missing.return_value = []
    return Daemon(worker, Mock())


def sent(daemon):
    """What the supervisor got, and was not waited for to read."""
    calls = [call.args for call in daemon._lifeline.send.call_args_list]
    assert {flags for _, flags in calls} <= {socket.MSG_DONTWAIT}
    return b"".join(message for message, _ in calls)


def test_the_watchdog_gets_three_heartbeats_in_its_time(watched, clock, notified):
    watchdog = systemd.Watchdog()
    assert watchdog.interval_s == 2.0
    for now_s in (1000.0, 1001.9, 1002.0, 1003.0, 1004.1):
        clock.now_s = now_s
        watchdog.feed()
    assert notified == ["WATCHDOG=1"] * 3


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "6000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}],
)
def test_without_a_watchdog_no_heartbeat_is_sent(monkeypatch, notified, environment):
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    watchdog = systemd.Watchdog()
    watchdog.feed()
    assert watchdog.interval_s == math.inf
    assert notified == []


def test_a_worker_that_starts_sends_heartbeats(daemon, notified):
    daemon._worker.vitals.is_alive.return_value = "not asked yet"
    daemon._send_heartbeats()
    assert notified == ["WATCHDOG=1"]
    assert sent(daemon) == ALIVE


def test_a_worker_that_hangs_sends_no_heartbeats_until_it_goes_on(daemon, notified, clock, caplog):
    daemon._start()
    notified.clear()
    daemon._worker.vitals.is_alive.return_value = "no heartbeat"
    for _ in range(3):
        daemon._send_heartbeats()
        clock.now_s += 10
    assert notified == ["STATUS=Hangs: no heartbeat"]
    assert sent(daemon) == READY
    assert caplog.text.count("The worker hangs: no heartbeat") == 1
    daemon._worker.vitals.is_alive.return_value = None
    daemon._send_heartbeats()
    assert notified[1:] == ["WATCHDOG=1", "STATUS=Serving"]


def test_the_status_says_what_is_missing(daemon, notified, clock):
    daemon._start()
    lacks = ["the bus is away", "the state is away"]
    daemon._worker.monitor.last_missing.return_value = lacks
    daemon._send_heartbeats()
    assert notified[-1] == "STATUS=Not ready: the bus is away; the state is away"


def test_a_worker_that_is_stopped_while_it_starts_does_not_say_ready(daemon, notified):
    daemon._worker.start.return_value = False
    daemon._start()
    assert notified == []
    assert sent(daemon) == b""


def test_a_supervisor_that_was_killed_with_unread_heartbeats_is_noticed(daemon):
    daemon._lifeline.recv.side_effect = ConnectionResetError
    daemon._watch()
    assert daemon._orphaned.is_set()


def test_a_reload_before_the_start_is_over_does_not_say_ready(daemon, notified):
    daemon._reload()
    assert notified == []
    daemon._worker.reload.assert_called_once_with()


def test_a_supervisor_that_reads_late_does_not_block_the_worker(daemon):
    daemon._lifeline.send.side_effect = BlockingIOError
    daemon._notify_supervisor(ALIVE)


def child(silent_s=0.0, ready=True) -> Any:
    """A worker as its supervisor knows it."""
    return Mock(ready=ready, silence_s=lambda: silent_s)


def test_the_supervisor_sends_heartbeats_while_every_worker_does(watched, clock, notified):
    watcher = supervisor.Supervisor([], 0, stop_timeout_s=1)
    watcher._children = [child(), child(1.9)]
    watcher._check_children()
    assert notified.count("WATCHDOG=1") == 1
    clock.now_s += 10
    watcher._children = [child(), child(2.1)]
    watcher._check_children()
    assert notified.count("WATCHDOG=1") == 1


def test_the_supervisor_is_ready_when_all_workers_are(watched, clock, notified):
    watcher = supervisor.Supervisor([], 0, stop_timeout_s=1)
    late = child(ready=False)
    watcher._children = [child(), late]
    watcher._check_children()
    assert "READY=1" not in notified
    late.ready = True
    watcher._check_children()
    watcher._check_children()
    assert notified.count("READY=1") == 1
