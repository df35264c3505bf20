"""The engines that the contract is put to, each opened the same way."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.ports import State

SCOPE = "rack 1"


class Engine:
    """One shared store; ``open`` is what another process of a cluster would hold."""

    def open(self, *, hold_timeout_s: float = 20.0, max_tombstones: int = 1000) -> State:
        raise NotImplementedError

    def waiters(self) -> int:
        """How many wait for the lock of SCOPE."""
        raise NotImplementedError

    def watchers(self) -> int:
        """How many wait for a change of SCOPE."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class MemoryEngine(Engine):
    """Its processes are threads, so all share one state: the first that was opened."""

    def __init__(self) -> None:
        self._state: MemoryState | None = None

    def open(self, *, hold_timeout_s: float = 20.0, max_tombstones: int = 1000) -> State:
        self._state = self._state or MemoryState(
            SystemClock(), hold_timeout_s=hold_timeout_s, max_changes=max_tombstones
        )
        return self._state

    def waiters(self) -> int:
        return len(self._state._scopes[SCOPE].queue)

    def watchers(self) -> int:
        return self._state._scopes[SCOPE].watchers

    def close(self) -> None:
        self._state.close()


class RedisEngine(Engine):
    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = uuid.uuid4().hex
        self._states: list[RedisState] = []

    def open(self, **options: Any) -> RedisState:
        options = {"hold_timeout_s": 20.0, "offer_s": 5.0, "prefix": self._prefix, **options}
        self._states.append(RedisState(self._url, **options))
        return self._states[-1]

    def waiters(self) -> int:
        return self._count("queue")

    def watchers(self) -> int:
        return self._count("watchers")

    def _count(self, name: str) -> int:
        key = f"{self._states[0]._base(SCOPE)}{name}"
        count: int = self._states[0]._server.command(key, "ZCARD", key)
        return count

    def close(self) -> None:
        for state in self._states:
            state.close()


@pytest.fixture
def redis_engine(redis_url: str) -> Iterator[RedisEngine]:
    engine = RedisEngine(redis_url)
    yield engine
    engine.close()


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.servers)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "redis":
        yield request.getfixturevalue("redis_engine")
        return
    engine = MemoryEngine()
    yield engine
    engine.close()


def eventually(is_so: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Look until it is so: a place in a queue gives no other signal."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be so"
        threading.Event().wait(0.002)
