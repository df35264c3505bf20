"""Warnings about a server's settings."""

from __future__ import annotations

import pytest

from scheduler_worker.backends.redis.advice import advice
from scheduler_worker.backends.redis.nodes import parsed_info

GOOD = {
    "aof_enabled": "1",
    "maxmemory_policy": "noeviction",
    "redis_version": "7.0.15",
    "connected_slaves": "1",
    "min_slaves_good_slaves": "1",
}


def test_a_good_server_has_no_warning() -> None:
    assert list(advice("Redis", GOOD, 1)) == []
    alone = {"connected_slaves": "0", "redis_version": "6.2.0", "aof_enabled": "1"}
    assert list(advice("Redis", alone, 0)) == []


@pytest.mark.parametrize(
    ("setting", "advised"),
    [
        ({"aof_enabled": "0"}, "appendonly yes"),
        ({"maxmemory_policy": "volatile-lru"}, "maxmemory-policy noeviction"),
        ({"redis_version": "6.0.16"}, "6.2"),
        ({"connected_slaves": "0"}, "wait_replicas"),
    ],
)
def test_a_bad_setting_has_one_warning(setting: dict[str, str], advised: str) -> None:
    (warning,) = advice("Redis at host:1", GOOD | setting, 1)
    assert advised in warning
    assert warning.startswith("Redis at host:1 ")


def test_a_master_that_writes_without_replicas_has_a_warning() -> None:
    settings = {key: GOOD[key] for key in GOOD if not key.startswith("min_slaves")}
    (warning,) = advice("Redis", settings, 1)
    assert "min-replicas-to-write 1" in warning


def test_a_server_that_refuses_info_has_a_warning() -> None:
    (warning,) = advice("Redis", None, 0)
    assert "+info" in warning


def test_info_is_parsed_by_name() -> None:
    text = b"# Server\r\nredis_version:7.0.15\r\nrun_id:ab\r\n\r\nconfig_file:\r\nos:a:b\r\n"
    assert parsed_info(text) == {
        "redis_version": "7.0.15",
        "run_id": "ab",
        "config_file": "",
        "os": "a:b",
    }
