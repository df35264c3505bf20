"""URLs of the state are parsed and checked before anything is connected."""

from typing import Any

import pytest
from redis.connection import ConnectionPool, SSLConnection
from redis.sentinel import SentinelManagedSSLConnection

from scheduler_worker.backends.redis.addresses import open_nodes, without_account
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.backends.redis.nodes import LONGEST_WAIT_S, Address, ClusterNodes, RedisNode
from scheduler_worker.errors import ConfigError


def nodes(url: str) -> Any:
    return open_nodes(url, connect_timeout_s=2.0, socket_timeout_s=4.0)


def pools(node: RedisNode) -> list[ConnectionPool]:
    return [node._commands.pool, node._waits.pool]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://host:6380/1", "host:6380"),
        ("rediss://user:se@cret@host:6380?ssl_keyfile=key", "host:6380"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
        ("redis+sentinel://:secret@a:1,b:2/service/3", "a:1,b:2"),
        ("redis+cluster://:secret@a:1,b:2", "a:1,b:2"),
    ],
)
def test_an_address_has_no_password(url, address):
    assert without_account(url) == address


def test_a_sentinel_url_names_service_database_and_account():
    url = (
        "redis+sentinel://me:p%40ss@a:1,b/blue/3?sentinel_username=you&sentinel_password=q%2526%2B"
    )
    (node,) = nodes(url).all().values()
    for pool in pools(node):
        assert pool.service_name == "blue"  # type: ignore[attr-defined]
        assert (pool.connection_kwargs["db"], pool.connection_kwargs["username"]) == (3, "me")
        assert pool.connection_kwargs["password"] == "p@ss"
        sentinels = [
            client.connection_pool.connection_kwargs
            for client in pool.sentinel_manager.sentinels  # type: ignore[attr-defined]
        ]
        assert [(each["host"], each["port"]) for each in sentinels] == [("a", 1), ("b", 26379)]
        assert {each["socket_timeout"] for each in sentinels} == {4.0}
        assert {(each["username"], each["password"]) for each in sentinels} == {("you", "q%26+")}
        assert [*map(repr, pool.sentinel_manager.sentinels)] == ["a:1", "b:26379"]  # type: ignore[attr-defined]


def test_tls_is_used_for_servers_and_sentinels(pem):
    (node,) = nodes(f"rediss+sentinel://a/blue?ssl_ca_certs={pem}").all().values()
    pool = pools(node)[0]
    (sentinel,) = pool.sentinel_manager.sentinels  # type: ignore[attr-defined]
    assert pool.connection_class is SentinelManagedSSLConnection
    assert sentinel.connection_pool.connection_class is SSLConnection
    for each in (pool, sentinel.connection_pool):
        assert each.connection_kwargs["ssl_ca_certs"] == pem


def test_a_cluster_url_names_some_of_its_servers(pem):
    cluster = nodes(f"rediss+cluster://me:p%40ss@a:1,b?ssl_ca_certs={pem}")
    assert isinstance(cluster, ClusterNodes)
    assert cluster._seeds == [("a", 1), ("b", 6379)]
    for pool in pools(cluster._node(Address("c", 7))):
        options = pool.connection_kwargs
        assert pool.connection_class is SSLConnection
        assert (options["host"], options["port"]) == ("c", 7)
        assert (options["username"], options["password"]) == ("me", "p@ss")
        assert options["ssl_ca_certs"] == pem


@pytest.mark.parametrize("url", ["redis://a", "redis+sentinel://a/blue", "redis+cluster://a"])
def test_redis_py_does_not_retry_and_its_timeout_is_longer_than_a_wait(url):
    found = nodes(url)
    node = found._node(Address("a", 1)) if isinstance(found, ClusterNodes) else found.of("key")
    commands, waits = pools(node)
    for pool in (commands, waits):
        assert pool.connection_kwargs["retry"].get_retries() == 0
        assert pool.max_connections >= 10_000, "each thread has one"
    assert commands.connection_kwargs["socket_timeout"] == 4.0
    assert waits.connection_kwargs["socket_timeout"] >= 4.0 + LONGEST_WAIT_S


@pytest.mark.parametrize(
    "url",
    [
        "redis://:secret@host:port/0",
        "redis://:secret@host?nonsense=1",
        "rediss://:secret@host?ssl_cert_reqs=perhaps",
        "amqp://:secret@host/",
        "amqp+cluster://:secret@host",
        "redis+sentinel://:secret@a:1",
        "redis+sentinel://:secret@/blue",
        "redis+sentinel://:secret@a:x/blue",
        "redis+sentinel://:secret@a:1/blue/zero",
        "redis+sentinel://a:x/blue?sentinel_password=secret",
        "redis+cluster://:secret@a:1,",
        "redis+cluster://:secret@a:1/3",
        "redis+cluster://:secret@a:1?nonsense=1",
    ],
)
def test_a_bad_url_is_refused_without_its_password(url):
    with pytest.raises(ConfigError, match=r"\[state\] url") as caught:
        RedisState(url, hold_timeout_s=5.0)
    assert "secret" not in str(caught.value)
