"""The log of decisions, on every engine."""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scheduler_worker.backends.decision_log import MemoryDecisionLog
from scheduler_worker.backends.redis.decision_log import RedisDecisionLog
from scheduler_worker.decision_log import Bounds, DecisionLog, LogRecord
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.model.decision_history import Position
from tests.support.clock import ManualClock

SCOPE, OTHER = "rack 1", "@global"
Open = Callable[..., DecisionLog]


@pytest.fixture(params=["memory", "redis"])
def opened(request, redis_log) -> Open:
    """Opens the engine with bounds; in Redis it is always the same log."""
    prefix = uuid.uuid4().hex

    def open_log(**bounds: Any) -> DecisionLog:
        if request.param == "memory":
            return MemoryDecisionLog(Bounds(**bounds))
        url = request.getfixturevalue("redis_url")
        return redis_log(url, bounds=Bounds(**bounds), prefix=prefix)

    return open_log


@pytest.fixture
def redis_log() -> Iterator[Open]:
    with contextlib.ExitStack() as logs:
        yield lambda url, **options: logs.enter_context(
            contextlib.closing(RedisDecisionLog(url, **options))
        )


@pytest.fixture
def log(opened) -> DecisionLog:
    return opened()


def details(name: str) -> bytes:
    return b"d\x00\xff\n" + name.encode()


def record(*instances: str, outline: bytes = b"") -> LogRecord:
    return LogRecord(instances, outline or b"o-" + instances[0].encode(), details(instances[0]))


def add(log: DecisionLog, *instances: str, scope: str = SCOPE) -> None:
    """One record for each instance, each by a call of its own."""
    for each in instances:
        log.append(scope, [record(each)], once=uuid.uuid4().hex)


def names(log: DecisionLog, **asked: Any) -> list[str]:
    return [each.instances[0] for each in log.newest(SCOPE, **{"count": 100, **asked})]


def test_records_come_newest_first_in_pages(log):
    log.append(SCOPE, [record("a"), record("b")], once="1")
    add(log, "c")
    first = log.newest(SCOPE, count=2)
    assert [each.instances for each in first] == [("c",), ("b",)]
    assert [each.outline for each in first] == [b"o-c", b"o-b"]
    assert names(log, before=first[-1].position) == ["a"]
    assert first[0].position > first[1].position


def test_no_log_is_an_empty_one(log):
    assert log.newest(SCOPE, count=1) == []
    assert log.of_instance(SCOPE, "a") == []
    assert log.get(SCOPE, Position(1, 0)) is None


def test_scopes_are_apart(log):
    add(log, "a")
    add(log, "b", scope=OTHER)
    assert names(log) == ["a"]
    [other] = log.newest(OTHER, count=9)
    assert other.instances == ("b",)
    assert log.of_instance(OTHER, "a") == []


def test_the_details_of_many_are_read_at_once(log):
    add(log, "a", "b")
    newest, oldest = (each.position for each in log.newest(SCOPE, count=2))
    missing = newest._replace(number=99)
    assert log.details(SCOPE, [oldest, missing, newest]) == [details("a"), None, details("b")]
    assert log.details(SCOPE, []) == []
    assert log.details(OTHER, [newest]) == [None]


def test_each_of_many_that_are_written_at_once_has_its_own_details(log):
    written = [str(number) for number in range(100)]
    log.append(SCOPE, [record(each) for each in written], once="1")
    add(log, "last")
    found = log.newest(SCOPE, count=200)
    positions = [each.position for each in found]
    expected = [details(each.instances[0]) for each in found]
    assert log.details(SCOPE, positions) == expected
    assert log.details(SCOPE, positions[::-7]) == expected[::-7]
    for each in found[::9]:
        assert log.get(SCOPE, each.position) == (each, details(each.instances[0]))


@pytest.mark.parametrize("kept", [1, 31, 32, 33, 64, 99])
def test_what_is_left_of_a_batch_keeps_its_details(opened, kept):
    log = opened(number=kept)
    log.append(SCOPE, [record(str(number)) for number in range(100)], once="1")
    found = log.newest(SCOPE, count=200)
    assert [each.instances[0] for each in found] == [str(99 - each) for each in range(kept)]
    expected = [details(each.instances[0]) for each in found]
    assert log.details(SCOPE, [each.position for each in found]) == expected
    assert log.of_instance(SCOPE, "0") == []
    add(log, "new")
    [_, *others] = log.newest(SCOPE, count=200)
    assert log.details(SCOPE, [each.position for each in others]) == expected[: kept - 1]


def test_the_records_of_an_instance_are_found(log):
    log.append(SCOPE, [record("a", "b"), record("b"), record("bb")], once="1")
    assert [each.instances for each in log.of_instance(SCOPE, "b")] == [("b",), ("a", "b")]
    assert [each.instances for each in log.of_instance(SCOPE, "a")] == [("a", "b")]


