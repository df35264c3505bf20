"""An outage of the state is logged when it begins and when it ends, and counted."""

import logging

import pytest

from scheduler_worker import events
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.backends.watched import WatchedState
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.ports import GLOBAL, Seen
from tests.support.observers import CountingObserver

FULL = "The shared state at h:1 cannot be used: OOM command not allowed"
AWAY = "The shared state at h:1 cannot be used: Connection refused"


class Engine(MemoryState):
    """A state that fails as the test wants."""

    def __init__(self, clock):
        super().__init__(clock, hold_timeout_s=10.0)
        self.is_away = False
        self.full = set()
        self.written = []

    def _reach(self):
        if self.is_away:
            raise StateUnavailable(AWAY)

    def ping(self):
        self._reach()

    def changes(self, scope, seen):
        self._reach()
        return super().changes(scope, seen)

    def commit(self, grant, transactions, *, at=None, keep=False):
        if grant.scope in self.full:
            raise StateUnavailable(FULL)
        return super().commit(grant, transactions, at=at, keep=keep)

    def write(self, scope, transactions, *, once=None):
        self.written.append(scope)
        self._reach()
        if scope in self.full:
            raise StateUnavailable(FULL)
        return super().write(scope, transactions, once=once)


@pytest.fixture
def engine(clock):
    return Engine(clock)


@pytest.fixture
def state(engine, clock):
    return WatchedState(engine, clock)


@pytest.fixture
def logged(caplog):
    return lambda: [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def commit(state, scope="east"):
    grant = state.acquire(scope, timeout_s=1.0, seen=Seen())
    try:
        state.commit(grant, ())
    finally:
        state.release(grant)


def test_a_state_that_refuses_writes_has_an_outage_though_it_can_be_read(
    state, engine, logged, clock
):
    assert state.problem() is None
    engine.full = {"east", GLOBAL}
    state.observer = observed = CountingObserver()
    for _ in range(3):
        with pytest.raises(StateUnavailable):
            commit(state)
        state.changes("east", Seen())
    assert observed.of(events.STATE_ERRORS) == {(): 3}
    assert state.problem() == FULL
    assert logged() == [FULL]
    clock.advance(12.3)
    engine.full = {GLOBAL}
    commit(state)
    assert logged() == [FULL, "The shared state can be used again, after 12.3 s"]
    clock.advance(10)
    assert state.problem() == FULL, "writes to the global scope still fail"


def test_a_write_is_tried_if_there_was_no_recent_one(state, engine, logged, clock):
    commit(state)
    engine.full = {GLOBAL}
    assert state.problem() is None, "a write has just succeeded"
    assert engine.written == []
    clock.advance(2)
    assert state.problem() == FULL
    assert engine.written == [GLOBAL]
    engine.full = set()
    assert state.problem() is None
    assert len(logged()) == 2


def test_a_slow_state_is_told_of_once_a_minute(state, engine, logged, clock, monkeypatch):
    monkeypatch.setattr(engine, "ping", lambda: clock.advance(1.5))
    slow = "the shared state is slow: it took 1.5 s to answer a ping"
    assert [state.problem() for _ in range(3)] == [slow] * 3
    assert logged() == [f"Decisions take long, for {slow}"]


def test_an_outage_lasts_until_every_cluster_that_failed_is_written_to(state, engine, logged):
    engine.full = {"east"}
    with pytest.raises(StateUnavailable):
        commit(state)
    commit(state, "west")
    assert logged() == [FULL]
    assert state.problem() == FULL
    engine.full = set()
    assert state.problem() is None, "the check itself has written to the east"
    assert engine.written == ["east", "east"]
    assert len(logged()) == 2


def test_a_repeated_call_does_not_end_an_outage(state, engine, logged):
    state.write("east", (), once="x")
    engine.full = {"east"}
    with pytest.raises(StateUnavailable):
        commit(state)
    engine.full = set()
    state.write("east", (), once="x")
    assert logged() == [FULL]
    state.write("east", ())
    assert len(logged()) == 2


def test_an_outage_is_logged_once(state, engine, logged):
    engine.is_away = True
    for _ in range(2):
        assert state.problem() == AWAY
        with pytest.raises(StateUnavailable):
            state.changes("east", Seen())
    engine.is_away = False
    assert state.problem() is None
    assert logged()[0] == AWAY
    assert len(logged()) == 2


def test_a_failure_after_the_close_is_no_outage(state, engine, logged):
    state.close()
    engine.is_away = True
    assert state.problem() == AWAY
    assert logged() == []
