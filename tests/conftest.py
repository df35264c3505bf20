"""The servers that tests ask for. A missing program skips at a desk and fails where CI is set."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
import redis

from tests.support.servers import RabbitServer, RedisServer, Server, ServerMissing


def _started(server: Server) -> Server:
    try:
        server.start()
    except ServerMissing as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    return server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The session's Redis; who stops or kills it starts one of their own instead."""
    server = _started(RedisServer(tmp_path_factory.mktemp("redis")))
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
    server = _started(RabbitServer(tmp_path_factory.mktemp("rabbit")))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def rabbit_url(rabbit_server: RabbitServer) -> str:
    """The module's own virtual host: exchanges that others made durable are not met there."""
    return rabbit_server.add_vhost(uuid.uuid4().hex)
