"""What only an engine for many processes can meet: dead peers, lost replies, a server that dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from scheduler_worker.backends.redis.engine import RedisState, _packed
from scheduler_worker.errors import StaleFencingToken, StateUnavailable
from scheduler_worker.ports import ABSENT, Seen
from tests.support.servers import RedisServer, Server, ServerFailed, free_port

from .conftest import SCOPE, RedisEngine, eventually
from .test_state import NEVER, acquire, guarded, put, records, seen, told

pytestmark = pytest.mark.servers

MICRO = 1_000_000


@pytest.fixture
def state(redis_engine: RedisEngine) -> RedisState:
    return redis_engine.open()


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def own_server(redis_server: Server, tmp_path: Path) -> Iterator[RedisServer]:
    """A server that the test may kill (``redis_server`` only says whether there can be one)."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


def ask(state: RedisState, owner: str, patience_s: float = 10.0, hold_s: float = 20.0) -> Any:
    """One step of ``acquire``, of a process that dies right afterwards."""
    args = (owner, int(hold_s * MICRO), int(patience_s * MICRO), "", 0, 1000)
    return state._run("acquire", SCOPE, args)


class TestDeadPeers:
    def test_a_dead_waiter_costs_an_offer_and_not_a_hold(self, redis_engine: RedisEngine) -> None:
        state = redis_engine.open(hold_timeout_s=20.0, offer_s=0.2)
        grant = acquire(state)
        ask(state, "dead")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(acquire, state)
            eventually(lambda: redis_engine.waiters() == 2)
            released_s = time.monotonic()
            state.release(grant)
            waiting.result()
        assert 0.15 < time.monotonic() - released_s < 2

    def test_an_impatient_waiter_costs_nothing(self, redis_engine: RedisEngine) -> None:
        state = redis_engine.open(offer_s=20.0)
        grant = acquire(state)
        ask(state, "gave up", patience_s=0.0)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(acquire, state)
            eventually(lambda: redis_engine.waiters() == 2)
            state.release(grant)
            assert waiting.result().waited_s < 5

    def test_an_offer_is_not_taken_by_who_comes_later(self, redis_engine: RedisEngine) -> None:
        state = redis_engine.open(offer_s=20.0)
        grant = acquire(state)
        ask(state, "first")
        state.release(grant)
        assert ask(state, "second")[0] == 0
        assert ask(state, "first")[0] == 1

    def test_who_leaves_passes_an_offer_on(self, redis_engine: RedisEngine) -> None:
        state = redis_engine.open(offer_s=20.0)
        grant = acquire(state)
        ask(state, "first")
        ask(state, "second")
        state.release(grant)
        state._run("leave", SCOPE, ("first",))
        assert ask(state, "second")[0] == 1

    def test_a_waiter_looks_again_after_an_offer(self, redis_engine: RedisEngine) -> None:
        state = redis_engine.open(offer_s=0.2)
        acquire(state)
        assert ask(state, "waits") == [0, b"200000"]

    def test_a_nudge_that_was_not_needed_is_cleared_away(
        self, state: RedisState, client: redis.Redis
    ) -> None:
        grant = acquire(state)
        ask(state, "waits")
        state.release(grant)
        assert len(client.keys("*:wake:*")) == 1
        assert ask(state, "waits")[0] == 1
        assert client.keys("*:wake:*") == []

    def test_a_dead_holder_costs_its_hold(self, state: RedisState) -> None:
        ask(state, "dead", hold_s=0.3)
        assert 0.1 < acquire(state).waited_s < 5


class TestLostReplies:
    """redis-py may run a script again when its reply was lost."""

    def test_acquire_answers_the_same_token(self, state: RedisState) -> None:
        assert ask(state, "me")[:2] == ask(state, "me")[:2]

    def test_a_place_in_the_queue_is_kept(self, state: RedisState) -> None:
        grant = acquire(state)
        for owner in ("first", "second", "first"):
            ask(state, owner)
        state.release(grant)
        assert ask(state, "second")[0] == 0
        assert ask(state, "first")[0] == 1

    def test_a_write_answers_the_same(self, state: RedisState) -> None:
        transactions = [guarded("a", ABSENT), guarded("b", 99)]
        args = ("call", 60_000, *_packed(transactions))
        first = state._run("write", SCOPE, args, memo="call:call")
        assert first.endswith(b" 10")
        assert state._run("write", SCOPE, args, memo="call:call") == first


