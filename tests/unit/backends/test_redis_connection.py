"""What is read from a URL, and said of a server, before anything is connected."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_worker.backends.redis.connection import _address, _pool
from scheduler_worker.backends.redis.engine import RedisState, _warnings
from scheduler_worker.errors import ConfigError

GOOD = {"aof_enabled": 1, "maxmemory_policy": "noeviction", "redis_version": "7.0.15"}


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://host:6380/1", "host:6380"),
        ("rediss://user:se@cret@host:6380", "host:6380"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
        ("redis+sentinel://:secret@a:1,b:2/service/3", "a:1,b:2"),
    ],
)
def test_an_address_has_no_password(url: str, address: str) -> None:
    assert _address(url) == address


def test_a_sentinel_url_names_service_database_and_account() -> None:
    pool = _pool("redis+sentinel://me:p%40ss@a:1,b/blue/3", socket_timeout=4.0)
    assert pool.service_name == "blue"
    assert (pool.connection_kwargs["db"], pool.connection_kwargs["username"]) == (3, "me")
    assert pool.connection_kwargs["password"] == "p@ss"
    sentinels = [
        client.connection_pool.connection_kwargs for client in pool.sentinel_manager.sentinels
    ]
    assert [(each["host"], each["port"]) for each in sentinels] == [("a", 1), ("b", 26379)]
    assert {each["socket_timeout"] for each in sentinels} == {4.0}


@pytest.mark.parametrize(
    "url",
    [
        "redis://:secret@host:port/0",
        "amqp://:secret@host/",
        "redis+sentinel://:secret@a:1",
        "redis+sentinel://:secret@a:x/blue",
        "redis+sentinel://:secret@a:1/blue/zero",
    ],
)
def test_a_bad_url_is_refused_without_telling_the_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"\[state\] url") as caught:
        RedisState(url, hold_timeout_s=5.0)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ({"aof_enabled": 0}, "appendonly yes"),
        ({"maxmemory_policy": "volatile-lru"}, "maxmemory-policy noeviction"),
        ({"redis_version": "6.0.16"}, "6.2"),
    ],
)
def test_a_bad_setting_has_one_warning(setting: dict[str, Any], advice: str) -> None:
    assert list(_warnings("host:1", GOOD)) == []
    (warning,) = _warnings("host:1", GOOD | setting)
    assert advice in warning
    assert "host:1" in warning
