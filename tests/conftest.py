"""The servers that tests ask for. A missing program skips at a desk and fails where CI is set."""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from nova_cloud.errors import NotInstalled
from nova_cloud.installation import Installation, default_installation

from scheduler_worker.api import users
from tests.support import trials as trials  # sets how Hypothesis searches
from tests.support.certificates import Authority
from tests.support.databases import MariaServer, PostgresServer
from tests.support.handlers import Gate, Witness
from tests.support.servers import RabbitServer, RedisServer, Server, ServerMissing

pytest_plugins = ["suite.reports"]

NOVA = Path(__file__).with_name("nova")
SIMULATION = Path(__file__).with_name("simulation")
SEARCH_S = 3600
"""The limit of a search, which ends by the number of its examples: only a hang reaches it."""


users._METHOD = "scrypt:256:1:1"
"""Of hashes made in this process: with what the worker takes, each takes 50 ms of a processor."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--nova-paths",
        choices=["none", "few", "all"],
        default="none",
        help="which paths through a real Nova control plane are run (tests/nova)",
    )
    parser.addoption(
        "--console-images",
        action="store_true",
        help="let the tests of the console write the pictures of docs/images anew",
    )
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what is told of runs and decisions anew (tests/simulation, tests/examples)",
    )


@pytest.fixture
def rewrites(request: pytest.FixtureRequest) -> bool:
    """Whether texts that people read are to be written, instead of compared."""
    return bool(request.config.getoption("rewrite"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without its option, the control plane is left alone."""
    is_left_out = config.getoption("nova_paths") == "none"
    return True if is_left_out and collection_path == NOVA else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A search that hangs ends pytest: it would take an exception for what it searches."""
    for each in items:
        is_search = getattr(getattr(each, "obj", None), "is_hypothesis_test", False)
        if is_search or SIMULATION in each.path.parents:
            each.add_marker(pytest.mark.timeout(SEARCH_S, method="thread"))


@contextmanager
def needing_servers() -> Iterator[None]:
    """What is missing inside skips the test at a desk, and fails it where CI is set."""
    try:
        yield
    except (ServerMissing, NotInstalled) as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    with needing_servers():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    with needing_servers():
        return (yield)


def started(server: Server) -> Server:
    """The server, started."""
    server.start()
    return server


@pytest.fixture(autouse=True)
def _errors_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore pytest's hook, which programs replace: through it a thread's error fails a test."""
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)


@pytest.fixture(scope="session")
def nova_installation() -> Installation:
    """The environment of Nova and Placement, beside ours; some minutes the first time."""
    return default_installation().ensure()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The session's Redis; a test that stops or kills a server starts its own instead."""
    server = started(RedisServer(tmp_path_factory.mktemp("redis")))
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """An empty Redis."""
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    return redis_server.url


@pytest.fixture(scope="session")
def rabbit_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The session's RabbitMQ; it takes some seconds to start, so there is one at most."""
    server = started(RabbitServer(tmp_path_factory.mktemp("rabbit")))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def rabbit_url(rabbit_server: RabbitServer) -> str:
    """The module's own virtual host: exchanges that others made durable are not met there."""
    return rabbit_server.new_vhost()


@pytest.fixture(scope="session")
def make_open_directory() -> Iterator[Callable[[], Path]]:
    """Makes directories that other users may enter: every start of pytest closes its own."""
    with tempfile.TemporaryDirectory(prefix="scheduler-worker-") as top:
        Path(top).chmod(0o711)
        yield lambda: Path(tempfile.mkdtemp(dir=top))


@pytest.fixture(scope="session")
def postgres_server(make_open_directory: Callable[[], Path]) -> Iterator[Server]:
    """The session's PostgreSQL, in which each test or module makes its own database."""
    server = started(PostgresServer(make_open_directory()))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def maria_server(make_open_directory: Callable[[], Path]) -> Iterator[Server]:
    """The session's MariaDB, likewise."""
    server = started(MariaServer(make_open_directory()))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A handler that waits; at the latest the test's end lets it pass."""
    gate = Gate()
    yield gate
    gate.opened.set()
