"""Real servers, real workers, the real Nova."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import started
from tests.support.amqp import Stage
from tests.support.handlers import Gate
from tests.support.placement_server import Cloud, PlacementServer
from tests.support.workers import write_config


@pytest.fixture
def config(tmp_path, rabbit_vhost_url, redis_url):
    """A worker's configuration on a virtual host and a key prefix of its own."""
    return write_config(
        tmp_path / "worker.conf",
        DEFAULT={
            "transport_url": rabbit_vhost_url,
            "host": f"worker-{uuid.uuid4().hex[:8]}",
            "service_down_time": 600,
        },
        state={"url": redis_url},
    )


@pytest.fixture(scope="session")
def nova_python(nova_installation) -> Path:
    """An interpreter with the real Nova, in an environment of its own beside ours."""
    return nova_installation.python


@pytest.fixture(scope="session")
def placement_server(
    maria_server, tmp_path_factory, nova_installation
) -> Iterator[PlacementServer]:
    """The session's Placement; a test that stops it starts it again."""
    database = maria_server.create_database()
    directory = tmp_path_factory.mktemp("placement")
    server = PlacementServer(directory, nova_installation.python, database)
    started(server)
    yield server
    server.stop()


@pytest.fixture
def placement_cloud(placement_server) -> Cloud:
    """What is in the session's Placement."""
    return Cloud(placement_server)


@pytest.fixture
def rabbit_vhost_url(rabbit_server) -> str:
    """A new virtual host of the session's RabbitMQ."""
    return rabbit_server.new_vhost()


@pytest.fixture
def stage(rabbit_server, tmp_path):
    """A new topic of the session's RabbitMQ, for servers and clients."""
    stage = Stage(rabbit_server, tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def gate():
    """A handler that waits; at the latest the test's end lets it pass."""
    gate = Gate()
    yield gate
    gate.opened.set()