class TestAnotherLife:
    def test_a_commit_after_all_was_lost_is_refused(
        self, state: RedisState, client: redis.Redis
    ) -> None:
        state.write(SCOPE, [put("a")])
        grant = acquire(state)
        client.flushall()
        with pytest.raises(StaleFencingToken):
            state.commit(grant, [put("b")])
        assert records(state) == {}

    def test_a_hold_of_another_epoch_is_refused(
        self, state: RedisState, client: redis.Redis
    ) -> None:
        grant = acquire(state)
        client.hset(f"{state._base(SCOPE)}meta", "epoch", "another")
        with pytest.raises(StaleFencingToken):
            state.commit(grant, [put("b")])

    def test_versions_and_tokens_of_the_new_life_are_larger(
        self, state: RedisState, client: redis.Redis
    ) -> None:
        old = state.write(SCOPE, [put("a")]).version
        token = acquire(state).token
        known = seen(state.changes(SCOPE, NEVER))
        client.flushall()
        assert state.changes(SCOPE, known).reset
        state.write(SCOPE, [put("a")])
        assert state.write(SCOPE, [put("b"), guarded("a", old)]).applied == (True, False)
        new = acquire(state)
        assert new.token.number > token.number
        assert new.token.epoch != token.epoch
        assert told(state.changes(SCOPE, known)) == {"a": b"", "b": b""}

    def test_scripts_that_were_flushed_are_sent_again(
        self, state: RedisState, client: redis.Redis
    ) -> None:
        state.write(SCOPE, [put("a")])
        client.script_flush()
        assert records(state) == {"a": b""}

    @pytest.mark.parametrize("somebody_noticed", [False, True])
    def test_a_restart_with_its_file_keeps_promises(
        self, own_server: RedisServer, somebody_noticed: bool
    ) -> None:
        state = RedisState(own_server.url, hold_timeout_s=5.0)
        now_s = state.changes(SCOPE, NEVER).now_s
        state.write(SCOPE, [put("h:1", b"host"), put("p:1", b"promise", now_s + 600)])
        version = state.changes(SCOPE, NEVER).version
        held = acquire(state)
        known = seen(held.changes)
        own_server.kill()
        own_server.start()
        if somebody_noticed:
            state.ping()
        again = state.changes(SCOPE, known)
        assert again.reset, "the new process may have lost what was written last"
        assert told(again) == {"h:1": b"host", "p:1": b"promise"}
        assert again.version == version
        assert not state.changes(SCOPE, seen(again)).reset
        assert state.commit(held, [guarded("h:1", version, b"newer")]).applied == (True,)
        state.close()

    def test_a_waiter_outlives_a_restart(self, own_server: RedisServer) -> None:
        state = RedisState(own_server.url, hold_timeout_s=20.0)
        grant = acquire(state)
        queue = f"{state._base(SCOPE)}queue"
        with ThreadPoolExecutor(1) as pool, redis.Redis.from_url(own_server.url) as client:
            waiting = pool.submit(acquire, state)
            eventually(lambda: client.zcard(queue) == 1)
            own_server.restart()
            state.release(grant)
            assert waiting.result().token > grant.token
        state.close()


class TestUnreachable:
    def test_it_says_so_within_its_bound(self) -> None:
        port = free_port()
        url = f"redis://somebody:secret@127.0.0.1:{port}/0"
        state = RedisState(url, hold_timeout_s=5.0, retry_for_s=0.3)
        started_s = time.monotonic()
        with pytest.raises(StateUnavailable, match=f"127.0.0.1:{port}") as caught:
            acquire(state)
        assert time.monotonic() - started_s < 3
        assert "secret" not in str(caught.value)
        with pytest.raises(StateUnavailable):
            state.ping()
        state.close()

    def test_it_recovers_by_itself(self, own_server: RedisServer) -> None:
        state = RedisState(own_server.url, hold_timeout_s=5.0, retry_for_s=0.2)
        state.write(SCOPE, [put("a")])
        own_server.kill()
        with pytest.raises(StateUnavailable):
            state.write(SCOPE, [put("b")])
        own_server.start()
        assert records(state) == {"a": b""}
        state.close()

    def test_a_short_absence_is_not_noticed(self, own_server: RedisServer) -> None:
        state = RedisState(own_server.url, hold_timeout_s=5.0, retry_for_s=20.0)
        state.ping()
        own_server.kill()
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(state.write, SCOPE, [put("a")])
            own_server.start()
            assert written.result().applied == (True,)
        state.close()


