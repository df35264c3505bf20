"""Faults that only an engine for many processes meets: dead peers, lost replies, crashes."""

from typing import Any

import pytest
import redis

from scheduler_worker.backends.redis.engine import RedisState, _known, _packed
from scheduler_worker.errors import StaleFencingToken, StateUnavailable
from scheduler_worker.ports import ABSENT, LockGrant, Seen
from tests.support.patience import NEVER_S, SOON_S, eventually
from tests.support.proxy import Proxy
from tests.support.servers import LOOPBACK, RedisServer, free_port
from tests.support.threads import Threads, in_thread

from .conftest import SCOPE, soon
from .test_state import LONG_AGO_S, NEVER, acquire, guarded, put, records, seen, values

MICRO = 1_000_000


@pytest.fixture
def state(redis_engine) -> RedisState:
    return redis_engine.open()


@pytest.fixture
def own_server(started, tmp_path) -> RedisServer:
    return started(RedisServer(tmp_path, appendfsync="always"))


def release_script(state: RedisState, grant: LockGrant) -> tuple[Any, ...]:
    keys, args = state._parts(SCOPE, (grant.owner,))
    state._run("leave", SCOPE, ("nobody",))  # loads the script into the server
    return (state._server._scripts["leave"].sha, len(keys), *keys, *args)


def meta(state: RedisState) -> str:
    return f"{state._base(SCOPE)}meta"


def ask(state: RedisState, owner: str, remaining_s: float = 10.0, hold_s: float = 20.0) -> Any:
    """One step of ``acquire``, of a process that dies right afterwards."""
    args = (owner, int(hold_s * MICRO), int(remaining_s * MICRO), "", 0, 1000, 0)
    return state._run("acquire", SCOPE, args).value


def watch(state: RedisState, owner: str, known: Seen, remaining_s: float = 10.0) -> Any:
    """One step of ``await_change``, of a process that dies right afterwards."""
    args = (owner, int(remaining_s * MICRO), *_known(known))
    return state._run("watch", SCOPE, args).value


class TestDeadPeers:
    def test_a_dead_waiter_costs_an_offer_and_not_a_lease(self, redis_engine):
        state = redis_engine.open(offer_s=0.2)
        grant = acquire(state)
        ask(state, "dead", remaining_s=NEVER_S)
        waiting = in_thread(acquire, state)
        eventually(lambda: redis_engine.waiters() == 2)
        released_s = state.changes(SCOPE, NEVER).now_s
        state.release(grant)
        assert waiting.result().changes.now_s >= released_s + 0.2

    def test_an_impatient_waiter_costs_nothing(self, redis_engine):
        state = redis_engine.open()
        grant = acquire(state)
        ask(state, "gave up", remaining_s=0.0)
        waiting = in_thread(acquire, state)
        eventually(lambda: redis_engine.waiters() == 2)
        state.release(grant)
        assert waiting.result().token > grant.token

    def test_a_waiter_that_leaves_passes_its_offer_on(self, redis_engine):
        state = redis_engine.open()
        grant = acquire(state)
        ask(state, "first")
        ask(state, "second")
        state.release(grant)
        state._run("leave", SCOPE, ("first",))
        assert ask(state, "second")[0] == 1

    def test_a_waiter_calls_again_after_an_offer(self, redis_engine):
        state = redis_engine.open(offer_s=0.2)
        acquire(state)
        assert ask(state, "waits") == [0, b"200000"]

    def test_an_unused_nudge_is_deleted(self, state, redis_client):
        grant = acquire(state)
        ask(state, "waits")
        state.release(grant)
        assert len(redis_client.keys("*:wake:*")) == 1
        assert ask(state, "waits")[0] == 1
        assert redis_client.keys("*:wake:*") == []

    def test_a_nudge_that_is_lost_costs_a_second_at_most(self, redis_engine, redis_client):
        state = redis_engine.open()
        grant = acquire(state)
        waiting = in_thread(acquire, state, NEVER_S)
        eventually(lambda: redis_client.info("clients")["blocked_clients"] == 1)
        with redis_client.pipeline() as pipeline:  # waiters miss every nudge
            pipeline.evalsha(*release_script(state, grant)).delete(*state._waiting).execute()
        assert soon(redis_engine, waiting).token > grant.token

    def test_a_dead_watcher_is_removed_at_its_timeout(self, state, redis_engine):
        known = seen(state.changes(SCOPE, NEVER))
        watch(state, "dead", known, remaining_s=0.05)
        assert redis_engine.watchers() == 1
        eventually(lambda: watch(state, "lives", known) and redis_engine.watchers() == 1)

    def test_a_watcher_that_timed_out_leaves_nothing_behind(self, state, redis_engine):
        state.write(SCOPE, [put("a")])
        known = seen(state.changes(SCOPE, NEVER))
        assert not state.await_change(SCOPE, known, timeout_s=0.1)
        assert redis_engine.watchers() == 0

    def test_a_watcher_that_is_closed_leaves_nothing_behind(self, state, redis_engine):
        other = redis_engine.open()
        known = seen(other.changes(SCOPE, NEVER))
        watching = in_thread(other.await_change, SCOPE, known, timeout_s=NEVER_S)
        eventually(lambda: redis_engine.watchers() == 1)
        other.close()
        with pytest.raises(StateUnavailable):
            watching.result()
        assert redis_engine.watchers() == 0

    def test_watchers_are_nudged_once(self, state, redis_client):
        known = seen(state.changes(SCOPE, NEVER))
        watch(state, "one", known)
        watch(state, "two", known)
        for _ in range(3):
            state.write(SCOPE, [put("a")])
        for owner in ("one", "two"):
            assert redis_client.llen(f"{state._base(SCOPE)}wake:{owner}") == 1
        assert not redis_client.exists(f"{state._base(SCOPE)}watchers")


