"""A Redis that does not answer: all callers fail soon, also those that queue behind others."""

import threading
from typing import Any

import pytest

from scheduler_worker.backends.redis import outage
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.backends.redis.nodes import RedisNode
from scheduler_worker.errors import StateLost, StateUnavailable
from scheduler_worker.ports import Put, Seen, Transaction
from tests.support.patience import eventually
from tests.support.proxy import Proxy
from tests.support.threads import Threads

SCOPE = "default"
CALLERS = 12
NOTHING = [Transaction([Put("a", b"")])]


@pytest.fixture
def proxy(redis_server, redis_url) -> Any:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def state(proxy, redis_url, redis_server, connect) -> RedisState:
    url = redis_url.replace(f":{redis_server.port}", f":{proxy.port}")
    return connect(url, socket_timeout_s=1.0, retry_for_s=1.0)


def test_callers_fail_at_once_after_one_has_given_up(proxy, state, monkeypatch):
    state.write(SCOPE, NOTHING)
    asking, behind, run = set(), threading.Lock(), RedisNode.run

    def noted(self: RedisNode, *results: Any) -> Any:
        asking.add(threading.current_thread())
        return run(self, *results)

    def ask() -> None:
        with behind:  # as of a replica
            state.changes(SCOPE, Seen())

    monkeypatch.setattr(RedisNode, "run", noted)
    with proxy.stalled("to_server"), Threads(CALLERS) as pool:
        results = [pool.submit(ask) for _ in range(CALLERS)]
        assert all(isinstance(each.exception(), StateLost) for each in results)
        assert len(asking) == 1, "only the first has waited for Redis"
    eventually(lambda: None not in state._server._outages.known)
    assert state.write(SCOPE, NOTHING).applied == (True,)


def test_a_call_that_failed_has_no_effect_later(proxy, state):
    state.write(SCOPE, NOTHING)
    with proxy.stalled("to_server"):
        with pytest.raises(StateUnavailable):
            state.changes(SCOPE, Seen())
        with pytest.raises(StateUnavailable):
            state.write(SCOPE, [Transaction([Put("b", b"")])])
        with pytest.raises(StateUnavailable):
            state.acquire(SCOPE, timeout_s=60.0, seen=Seen())
        with pytest.raises(StateUnavailable):
            state.await_change(SCOPE, Seen(), timeout_s=60.0)
    eventually(lambda: None not in state._server._outages.known)
    entries = state.changes(SCOPE, Seen()).entries
    assert [each.key for each in entries] == ["a"]


def test_a_lock_that_was_asked_for_in_an_outage_is_free_afterwards(
    proxy, state, redis_url, connect
):
    """The server executes after the outage what was sent before, for a waiter that has given up."""
    state.write(SCOPE, NOTHING)
    with proxy.stalled("to_client"), Threads(CALLERS) as pool:
        results = [
            pool.submit(state.acquire, SCOPE, timeout_s=60.0, seen=Seen()) for _ in range(CALLERS)
        ]
        assert all(isinstance(each.exception(), StateUnavailable) for each in results)
    assert connect(redis_url).acquire(SCOPE, timeout_s=30.0, seen=Seen()).token


def test_a_closed_state_stops_asking(proxy, state, monkeypatch):
    monkeypatch.setattr(outage, "RETRY_DELAY_S", 0.01)
    others = set(threading.enumerate())
    with proxy.away():
        with pytest.raises(StateUnavailable):
            state.ping()
        with pytest.raises(StateUnavailable):
            state.ping()
        [asking] = [
            each for each in set(threading.enumerate()) - others if each.name == "redis-outage"
        ]
        state.close()
        asking.join()
