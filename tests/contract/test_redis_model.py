"""The model of Redis answers as a server does: command by command, and through the scripts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import redis

from scheduler_worker.backends.redis import connection
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.backends.redis.nodes import ScriptReply
from scheduler_worker.errors import ClusterLockTimeout, StaleFencingToken
from scheduler_worker.ports import Guard, LockGrant, Put, Seen, Transaction
from tests.support.redis_model import Keyspace, Scripts

KEYS = ("k1", "k2", "k3")
WORDS = ("a", "b", "c", "7", "")
SCORES = ("1", "2.5", "-3", "1700000000000001", "inf")
BOUNDS = ("-inf", "+inf", "(1", "1", "2.5", "(2.5", "1700000000000001")
INDEXES = ("0", "1", "-1", "-2", "5")


@pytest.fixture
def client(redis_url) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        client.flushdb()
        client.response_callbacks.clear()
        yield client
        client.flushdb()


def reply(execute: Any, *words: str) -> Any:
    """The reply, or a mark of a refusal, whose reason may differ."""
    try:
        return execute(*words)
    except (redis.ResponseError, Scripts.Error):
        return "refused"


def command(rng: random.Random) -> tuple[str, ...]:
    """A random command that the model knows, with valid arguments."""
    key, other = rng.choices(KEYS, k=2)
    word, second = rng.choices(WORDS, k=2)
    score, low, high = rng.choice(SCORES), *rng.choices(BOUNDS, k=2)
    first, last = rng.choices(INDEXES, k=2)
    scored = rng.choice(((), ("WITHSCORES",)))
    return rng.choice(
        (
            ("DEL", key, other),
            ("EXISTS", key, other),
            ("GET", key),
            ("SET", key, word),
            ("SET", key, word, "PX", "60000"),
            ("PEXPIRE", key, "60000"),
            ("HSET", key, word, second),
            ("HSET", key, word, second, second, word),
            ("HSET", key, word),
            ("HGET", key, word),
            ("HMGET", key, word, second),
            ("HEXISTS", key, word),
            ("HLEN", key),
            ("HDEL", key, word, second),
            ("ZADD", key, score, word),
            ("ZADD", key, score, word, rng.choice(SCORES), second),
            ("ZADD", key, "much", word),
            ("ZREM", key, word, second),
            ("ZSCORE", key, word),
            ("ZMSCORE", key, word, second),
            ("ZCARD", key),
            ("ZCOUNT", key, low, high),
            ("ZRANGE", key, first, last, *scored),
            ("ZRANGEBYSCORE", key, low, high, *scored),
            ("ZRANGEBYSCORE", key, low, high, "LIMIT", "0", "2"),
            ("ZRANGEBYSCORE", key, low, high, *scored, "LIMIT", "1", "-1"),
            ("ZRANGEBYSCORE", key, "low", high),
            ("ZREMRANGEBYSCORE", key, low, high),
            ("ZPOPMIN", key),
            ("ZPOPMIN", key, "2"),
            ("RPUSH", key, word, second),
            ("LPOP", key),
            ("LRANGE", key, first, last),
            ("PING",),
        )
    )


@pytest.mark.parametrize("seed", range(8))
def test_commands_have_the_same_replies(client, seed):
    rng, model = random.Random(seed), Keyspace(lambda: 0)
    for _ in range(400):
        words = command(rng)
        assert reply(client.execute_command, *words) == reply(model.execute, *words), words


def test_pairs_of_a_hash_are_the_same(client):
    model = Keyspace(lambda: 0)
    for execute in (client.execute_command, model.execute):
        execute("HSET", "k", "a", "1", "b", "2")
    for words in (("HGETALL", "k"), ("HSCAN", "k", "0", "COUNT", "10")):
        assert reply(client.execute_command, *words) == reply(model.execute, *words)


def test_an_unknown_command_is_a_defect_of_the_model():
    with pytest.raises(NotImplementedError, match="GEOADD"):
        Keyspace(lambda: 0).execute("GEOADD", "k", "1", "1", "here")


ODDITIES = (
    "return {1, 2.9, '3', true, false, 'never returned'}",
    "return {1, nil, 3}",
    "return redis.call('SET', 'k1', 'v')",
    "return redis.call('GET', 'k1')",
    "return {ok = 'fine'}",
    "return {err = 'ERR no'}",
    "redis.call('SET', 'k1', 0.1 + 0.2) return redis.call('GET', 'k1')",
    "redis.call('SET', 'k1', 1700000000000001) return redis.call('GET', 'k1')",
    "return redis.call('GET', 'nothing') == false",
    "return type(redis.call('SET', 'k1', 'v'))",
    "redis.call('RPUSH', 'k1', 'v') redis.call('GET', 'k1')",
    "redis.call('RPUSH', 'k1', 'v') return type(redis.pcall('GET', 'k1').err)",
    "return redis.pcall('RPUSH', 'k1', 'v')",
    "made_by_mistake = 1",
    "return made_by_mistake",
    "return {KEYS[1], ARGV[1], #ARGV}",
    "return string.format('%.0f', 1700000000000001)",
    "return {redis.call('ZADD', 'k2', 1, 'a'), redis.call('ZSCORE', 'k2', 'a')}",
)


def test_scripts_have_the_same_replies(client):
    model, scripts = Keyspace(lambda: 0), Scripts()
    for text in ODDITIES:
        client.flushdb()
        model.values.clear()
        theirs = reply(client.execute_command, "EVAL", text, "1", "key", "word")
        assert theirs == reply(partial(scripts.run, text, model, ["key"], ["word"])), text


class Both:
    """The engine's server: runs each script on a real one and on the model.

    The scripts see a clock that the test moves.
    """

    def __init__(self, client: redis.Redis, engine: RedisState) -> None:
        self._client = client
        self._texts = {name: each.text for name, each in engine._server._scripts.items()}
        self._lua = Scripts()
        self.model = Keyspace(lambda: 0)
        self.now_s = 1_700_000_000.0

    def run(self, script: str, keys: Any, args: Any, *, lasting: bool = False) -> ScriptReply:
        seconds, micro = divmod(int(self.now_s * 1_000_000), 1_000_000)
        text = f"""
            local redis = {{call = function(name, ...)
              if name == 'TIME' then return {{'{seconds}', '{micro}'}} end
              return redis.call(name, ...)
            end, pcall = redis.pcall}}
            {self._texts[script]}"""
        theirs = self._client.execute_command("EVAL", text, len(keys), *keys, *args)
        ours = self._lua.run(text, self.model, keys, args)
        assert theirs == ours, (script, keys, args)
        return ScriptReply(theirs, "life")

    run_once = run

    def command(self, _: str, *words: Any) -> Any:
        theirs, ours = self._client.execute_command(*words), self.model.execute(*words)
        assert theirs == ours, words
        return theirs

    def wait_for_nudge(self, *_: Any) -> None:
        raise AssertionError("no test waits here")


@pytest.mark.parametrize("seed", range(6))
def test_the_engine_leaves_the_same_keys_and_values(client, seed):
    rng = random.Random(seed)
    engine = RedisState(
        "redis://nowhere", hold_timeout_s=2.0, max_changes=6, max_tombstones=3, prefix="both"
    )
    both = Both(client, engine)
    engine._server = both  # type: ignore[assignment]
    user = User(engine, rng, both)
    for _ in range(250):
        user.act()
        both.now_s += rng.choice((0.0, 0.1, 0.1, 1.0, 3.0, -0.5))
    assert dump(client.execute_command) == dump(both.model.execute, both.model)
    assert user.used == set(connection.SCRIPTS)


class User:
    """Asks for all that an engine offers, in any order."""

    def __init__(self, engine: RedisState, rng: random.Random, both: Both) -> None:
        self._engine = engine
        self._rng = rng
        self._both = both
        self._grants: list[LockGrant] = []
        self._seen = Seen()
        self.used: set[str] = set()
        run = both.run

        def noted(script: str, *args: Any, **options: Any) -> ScriptReply:
            self.used.add(script)
            return run(script, *args, **options)

        both.run = noted

    def act(self) -> None:
        acts = (self._acquire, self._commit, self._release, self._write, self._look, self._watch)
        with suppress(ClusterLockTimeout, StaleFencingToken):
            self._rng.choice(acts)()

    def _acquire(self) -> None:
        priority_boost_s = self._rng.choice((0.0, 1.5))
        if self._rng.random() < 0.5:  # another waiter, which dies
            args = (f"dead{self._both.now_s}", 2_000_000, 5_000_000, "", 0, 100, 0)
            self._engine._run("acquire", "s", args)
        self._grants.append(
            self._engine.acquire(
                "s", timeout_s=0.0, seen=self._seen, priority_boost_s=priority_boost_s
            )
        )

    def _commit(self) -> None:
        if self._grants:
            grant = self._rng.choice(self._grants)
            keep_at = self._rng.choice((None, self._seen.version))
            self._engine.commit(grant, self._transactions(), keep_at=keep_at)

    def _release(self) -> None:
        if self._grants:
            self._engine.release(self._rng.choice(self._grants))

    def _write(self) -> None:
        once = self._rng.choice((None, "once", "twice"))
        self._engine.write("s", self._transactions(), once=once)

    def _look(self) -> None:
        found = self._engine.changes("s", self._rng.choice((self._seen, Seen())))
        self._seen = Seen(found.epoch, found.version)

    def _watch(self) -> None:
        self._engine.await_change("s", self._seen, timeout_s=0.0)

    def _transactions(self) -> list[Transaction]:
        rng = self._rng
        return [
            Transaction(
                [self._put() for _ in range(rng.randint(1, 3))],
                [Guard(self._key(), rng.choice((0, self._seen.version)))] * rng.randint(0, 1),
            )
            for _ in range(rng.randint(1, 3))
        ]

    def _put(self) -> Put:
        value = self._rng.choice((None, b"", b"value", b"\x00\xff"))
        expires_s = self._rng.choice((None, self._both.now_s + 2.0))
        return Put(self._key(), value, None if value is None else expires_s)

    def _key(self) -> str:
        return f"p:{self._rng.randint(1, 9)}"


def dump(execute: Any, model: Keyspace | None = None) -> dict[bytes, Any]:
    """All keys and values of a server."""
    keys = execute("KEYS", "*") if model is None else list(model.values)
    return {key: read(execute, key) for key in sorted(keys)}


def read(execute: Any, key: bytes) -> Any:
    for words in (
        ("GET", key),
        ("LRANGE", key, "0", "-1"),
        ("ZRANGE", key, "0", "-1", "WITHSCORES"),
    ):
        with suppress(redis.ResponseError):
            return execute(*words)
    pairs = execute("HGETALL", key)
    return dict(zip(pairs[::2], pairs[1::2], strict=True))