class TestPages:
    def test_a_large_scope_is_read_in_pages(self, redis_engine: RedisEngine) -> None:
        state = redis_engine.open(max_changes=100)
        state.write(SCOPE, [put(f"k{n}", b"%d" % n) for n in range(3000)])
        state.write(SCOPE, [put(f"k{n}", None) for n in range(50)])
        everything = state.changes(SCOPE, NEVER)
        assert everything.reset
        assert told(everything) == {f"k{n}": b"%d" % n for n in range(50, 3000)}
        assert not state.changes(SCOPE, seen(everything)).entries
        versions = {entry.version for entry in everything.entries}
        assert len(versions) == 1
        assert versions < {everything.version, *versions}

    def test_so_is_what_a_grant_tells(self, redis_engine: RedisEngine) -> None:
        state = redis_engine.open(max_changes=10)
        known = seen(state.changes(SCOPE, NEVER))
        state.write(SCOPE, [put(f"k{n}") for n in range(11)])
        grant = acquire(state, known=known)
        assert grant.changes.reset
        assert len(told(grant.changes)) == 11

    def test_what_is_written_meanwhile_is_not_missed(
        self, redis_engine: RedisEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        state = redis_engine.open(max_changes=10)
        state.write(SCOPE, [put(f"k{n}", b"old") for n in range(20)])
        page = state._page

        def page_and_write(scope: str, cursor: int) -> Any:
            read = page(scope, cursor)
            state.write(scope, [put("k0", b"new"), put("k1", None), put("k20", b"new")])
            return read

        monkeypatch.setattr(state, "_page", page_and_write)
        changes = state.changes(SCOPE, NEVER)
        expected = {f"k{n}": b"old" for n in range(2, 20)} | {"k0": b"new", "k20": b"new"}
        assert told(changes) == expected
        assert changes.version == max(entry.version for entry in changes.entries)


class TestOperators:
    def test_a_server_that_keeps_everything_needs_no_warning(self, state: RedisState) -> None:
        assert state.check() == []

    def test_a_server_that_forgets_is_warned_of(self, own_server: RedisServer) -> None:
        state = RedisState(own_server.url, hold_timeout_s=5.0)
        with redis.Redis.from_url(own_server.url) as client:
            client.config_set("appendonly", "no")
            client.config_set("maxmemory-policy", "allkeys-lru")
        warnings = " ".join(state.check())
        assert "appendonly yes" in warnings
        assert "maxmemory-policy noeviction" in warnings
        state.close()

    def test_an_account_that_may_not_ask_is_served(
        self, redis_url: str, client: redis.Redis
    ) -> None:
        client.acl_setuser(
            "modest", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"]
        )
        state = RedisState(redis_url.replace("//", "//modest:any@"), hold_timeout_s=5.0)
        grant = acquire(state)
        state.commit(grant, [put("a")])
        assert told(state.changes(SCOPE, seen(grant.changes))) == {"a": b""}
        assert "INFO" in state.check()[0]
        state.close()

    def test_prefixes_share_nothing(self, redis_url: str) -> None:
        one = RedisState(redis_url, hold_timeout_s=5.0, prefix="one")
        two = RedisState(redis_url, hold_timeout_s=5.0, prefix="two")
        one.write(SCOPE, [put("a")])
        acquire(one)
        acquire(two, timeout_s=0.0)
        assert records(two) == {}
        one.close()
        two.close()

    def test_every_key_of_a_scope_lies_on_one_shard(
        self, state: RedisState, client: redis.Redis
    ) -> None:
        grant = acquire(state)
        ask(state, "waits")
        state.write(SCOPE, [put("a", b"", 2e9), put("b"), put("b", None)], once="x")
        state.commit(grant, [])
        keys = client.keys("*")
        assert {b"{rack%201}"} == {key[key.index(b"{") : key.index(b"}") + 1] for key in keys}
        kinds = {key.rpartition(b"}:")[2].partition(b":")[0] for key in keys}
        assert kinds == set(b"meta records changed expiry gone queue patience wake memo".split())

    def test_nothing_is_left_of_those_who_came_and_went(
        self, redis_engine: RedisEngine, client: redis.Redis
    ) -> None:
        state = redis_engine.open()
        known = Seen()
        for _ in range(5):
            grant = acquire(state, known=known)
            known = seen(grant.changes)
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(acquire, state)
                eventually(lambda: redis_engine.waiters() == 1)
                state.release(grant)
                state.release(waiting.result())
        assert len(client.keys("*")) == 1  # meta


def test_a_server_that_cannot_start_says_why(redis_server: Server, tmp_path: Path) -> None:
    twin = RedisServer(tmp_path)
    (tmp_path / "port").write_text(str(redis_server.port))
    with pytest.raises(ServerFailed, match=r"(?s)Redis did not start.*Address already in use"):
        twin.start()
    assert redis_server.is_running
    assert not twin.is_running
