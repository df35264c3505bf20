"""Real servers, real workers, the real Nova."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import started
from tests.support.amqp import Stage
from tests.support.nova_databases import NovaCloud
from tests.support.placement_server import Cloud, PlacementServer
from tests.support.proxy import Proxy
from tests.support.workers import write_config


@pytest.fixture
def configure(tmp_path, rabbit_vhost_url, redis_url) -> Callable[..., Path]:
    """Writes the configuration of a worker on a virtual host and a Redis of the test's own."""

    def write(name: str, **groups: Mapping[str, Any]) -> Path:
        plain: dict[str, dict[str, Any]] = {
            "DEFAULT": {"transport_url": rabbit_vhost_url, "host": name, "service_down_time": 600},
            "state": {"url": redis_url},
        }
        known = {each: {**plain.get(each, {}), **groups.get(each, {})} for each in plain | groups}
        return write_config(tmp_path / f"{name}.conf", **known)

    return write


@pytest.fixture
def config(configure) -> Path:
    return configure(f"worker-{uuid.uuid4().hex[:8]}")


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


@pytest.fixture(scope="module")
def own_placement(tmp_path_factory, nova_installation) -> Iterator[PlacementServer]:
    """A Placement of the module's own."""
    directory = tmp_path_factory.mktemp("placement")
    database = f"sqlite:///{directory}/placement.sqlite"
    with PlacementServer(directory, nova_installation.python, database) as server:
        yield server


@pytest.fixture
def maria_cloud(maria_server) -> Iterator[NovaCloud]:
    """The databases of a Nova with one cell, on MariaDB."""
    cloud = NovaCloud(maria_server)
    yield cloud
    cloud.close()


@pytest.fixture(params=["maria_server", "postgres_server"])
def nova_cloud(request) -> Iterator[NovaCloud]:
    """Likewise, on each kind of server."""
    cloud = NovaCloud(request.getfixturevalue(request.param))
    yield cloud
    cloud.close()


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
def proxy(stage) -> Iterator[Proxy]:
    """A way to the stage's RabbitMQ that a test may stall or cut."""
    with Proxy(stage.rabbit.port) as proxy:
        yield proxy
