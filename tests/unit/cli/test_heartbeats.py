"""Heartbeats to systemd and the supervisor are sent while a worker is healthy, and only then."""

import math
import os
import time
import types
from typing import Any

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


class Worker:
    """The part of a worker that a daemon uses."""

    def __init__(self):
        self.hung = None
        self.lacks = []
        self.reloaded = 0
        self.serves = True
        self.monitor = types.SimpleNamespace(last_missing=lambda: self.lacks)

    def is_alive(self):
        return self.hung

    def reload(self):
        self.reloaded += 1

    def start(self):
        return self.serves


class Lifeline:
    """Records what is sent."""

    def __init__(self):
        self.sent = b""

    def send(self, message, flags):
        self.sent += message


@pytest.fixture
def daemon(watched, clock, notified):
    worker: Any = Worker()
    lifeline: Any = Lifeline()
    return Daemon(worker, lifeline)


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
    daemon._worker.hung = "not asked yet"
    daemon._send_heartbeats()
    assert notified == ["WATCHDOG=1"]
    assert daemon._lifeline.sent == ALIVE


def test_a_worker_that_hangs_sends_no_heartbeats_until_it_goes_on(daemon, notified, clock, caplog):
    daemon._start()
    notified.clear()
    daemon._worker.hung = "no heartbeat"
    for _ in range(3):
        daemon._send_heartbeats()
        clock.now_s += 10
    assert notified == ["STATUS=Hangs: no heartbeat"]
    assert daemon._lifeline.sent == READY
    assert caplog.text.count("The worker hangs: no heartbeat") == 1
    daemon._worker.hung = None
    daemon._send_heartbeats()
    assert notified[1:] == ["WATCHDOG=1", "STATUS=Serving"]


def test_the_status_says_what_is_missing(daemon, notified, clock):
    daemon._start()
    daemon._worker.lacks = ["the bus is away", "the state is away"]
    daemon._send_heartbeats()
    assert notified[-1] == "STATUS=Not ready: the bus is away; the state is away"


def test_a_worker_that_is_stopped_while_it_starts_does_not_say_ready(daemon, notified):
    daemon._worker.serves = False
    daemon._start()
    assert notified == []
    assert daemon._lifeline.sent == b""


def test_a_supervisor_that_was_killed_with_unread_heartbeats_is_noticed(daemon):
    def reset(size):
        raise ConnectionResetError

    daemon._lifeline.recv = reset
    daemon._watch()
    assert daemon._orphaned.is_set()


def test_a_reload_before_the_start_is_over_does_not_say_ready(daemon, notified):
    daemon._reload()
    assert notified == []
    assert daemon._worker.reloaded == 1


def test_a_supervisor_that_reads_late_does_not_block_the_worker(daemon):
    def full(message, flags):
        raise BlockingIOError

    daemon._lifeline.send = full
    daemon._notify_supervisor(ALIVE)


class Child(supervisor._Child):
    """The part of a child that a supervisor uses."""

    number = 0
    ready = True

    def __init__(self, silent_s=0.0):
        self.silent_s = silent_s

    def receive(self):
        pass

    def silence_s(self):
        return self.silent_s


def test_the_supervisor_sends_heartbeats_while_every_worker_does(watched, clock, notified):
    watcher = supervisor.Supervisor([], 0, stop_timeout_s=1)
    watcher._children = [Child(), Child(1.9)]
    watcher._check_children()
    assert notified.count("WATCHDOG=1") == 1
    clock.now_s += 10
    watcher._children = [Child(), Child(2.1)]
    watcher._check_children()
    assert notified.count("WATCHDOG=1") == 1


def test_the_supervisor_is_ready_when_all_workers_are(watched, clock, notified):
    watcher = supervisor.Supervisor([], 0, stop_timeout_s=1)
    late = Child()
    late.ready = False
    watcher._children = [Child(), late]
    watcher._check_children()
    assert "READY=1" not in notified
    late.ready = True
    watcher._check_children()
    watcher._check_children()
    assert notified.count("READY=1") == 1