class TestLostReplies:
    """redis-py may run a script again when its reply was lost."""

    def test_acquire_returns_the_same_token(self, state):
        assert ask(state, "me")[:2] == ask(state, "me")[:2]

    def test_a_place_in_the_queue_is_kept(self, state):
        grant = acquire(state)
        for owner in ("first", "second", "first"):
            ask(state, owner)
        state.release(grant)
        assert ask(state, "second")[0] == 0
        assert ask(state, "first")[0] == 1

    def test_a_write_returns_the_same(self, state):
        transactions = [guarded("a", ABSENT), guarded("b", 99)]
        args = ("call", 60_000, *_packed(transactions))
        first = state._run("write", SCOPE, args, memo="call:call").value
        assert first.endswith(b" 10")
        assert state._run("write", SCOPE, args, memo="call:call").value == first

    def test_a_wait_for_a_change_is_entered_once(self, state, redis_engine, redis_client):
        known = seen(state.changes(SCOPE, NEVER))
        assert watch(state, "me", known)[0] == watch(state, "me", known)[0] == 0
        assert redis_engine.watchers() == 1
        state.write(SCOPE, [put("a")])
        assert redis_client.llen(f"{state._base(SCOPE)}wake:me") == 1

    def test_the_holder_is_found_when_the_reply_to_its_acquire_was_lost(
        self, redis_server, state, connect
    ):
        with Proxy(redis_server.port) as proxy, Threads(1) as pool:
            url = f"redis://{LOOPBACK}:{proxy.port}/0"
            behind = connect(url, prefix=state._base.args[0])
            # Afterwards the thread has its connection, and the server has the script.
            behind.release(pool.submit(acquire, behind).result())
            with proxy.stalled("to_client"):
                granting = pool.submit(acquire, behind)
                eventually(lambda: state._server.command("k", "HGET", meta(state), "holder"))
                proxy.cut()
            grant = granting.result()
            assert behind.commit(grant, [put("a")]).applied == (True,)


