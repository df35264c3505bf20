"""The model of Redis answers the scripts as a server does."""

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
import redis
from msgspec import structs

from scheduler_worker.backends.redis import connection
from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.backends.redis.nodes import ScriptReply
from scheduler_worker.errors import ClusterLockTimeout, StaleFencingToken
from scheduler_worker.ports import Guard, LockGrant, Put, Seen, Transaction
from tests.support.redis_model import Keyspace, Scripts


@pytest.fixture
def client(redis_url) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        client.response_callbacks.clear()
        yield client


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
    assert {key: stored(client, key) for key in client.keys()}  # noqa: SIM118 == both.model.values
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
        acts = [self._acquire, self._commit, self._release, self._write, self._look, self._watch]
        if self._rng.random() < 0.02:
            acts = [self._lose]
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
            at = self._rng.choice((None, self._seen.version))
            keep = self._rng.random() < 0.5
            written = self._engine.commit(grant, self._transactions(), at=at, keep=keep)
            if written.kept or written.is_free:
                self._grants.append(structs.replace(grant, commits=grant.commits + 1))
            if written.before == self._seen.version:
                self._seen = Seen(self._seen.epoch, written.version)

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

    def _lose(self) -> None:
        lost = self._rng.choice(("meta", "records", "changed"))
        self._both.command("", "DEL", f"both:{{s}}:{lost}")

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


def stored(client: redis.Redis, key: bytes) -> Any:
    match client.type(key):
        case b"string":
            return client.get(key)
        case b"list":
            return client.lrange(key, 0, -1)
        case b"zset":
            pairs = client.execute_command("ZRANGE", key, 0, -1, "WITHSCORES")
            return {member: float(score) for member, score in batched(pairs)}
    return dict(batched(client.execute_command("HGETALL", key)))


def batched(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)
