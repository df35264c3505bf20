"""Who watches a process is fed while it is well, and only then."""

import math
import os
import types

import pytest

from scheduler_worker.cli import supervisor, systemd
from scheduler_worker.cli.daemon import ALIVE, READY, Daemon


@pytest.fixture
def told(monkeypatch):
    """What systemd was told."""
    found = []
    monkeypatch.setattr(systemd, "notify", lambda *assignments: found.extend(assignments))
    return found


@pytest.fixture
def clock(monkeypatch):
    """A clock for the watchdog that stands still."""
    clock = types.SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(systemd.time, "monotonic", lambda: clock.now_s)
    return clock


@pytest.fixture
def watched(monkeypatch):
    """Systemd wants a sign of life every six seconds."""
    monkeypatch.setenv("WATCHDOG_USEC", "6000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))


class Worker:
    """A worker as a daemon sees it."""

    def __init__(self):
        self.hung = None
        self.lacks = []
        self.reloaded = 0
        self.monitor = types.SimpleNamespace(last_missing=lambda: self.lacks)

    def is_alive(self):
        return self.hung

    def reload(self):
        self.reloaded += 1

    def start(self):
        pass


class Line:
    """A lifeline that remembers."""

    def __init__(self):
        self.sent = b""

    def send(self, what, flags):
        self.sent += what


@pytest.fixture
def daemon(watched, clock, told):
    return Daemon(Worker(), Line())


def test_the_watchdog_is_fed_thrice_in_its_time(watched, clock, told):
    watchdog = systemd.Watchdog()
    assert watchdog.interval_s == 2.0
    for now_s in (1000.0, 1001.9, 1002.0, 1003.0, 1004.1):
        clock.now_s = now_s
        watchdog.feed()
    assert told == ["WATCHDOG=1"] * 3


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "6000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}],
)
def test_where_nobody_watches_nobody_is_fed(monkeypatch, told, environment):
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    watchdog = systemd.Watchdog()
    watchdog.feed()
    assert watchdog.interval_s == math.inf
    assert told == []


def test_a_worker_that_starts_shows_life(daemon, told):
    daemon._worker.hung = "not asked yet"
    daemon._show_life()
    assert told == ["WATCHDOG=1"]
    assert daemon._lifeline.sent == ALIVE


def test_a_worker_that_hangs_shows_none_until_it_goes_on(daemon, told, clock, caplog):
    daemon._start()
    told.clear()
    daemon._worker.hung = "no sign"
    for _ in range(3):
        daemon._show_life()
        clock.now_s += 10
    assert told == ["STATUS=Hangs: no sign"]
    assert daemon._lifeline.sent == READY
    assert caplog.text.count("The worker hangs: no sign") == 1
    daemon._worker.hung = None
    daemon._show_life()
    assert told[1:] == ["WATCHDOG=1", "STATUS=Serving"]


def test_the_status_says_what_is_missing(daemon, told, clock):
    daemon._start()
    daemon._worker.lacks = ["the bus is away", "the state is away"]
    daemon._show_life()
    assert told[-1] == "STATUS=Not ready: the bus is away; the state is away"


def test_a_reload_is_announced_and_ends(daemon, told):
    daemon._start()
    told.clear()
    daemon._reload()
    assert told[0] == "RELOADING=1"
    assert told[1].removeprefix("MONOTONIC_USEC=").isdecimal()
    assert told[2:] == ["READY=1"]
    assert daemon._worker.reloaded == 1


def test_a_reload_before_the_start_is_over_does_not_say_ready(daemon, told):
    daemon._reload()
    assert told == []
    assert daemon._worker.reloaded == 1


def test_a_supervisor_that_reads_late_holds_nobody_up(daemon):
    def full(what, flags):
        raise BlockingIOError

    daemon._lifeline.send = full
    daemon._tell_supervisor(ALIVE)


class Child:
    """A worker as its supervisor sees it."""

    number = 0
    ready = True

    def __init__(self, silent_s=0.0):
        self.silent_s = silent_s

    def listen(self):
        pass

    def silence_s(self):
        return self.silent_s


def test_the_supervisor_feeds_while_every_worker_shows_life(watched, clock, told):
    watcher = supervisor.Supervisor([], 0, stop_timeout_s=1)
    watcher._children = [Child(), Child(1.9)]
    watcher._look_after()
    assert told.count("WATCHDOG=1") == 1
    clock.now_s += 10
    watcher._children = [Child(), Child(2.1)]
    watcher._look_after()
    assert told.count("WATCHDOG=1") == 1


def test_the_supervisor_says_ready_once_all_are(watched, clock, told):
    watcher = supervisor.Supervisor([], 0, stop_timeout_s=1)
    late = Child()
    late.ready = False
    watcher._children = [Child(), late]
    watcher._look_after()
    assert "READY=1" not in told
    late.ready = True
    watcher._look_after()
    watcher._look_after()
    assert told.count("READY=1") == 1