class TestAnotherLife:
    def test_a_lease_of_another_epoch_is_refused(self, state, redis_client):
        grant = acquire(state)
        redis_client.hset(meta(state), "epoch", "another")
        with pytest.raises(StaleFencingToken):
            state.commit(grant, [put("b")])

    def test_the_same_token_of_another_holder_is_refused(self, state, redis_client):
        grant = acquire(state)
        redis_client.hset(meta(state), "holder", "got the same number after a failover")
        with pytest.raises(StaleFencingToken):
            state.commit(grant, [put("b")])
        state.release(grant)
        assert redis_client.hget(meta(state), "holder") == b"got the same number after a failover"

    def test_versions_and_tokens_of_the_new_life_are_larger(self, state, redis_client):
        old = state.write(SCOPE, [put("a")]).version
        token = acquire(state).token
        known = seen(state.changes(SCOPE, NEVER))
        redis_client.flushall()
        assert state.changes(SCOPE, known).reset
        state.write(SCOPE, [put("a")])
        assert state.write(SCOPE, [put("b"), guarded("a", old)]).applied == (True, False)
        new = acquire(state)
        assert new.token.number > token.number
        assert new.token.epoch != token.epoch
        assert values(state.changes(SCOPE, known)) == {"a": b"", "b": b""}

    @pytest.mark.parametrize("somebody_noticed", [False, True])
    def test_a_restart_with_its_file_keeps_records(self, own_server, somebody_noticed, connect):
        state = connect(own_server.url)
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
        assert again.reset, "the new process may have lost the last writes"
        assert state.await_change(SCOPE, known, timeout_s=0.0)
        assert values(again) == {"h:1": b"host", "p:1": b"promise"}
        assert again.version == version
        assert not state.changes(SCOPE, seen(again)).reset
        assert state.commit(held, [guarded("h:1", version, b"newer")]).applied == (True,)

    def test_a_waiter_outlives_a_restart(self, own_server, connect):
        state = connect(own_server.url)
        grant = acquire(state)
        queue = f"{state._base(SCOPE)}queue"
        with Threads(1) as pool, redis.Redis.from_url(own_server.url) as client:
            waiting = pool.submit(acquire, state)
            eventually(lambda: client.zcard(queue) == 1)
            own_server.restart()
            state.release(grant)
            assert waiting.result().token > grant.token


class TestUnreachable:
    def test_an_unreachable_server_fails_within_the_bound(self, connect):
        port = free_port()
        url = f"redis://somebody:secret@127.0.0.1:{port}/0"
        state = connect(url, retry_for_s=0.3)
        with pytest.raises(StateUnavailable, match=f"127.0.0.1:{port}") as caught:
            acquire(state, timeout_s=NEVER_S)
        assert "secret" not in str(caught.value)
        with pytest.raises(StateUnavailable):
            state.ping()

    def test_a_short_absence_is_not_noticed(self, own_server, connect):
        state = connect(own_server.url, retry_for_s=SOON_S)
        state.ping()
        own_server.kill()
        written = in_thread(state.write, SCOPE, [put("a")])
        own_server.start()
        assert written.result().applied == (True,)


class TestPages:
    def test_a_large_scope_is_read_in_pages(self, redis_engine):
        state = redis_engine.open(max_changes=100)
        state.write(SCOPE, [put(f"k{n}", b"%d" % n) for n in range(3000)])
        state.write(SCOPE, [put(f"k{n}", None) for n in range(50)])
        everything = state.changes(SCOPE, NEVER)
        assert everything.reset
        assert values(everything) == {f"k{n}": b"%d" % n for n in range(50, 3000)}
        assert not state.changes(SCOPE, seen(everything)).entries
        versions = {entry.version for entry in everything.entries}
        assert len(versions) == 1
        assert versions < {everything.version, *versions}

    def test_the_changes_of_a_grant_are_read_in_pages(self, redis_engine):
        state = redis_engine.open(max_changes=10)
        known = seen(state.changes(SCOPE, NEVER))
        state.write(SCOPE, [put(f"k{n}") for n in range(11)])
        grant = acquire(state, known=known)
        assert grant.changes.reset
        assert len(values(grant.changes)) == 11

    def test_writes_during_a_paged_read_are_not_missed(self, redis_engine, monkeypatch):
        state = redis_engine.open(max_changes=10)
        state.write(SCOPE, [put(f"k{n}", b"old") for n in range(20)])
        pages = state._pages

        def read_and_write(scope: str) -> Any:
            read = list(pages(scope))
            state.write(scope, [put("k0", b"new"), put("k1", None), put("k20", b"new")])
            return read

        monkeypatch.setattr(state, "_pages", read_and_write)
        changes = state.changes(SCOPE, NEVER)
        expected = {f"k{n}": b"old" for n in range(2, 20)} | {"k0": b"new", "k20": b"new"}
        assert values(changes) == expected
        assert changes.version == max(entry.version for entry in changes.entries)