@pytest.mark.parametrize("name", ["my server", "50%", " ", "é\n", "a!"])
def test_any_id_of_an_instance_will_do(log, name):
    log.append(SCOPE, [record("a", name, "c")], once="1")
    [found] = log.of_instance(SCOPE, "c")
    assert found.instances == ("a", name, "c")
    assert [each.position for each in log.of_instance(SCOPE, name)] == [found.position]


def test_all_logs_together_are_bounded(opened):
    log = opened(number=3, in_all=4)
    for name in "abc":
        log.append(SCOPE, [record(name)], once=name, scopes=2)
    assert [each.instances for each in log.newest(SCOPE, count=9)] == [("c",), ("b",)]


def test_a_repeated_call_adds_nothing(log):
    for _ in range(2):
        log.append(SCOPE, [record("a"), record("b")], once="same")
    assert names(log) == ["b", "a"]


def test_the_oldest_records_go_first_with_all_that_finds_them(opened):
    log = opened(number=3)
    log.append(SCOPE, [record("a", "x"), record("b", "x")], once="1")
    [_, first] = log.newest(SCOPE, count=9)
    log.append(SCOPE, [record(each) for each in "cdefg"], once="2")
    assert names(log) == ["g", "f", "e"]
    assert log.of_instance(SCOPE, "x") == []
    assert log.get(SCOPE, first.position) is None


def test_old_records_go_with_the_next_one():
    clock = ManualClock()
    log = MemoryDecisionLog(Bounds(age_s=60.0), clock)
    add(log, "a", "b")
    clock.advance(30)
    add(log, "c")
    clock.advance(31)
    add(log, "d")
    assert names(log) == ["d", "c"]
    assert log.of_instance(SCOPE, "a") == []


def test_old_records_go_with_the_next_one_in_redis(redis_url, redis_client, redis_log):
    log = redis_log(redis_url, prefix="old")
    for ms in range(1_000, 1_600):
        redis_client.xadd("old:{rack%201}:decisions", {"i": "x", "o": "o"}, id=f"{ms}-0")
    add(log, "a")
    assert names(log) == ["a"]
    add(log, "b")
    assert names(log) == ["b", "a"]


def test_nothing_stays_of_records_that_went(redis_url, redis_client, redis_log):
    log = redis_log(redis_url, bounds=Bounds(number=3), prefix="gone")
    log.append(SCOPE, [record(f"i{number}", "x") for number in range(500)], once="1")
    key = "gone:{rack%201}:decisions"
    assert (redis_client.xlen(key), redis_client.hlen(f"{key}:details")) == (3, 1), "one batch's"
    assert redis_client.zcard(f"{key}:instances") == 6
    add(log, "a", "b")
    assert (redis_client.xlen(key), redis_client.hlen(f"{key}:details")) == (3, 3)
    assert redis_client.zcard(f"{key}:instances") == 4
    add(log, "c")
    assert (redis_client.xlen(key), redis_client.hlen(f"{key}:details")) == (3, 3)
    assert redis_client.zcard(f"{key}:instances") == 3


def test_a_full_server_loses_old_records_first(redis_url, redis_client, redis_log):
    log = redis_log(redis_url, prefix="full", retry_for_s=0.1)
    log.append(SCOPE, [record(f"i{number}") for number in range(64)], once="1")
    redis_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StateUnavailable, match="maxmemory"):
            add(log, "a")
    finally:
        redis_client.config_set("maxmemory", 0)
    assert names(log) == [f"i{number}" for number in range(63, 31, -1)]
    add(log, "a")
    assert names(log)[:2] == ["a", "i63"]


def test_a_call_whose_first_write_was_refused_is_repeated(redis_url, redis_client, redis_log):
    may = {"enabled": True, "nopass": True, "keys": ["refused:*"], "categories": ["+@all"]}
    redis_client.acl_setuser("writer", **may, commands=["-xadd"])
    log = redis_log(redis_url.replace("//", "//writer:any@"), prefix="refused")
    with pytest.raises(StateUnavailable, match="account may not"):
        log.append(SCOPE, [record("a")], once="same")
    redis_client.acl_setuser("writer", **may)
    for _ in range(2):
        log.append(SCOPE, [record("a")], once="same")
    assert names(log) == ["a"]


def test_a_log_without_new_records_expires(redis_url, redis_client, redis_log):
    prefix = uuid.uuid4().hex
    log = redis_log(redis_url, bounds=Bounds(age_s=3600.0), prefix=prefix)
    add(log, "a")
    keys = list(redis_client.scan_iter(f"{prefix}:*"))
    assert len(keys) == 4
    assert all(0 < redis_client.pttl(key) <= 3_600_000 for key in keys)


def test_the_documented_account_suffices(documented_account, redis_log):
    log = redis_log(documented_account, bounds=Bounds(number=2))
    add(log, "a", "b", "c")
    [newest, _] = log.newest(SCOPE, count=9)
    assert log.newest(SCOPE, before=newest.position, count=1)[0].instances == ("b",)
    assert log.of_instance(SCOPE, "c") == [newest]
    assert log.get(SCOPE, newest.position) is not None
    assert log.details(SCOPE, [newest.position]) != [None]
