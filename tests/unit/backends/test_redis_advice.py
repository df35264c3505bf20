"""Warnings about a server's settings."""

import pytest

from scheduler_worker.backends.redis.engine import advice
from scheduler_worker.backends.redis.nodes import parsed_info

GOOD = {
    "aof_enabled": "1",
    "maxmemory_policy": "noeviction",
    "redis_version": "7.0.15",
    "connected_slaves": "1",
    "min_slaves_good_slaves": "1",
}


def test_a_good_server_has_no_warning():
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
def test_a_bad_setting_has_one_warning(setting, advised):
    (warning,) = advice("Redis at host:1", GOOD | setting, 1)
    assert advised in warning
    assert warning.startswith("Redis at host:1 ")


@pytest.mark.parametrize(
    ("replicas", "required", "waited_for", "is_safe"),
    [
        (1, None, 1, False),
        (1, "1", 0, False),
        (1, "1", 1, True),
        (2, "1", 2, False),
        (2, "2", 1, False),
        (2, "2", 2, True),
    ],
)
def test_every_replica_must_have_what_is_answered(replicas, required, waited_for, is_safe):
    info = GOOD | {"connected_slaves": str(replicas)}
    if required is None:
        del info["min_slaves_good_slaves"]
    else:
        info["min_replicas_to_write"] = required
    found = list(advice("Redis", info, waited_for))
    assert (found == []) == is_safe
    for each in found:
        assert (
            f"wait_replicas = {replicas} and at every server min-replicas-to-write {replicas}"
            in each
        )


def test_a_server_that_refuses_info_has_a_warning():
    (warning,) = advice("Redis", None, 0)
    assert "+info" in warning


def test_info_is_parsed_by_name():
    text = b"# Server\r\nredis_version:7.0.15\r\nrun_id:ab\r\n\r\nconfig_file:\r\nos:a:b\r\n"
    assert parsed_info(text) == {
        "redis_version": "7.0.15",
        "run_id": "ab",
        "config_file": "",
        "os": "a:b",
    }