class TestOperators:
    def test_an_account_without_info_is_served(self, redis_url, redis_client, connect):
        redis_client.acl_setuser(
            "modest", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"]
        )
        state = connect(redis_url.replace("//", "//modest:any@"))
        grant = acquire(state)
        state.commit(grant, [put("a")])
        assert values(state.changes(SCOPE, seen(grant.changes))) == {"a": b""}
        assert "INFO" in state.check()[0]

    def test_the_documented_account_suffices(self, documented_account, redis_client, connect):
        state = connect(documented_account, max_changes=10, max_tombstones=2)
        state.ping()
        assert state.check() == []
        state.write(SCOPE, [put(f"k{n}") for n in range(30)], once="x")
        state.write(SCOPE, [put("k0"), *(put(f"k{n}", None) for n in range(5))])
        state.write(SCOPE, [put("p", b"", LONG_AGO_S), put("q", b"", 2e9)])
        grant = acquire(state)
        assert len(values(grant.changes)) == 26
        with Threads(2) as pool:
            waiting = pool.submit(acquire, state)
            eventually(lambda: redis_client.info("clients")["blocked_clients"] == 1)
            state.commit(grant, [put("q")])
            state.release(waiting.result())
            known = seen(state.changes(SCOPE, NEVER))
            watching = pool.submit(state.await_change, SCOPE, known, timeout_s=NEVER_S)
            eventually(lambda: redis_client.info("clients")["blocked_clients"] == 1)
            state.close()
            with pytest.raises(StateUnavailable, match="closed"):
                watching.result()

    def test_prefixes_share_nothing(self, redis_url, connect):
        one = connect(redis_url, prefix="one")
        two = connect(redis_url, prefix="two")
        one.write(SCOPE, [put("a")])
        acquire(one)
        acquire(two, timeout_s=0.0)
        assert records(two) == {}

    def test_every_key_of_a_scope_lies_on_one_shard(self, state, redis_client):
        grant = acquire(state)
        ask(state, "waits")
        state.write(SCOPE, [put("a", b"", 2e9), put("b"), put("b", None)], once="x")
        state.commit(grant, [])
        watch(state, "watches", seen(state.changes(SCOPE, NEVER)))
        keys: list[bytes] = redis_client.keys("*")
        assert {b"{rack%201}"} == {key[key.index(b"{") : key.index(b"}") + 1] for key in keys}
        kinds = {key.rpartition(b"}:")[2].partition(b":")[0] for key in keys}
        assert kinds == {
            *(b"meta", b"records", b"changed", b"expiry", b"gone"),
            *(b"queue", b"patience", b"watchers", b"wake", b"memo"),
        }

    def test_waiters_leave_no_keys_behind(self, redis_engine, redis_client):
        state = redis_engine.open()
        known = Seen()
        for _ in range(5):
            grant = acquire(state, known=known)
            known = seen(grant.changes)
            waiting = in_thread(acquire, state)
            eventually(lambda: redis_engine.waiters() == 1)
            state.release(grant)
            state.release(waiting.result())
        assert len(redis_client.keys("*")) == 1  # meta


def test_a_server_without_an_append_only_file_may_lose_what_it_has(redis_engine, redis_client):
    state = redis_engine.open()
    assert state.loses() is None
    redis_client.config_set("appendonly", "no")
    try:
        assert "keeps no append-only file" in (state.loses() or "")
    finally:
        redis_client.config_set("appendonly", "yes")
