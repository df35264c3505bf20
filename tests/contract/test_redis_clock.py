"""A server whose clock goes back or jumps forward; versions and tokens grow all the same."""

import logging
from collections.abc import Callable

import pytest
import redis

from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.backends.redis.nodes import Script
from scheduler_worker.errors import ClusterLockTimeout
from scheduler_worker.ports import Seen
from tests.support.clock import ManualClock

from .conftest import SCOPE
from .test_redis_losses import CALLS
from .test_redis_state import ask
from .test_state import NEVER, acquire, guarded, put, records, seen

LEASE_S, OFFER_S = 20.0, 5.0
HOUR_S = 3600.0
TTL_S = 300.0
KEY = "the-clock-of-the-test"
ASKED = "redis.call('TIME')"
TOLD = f"redis.call('HMGET', '{KEY}', 's', 'us')"


class StoreClock:
    """The server's time as the scripts of some states see it, and the workers' own clock.

    ``pass_s`` lets time pass for both, ``jump_s`` sets the server's alone.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self.workers = ManualClock()
        self.now_s = self.workers.time_s()
        self._write()

    def govern(self, state: RedisState) -> RedisState:
        """The scripts of this state go by this clock from now on."""
        scripts = state._server._scripts
        for name, script in scripts.items():
            assert ASKED in script.text
            scripts[name] = Script(script.text.replace(ASKED, TOLD))
        return state

    def pass_s(self, seconds: float) -> None:
        self.workers.advance(seconds)
        self.jump_s(seconds)

    def jump_s(self, seconds: float) -> None:
        self.now_s += seconds
        self._write()

    def _write(self) -> None:
        seconds, micros = divmod(round(self.now_s * 1_000_000), 1_000_000)
        self._client.hset(KEY, mapping={"s": seconds, "us": micros})


@pytest.fixture
def clock(redis_client) -> StoreClock:
    return StoreClock(redis_client)


@pytest.fixture
def opened(redis_engine, clock) -> Callable[[], RedisState]:
    return lambda: clock.govern(
        redis_engine.open(hold_timeout_s=LEASE_S, offer_s=OFFER_S, clock=clock.workers)
    )


@pytest.fixture
def state(opened) -> RedisState:
    return opened()


@pytest.fixture(autouse=True)
def logged(caplog) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING)
    return caplog


def reserve(state: RedisState, key: str = "p:1") -> None:
    now_s = state.changes(SCOPE, NEVER).now_s
    state.write(SCOPE, [put(key, b"promise", now_s + TTL_S)])


class TestBack:
    def test_a_dead_holder_delays_others_by_one_lease(self, state, clock):
        acquire(state)
        clock.jump_s(-HOUR_S)
        with pytest.raises(ClusterLockTimeout):
            acquire(state, timeout_s=0.0)
        clock.pass_s(LEASE_S - 1)
        with pytest.raises(ClusterLockTimeout):
            acquire(state, timeout_s=0.0)
        clock.pass_s(2)
        acquire(state, timeout_s=0.0)

    def test_a_live_holder_still_commits(self, state, clock):
        grant = acquire(state)
        clock.jump_s(-HOUR_S)
        assert state.commit(grant, [put("a")]).applied == (True,)

    def test_a_dead_waiter_delays_others_by_one_offer(self, state, clock):
        grant = acquire(state)
        ask(state, "dies", remaining_s=30.0)
        state.release(grant)
        clock.jump_s(-HOUR_S)
        assert ask(state, "next")[0] == 0
        clock.pass_s(OFFER_S + 1)
        assert ask(state, "next")[0] == 1

    def test_tokens_grow(self, state, clock):
        first = acquire(state)
        state.release(first)
        clock.jump_s(-HOUR_S)
        second = acquire(state)
        assert second.token.number > first.token.number
        assert second.token.epoch == first.token.epoch

    def test_versions_grow(self, state, clock):
        before = state.write(SCOPE, [put("a", b"1")]).version
        known = seen(state.changes(SCOPE, NEVER))
        clock.jump_s(-HOUR_S)
        after = state.write(SCOPE, [guarded("a", before, b"2")])
        assert (after.version > before, after.applied) == (True, (True,))
        assert [each.value for each in state.changes(SCOPE, known).entries] == [b"2"]
        assert state.write(SCOPE, [guarded("a", before)]).applied == (False,)

    def test_waiters_are_served_in_the_order_of_arrival(self, state, clock):
        grant = acquire(state)
        ask(state, "first", remaining_s=7200.0)
        clock.jump_s(-HOUR_S)
        ask(state, "second")
        ask(state, "third")
        state.release(grant)
        for owner in ("third", "second"):
            assert ask(state, owner)[0] == 0
        assert ask(state, "first")[0] == 1

    def test_records_expire_later_by_the_step_which_is_logged_once(self, state, clock, logged):
        reserve(state)
        clock.jump_s(-HOUR_S)
        clock.pass_s(TTL_S + 1)
        for _ in range(2):
            assert records(state).keys() == {"p:1"}
        [line] = logged.messages
        assert "went back by 3600 s" in line
        clock.pass_s(HOUR_S)
        assert records(state) == {}


class TestForward:
    @pytest.mark.parametrize("first", CALLS)
    def test_records_expire_as_if_the_clock_had_not_jumped(self, state, clock, first):
        reserve(state)
        clock.pass_s(100)
        clock.jump_s(HOUR_S)
        CALLS[first](state)
        clock.pass_s(TTL_S - 102)
        assert "p:1" in records(state)
        clock.pass_s(4)
        assert "p:1" not in records(state)

    def test_a_jump_is_logged_once(self, state, clock, logged):
        for scope in (SCOPE, "other"):
            state.changes(scope, NEVER)
        clock.jump_s(HOUR_S)
        for scope in (SCOPE, "other", SCOPE):
            state.changes(scope, NEVER)
        [line] = logged.messages
        assert "went forward by 3600 s" in line

    def test_other_workers_expire_nothing_early_and_do_not_delay_expiry_again(self, opened, clock):
        one, other = opened(), opened()
        reserve(one)
        records(other)
        clock.jump_s(HOUR_S)
        for state in (opened(), one, other, one, other):  # the first has just started
            assert records(state).keys() == {"p:1"}
        clock.pass_s(TTL_S + 2)
        assert records(other) == {}

    def test_a_record_written_after_the_jump_expires_at_its_time(self, state, clock):
        reserve(state)
        clock.jump_s(HOUR_S)
        clock.pass_s(TTL_S - 50)
        records(state)
        reserve(state, "p:2")
        clock.pass_s(TTL_S - 2)
        assert records(state).keys() == {"p:2"}
        clock.pass_s(4)
        assert records(state) == {}

    def test_two_jumps_add_up(self, state, clock):
        reserve(state)
        for _ in range(2):
            clock.pass_s(100)
            clock.jump_s(HOUR_S)
            assert records(state).keys() == {"p:1"}
        clock.pass_s(TTL_S - 202)
        assert records(state).keys() == {"p:1"}
        clock.pass_s(4)
        assert records(state) == {}

    def test_a_jump_that_is_undone_has_no_effect(self, state, clock):
        reserve(state)
        clock.jump_s(HOUR_S)
        records(state)
        clock.jump_s(-HOUR_S)
        records(state)
        clock.pass_s(TTL_S + 1)
        assert records(state) == {}

    def test_a_worker_that_was_suspended_does_not_delay_expiry(self, redis_engine, opened, clock):
        """Its clock stood still with its machine; others have confirmed the time meanwhile."""
        awake = opened()
        asleep = clock.govern(redis_engine.open(hold_timeout_s=LEASE_S, clock=ManualClock()))
        reserve(awake)
        assert records(asleep).keys() == {"p:1"}
        for _ in range(int(TTL_S) // 4 - 2):
            clock.pass_s(4)
            assert records(awake).keys() == {"p:1"}
        clock.pass_s(4)
        assert records(asleep).keys() == {"p:1"}
        clock.pass_s(5)
        assert records(awake) == {}

    def test_a_small_step_has_no_effect(self, state, clock, logged):
        reserve(state)
        clock.jump_s(4)
        clock.pass_s(TTL_S - 3)
        assert records(state) == {}
        assert logged.messages == []


def test_versions_grow_though_the_clock_went_back_and_the_last_is_lost(state, clock, redis_client):
    before = state.write(SCOPE, [put("a")]).version
    clock.jump_s(-HOUR_S)
    redis_client.delete(f"{state._base(SCOPE)}meta")
    known = state.changes(SCOPE, NEVER)
    assert known.version > before
    assert not state.changes(SCOPE, seen(known)).reset
    assert state.write(SCOPE, [guarded("a", before)]).applied == (True,)


def test_a_jump_does_not_reset_a_caller(state, clock):
    state.write(SCOPE, [put("a")])
    known = seen(state.changes(SCOPE, NEVER))
    for jump_s in (HOUR_S, -2 * HOUR_S):
        clock.jump_s(jump_s)
        looked = state.changes(SCOPE, known)
        assert (looked.reset, Seen(looked.epoch, looked.version)) == (False, known)
