"""The memory engine with a clock that the test moves; the rest is in ``tests/contract``."""

import pytest

from scheduler_worker.backends.memory import MEMO_S, MemoryState
from scheduler_worker.ports import ABSENT, Guard, Put, Seen, Transaction
from tests.support.threads import in_thread

SCOPE = "c"
NEVER = Seen()


@pytest.fixture
def state(clock) -> MemoryState:
    return MemoryState(clock, hold_timeout_s=10.0)


def put(key: str, expires_at_s: float | None = None) -> Transaction:
    return Transaction([Put(key, b"", expires_at_s)])


def keys(state: MemoryState) -> set[str]:
    return {entry.key for entry in state.changes(SCOPE, NEVER).entries}


def test_a_record_expires_at_its_time(state, clock):
    now_s = clock.time_s()
    state.write(SCOPE, [put("1", now_s + 1), put("2", now_s + 2), put("3", now_s + 3)])
    clock.advance(0.999)
    assert keys(state) == {"1", "2", "3"}
    clock.advance(0.001)
    assert keys(state) == {"2", "3"}
    clock.advance(5)
    assert keys(state) == set()


def test_a_jump_of_the_clock_expires_no_record_early(state, clock):
    state.write(SCOPE, [put("p", clock.time_s() + 300)])
    for _ in range(2):
        clock.advance(100)
        clock.jump(3600)
        assert keys(state) == {"p"}
    state.write(SCOPE, [put("q", clock.time_s() + 300)])
    clock.advance(99)
    assert keys(state) == {"p", "q"}
    clock.advance(2)
    assert keys(state) == {"q"}
    clock.advance(200)
    assert keys(state) == set()


def test_a_jump_that_is_undone_has_no_effect(state, clock):
    state.write(SCOPE, [put("p", clock.time_s() + 300)])
    clock.jump(3600)
    assert keys(state) == {"p"}
    clock.jump(-3600)
    assert keys(state) == {"p"}
    clock.advance(301)
    assert keys(state) == set()


def test_a_waiter_notices_that_the_clock_was_moved(state, clock):
    first = state.acquire(SCOPE, timeout_s=0, seen=NEVER)
    waiting = in_thread(state.acquire, SCOPE, timeout_s=60, seen=NEVER)
    while not waiting.done():
        clock.advance(1)
    assert waiting.result().token > first.token


def test_once_is_recognised_for_ten_minutes(state, clock):
    guarded = Transaction([Put("a", b"")], [Guard("a", ABSENT)])
    state.write(SCOPE, [guarded], once="x")
    clock.advance(MEMO_S - 1)
    assert state.write(SCOPE, [guarded], once="x").applied == (True,)
    clock.advance(1)
    assert state.write(SCOPE, [guarded], once="x").applied == (False,)
