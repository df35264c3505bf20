"""The engines that the contract tests run on, each opened the same way."""

import contextlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from scheduler_worker import conf
from scheduler_worker.backends import memory
from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.backends.redis import connection, nodes
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.ports import State
from scheduler_worker.rpc.dispatcher import Endpoint
from scheduler_worker.rpc.serving.server import QueueServer
from scheduler_worker.rpc.transport import Bus, Client
from tests.support.patience import NEVER_S, SOON_S
from tests.support.servers import RedisServer
from tests.support.threads import Threads

from .archives import DATABASES, Databases

SCOPE = "rack 1"
T = TypeVar("T")
Serve = Callable[..., QueueServer]


class MemoryEngine:
    """Its processes are threads, so all share the state that was opened first."""

    def __init__(self) -> None:
        self._state: MemoryState | None = None

    def open(self, *, hold_timeout_s: float = NEVER_S, max_tombstones: int = 1000) -> State:
        """A connection with this hold timeout; earlier ones get the same timeout."""
        self._state = self._state or MemoryState(
            SystemClock(), hold_timeout_s=hold_timeout_s, max_changes=max_tombstones
        )
        self._state._hold_timeout_s = hold_timeout_s
        return self._state

    def waiters(self) -> int:
        """How many callers wait for the lock of SCOPE."""
        return len(self._state._scopes[SCOPE].queue)

    def watchers(self) -> int:
        """How many callers wait for a change of SCOPE."""
        return len(self._state._condition._waiters)

    def close(self) -> None:
        self._state.close()


class RedisEngine:
    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = uuid.uuid4().hex
        self._states: list[RedisState] = []

    def open(self, **options: Any) -> RedisState:
        options = {"hold_timeout_s": NEVER_S, "offer_s": NEVER_S, "prefix": self._prefix, **options}
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


Engine = MemoryEngine | RedisEngine
"""One shared store; each ``open`` is the connection of another process."""


@pytest.fixture
def redis_engine(redis_url) -> Iterator[RedisEngine]:
    engine = RedisEngine(redis_url)
    yield engine
    engine.close()


@pytest.fixture
def redis_client(redis_url) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def documented_account(redis_url, redis_client) -> Iterator[str]:
    """The URL with the account of ``docs/security.md``, which is refused nothing."""
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    commands = re.findall(r"(?<=\s)\+[a-z|]+", text)
    keys = ["scheduler_worker:*"]
    redis_client.acl_setuser("worker", enabled=True, nopass=True, keys=keys, commands=commands)
    yield redis_url.replace("//", "//worker:any@")
    assert [each for each in redis_client.acl_log() if each["username"] == "worker"] == []


@pytest.fixture
def connect() -> Iterator[Callable[..., RedisState]]:
    """Opens the state of any server; it is closed afterwards."""
    with contextlib.ExitStack() as opened:

        def opening(url: str, **options: Any) -> RedisState:
            state = RedisState(url, **{"hold_timeout_s": NEVER_S} | options)
            return opened.enter_context(contextlib.closing(state))

        yield opening


@pytest.fixture
def started(redis_server) -> Iterator[Any]:
    """Starts servers that the test may kill (``redis_server`` says whether there can be any)."""
    running: list[RedisServer] = []

    def start(server: RedisServer) -> Any:
        server.start()
        running.append(server)
        return server

    yield start
    for server in reversed(running):
        server.kill()


@pytest.fixture(params=["memory", "redis"])
def engine(request) -> Iterator[Engine]:
    if request.param == "redis":
        yield request.getfixturevalue("redis_engine")
        return
    engine = MemoryEngine()
    yield engine
    engine.close()


def soon(engine: Engine, waiting: Future[T]) -> T:
    """The result of a waiter that is woken; one that is not waits longer than a test."""
    try:
        return waiting.result(SOON_S)
    except TimeoutError:
        engine.close()  # which ends the thread
        raise


@pytest.fixture
def nobody_looks_again(monkeypatch) -> None:
    """Turn off polling, so that a waiter which is not woken waits for ever."""
    monkeypatch.setattr(memory, "POLL_S", NEVER_S)
    monkeypatch.setattr(nodes, "LONGEST_WAIT_S", NEVER_S)
    monkeypatch.setattr(connection, "LONGEST_WAIT_S", NEVER_S)


@pytest.fixture
def state(engine) -> State:
    return engine.open()


@pytest.fixture
def pool() -> Iterator[Threads]:
    pool = Threads(8)
    yield pool
    pool.shutdown(wait=False)


@pytest.fixture(scope="session")
def databases(request, tmp_path_factory) -> Databases:
    return Databases(request, tmp_path_factory.mktemp("sql"))


@pytest.fixture(params=DATABASES)
def database_url(request, databases) -> str:
    """A database of each kind, with the newest schema and without rows."""
    return databases.emptied(request.param)


# Buses


@pytest.fixture(params=["local", "rabbit"])
def url(request) -> str:
    """The embedded bus, or RabbitMQ."""
    if request.param == "local":
        return f"local://{uuid.uuid4().hex}/"
    return request.getfixturevalue("rabbit_url")


@pytest.fixture
def bus(url) -> Iterator[Bus]:
    with Bus(conf.load(), url=url, exchange="nova") as bus:
        yield bus


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex}"


@pytest.fixture
def serve(bus, topic) -> Iterator[Serve]:
    """Start a server with the given methods; stopped afterwards."""
    servers = []

    def start(
        methods: Mapping[str, Callable[..., Any]],
        *,
        name: str = "one",
        namespace: str | None = None,
        version: str = "1.0",
        **options: Any,
    ) -> QueueServer:
        endpoint = Endpoint(namespace, version, methods)
        server = bus.server(topic, name, [endpoint], **options)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop(SOON_S)


@pytest.fixture
def client(bus, topic) -> Client:
    return bus.client(topic, timeout_s=SOON_S)
