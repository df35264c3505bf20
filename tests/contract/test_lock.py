"""The contract of the lock of every engine of the shared state (``docs/state.md``)."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import msgspec
import pytest

from scheduler_worker.errors import ClusterLockTimeout, StaleFencingToken, StateUnavailable
from scheduler_worker.ports import ABSENT, LockGrant, State
from tests.support.patience import NEVER_S, SOON_S, TooSoon, eventually, growing
from tests.support.threads import Threads, in_thread

from .conftest import SCOPE, soon
from .test_state import NEVER, acquire, guarded, put, records, seen, values


def following(grant: LockGrant) -> LockGrant:
    """The same grant, for the commit after this one."""
    return msgspec.structs.replace(grant, commits=grant.commits + 1)


class TestLock:
    def test_a_grant_includes_the_changes(self, state):
        state.write(SCOPE, [put("a", b"1")])
        first = acquire(state)
        assert (first.changes.reset, values(first.changes)) == (True, {"a": b"1"})
        state.write(SCOPE, [put("b", b"1")])
        state.release(first)
        second = acquire(state, known=seen(first.changes))
        assert (second.changes.reset, values(second.changes)) == (False, {"b": b"1"})

    def test_a_grant_has_its_end(self, engine):
        state = engine.open(hold_timeout_s=7.0)
        before_s = time.monotonic()
        grant = acquire(state)
        assert before_s + 7.0 <= grant.ends_at_s <= time.monotonic() + 7.0

    def test_commit_writes_and_hands_on(self, state):
        grant = acquire(state)
        written = state.commit(grant, [put("a", b"1"), guarded("a", 99)])
        assert written.applied == (True, False)
        assert written.before == grant.changes.version
        following = acquire(state, timeout_s=0.0, known=seen(grant.changes))
        assert values(following.changes) == {"a": b"1"}
        assert following.changes.version == written.version

    def test_a_repeated_commit_returns_the_same(self, state):
        grant = acquire(state)
        first = state.commit(grant, [guarded("a", ABSENT, b"1")])
        state.write(SCOPE, [put("a", b"2")])
        assert state.commit(grant, [guarded("a", ABSENT, b"1")]) == first
        assert records(state) == {"a": b"2"}

    def test_a_lease_can_be_kept_for_another_commit(self, state):
        grant = acquire(state)
        first = state.commit(grant, [put("a")], at=grant.changes.version, keep=True)
        assert first.kept
        assert state.commit(grant, [put("a")], at=grant.changes.version, keep=True)[:2] == first[:2]
        again = msgspec.structs.replace(grant, commits=1)
        second = state.commit(again, [put("b")])
        assert (second.before, second.kept) == (first.version, False)
        assert acquire(state).token > grant.token
        with pytest.raises(StaleFencingToken):
            state.commit(msgspec.structs.replace(grant, commits=2), [put("c")])

    def test_a_lease_is_not_kept_after_a_missed_change(self, state):
        grant = acquire(state)
        state.write(SCOPE, [put("report")])
        assert not state.commit(grant, [put("a")], at=grant.changes.version, keep=True).kept
        assert acquire(state).token > grant.token

    def test_a_lease_is_not_kept_while_another_waits(self, engine):
        state, other = engine.open(), engine.open()
        grant = acquire(state)
        waiting = in_thread(acquire, other)
        eventually(lambda: engine.waiters() == 1)
        assert not state.commit(grant, [put("a")], at=grant.changes.version, keep=True).kept
        assert waiting.result(SOON_S).token > grant.token

    def test_a_lock_that_nobody_takes_is_taken_up_again_by_a_commit(self, state):
        grant = acquire(state)
        first = state.commit(grant, [put("a")], at=grant.changes.version)
        assert (first.kept, first.is_free) == (False, True)
        again = following(grant)
        second = state.commit(again, [put("b")], at=first.version, keep=True)
        assert (second.before, second.kept) == (first.version, True)
        assert state.commit(again, [put("b")], at=first.version, keep=True)[:2] == second[:2]
        with pytest.raises(ClusterLockTimeout):
            acquire(state, timeout_s=0.0)
        assert state.commit(following(again), [put("c")], at=second.version).is_free
        assert acquire(state).token > grant.token

    @pytest.mark.parametrize("what", ["a write", "a grant", "no version", "an expired record"])
    def test_a_free_lock_is_not_taken_up_after(self, state, what):
        now_s = state.changes(SCOPE, NEVER).now_s
        if what == "an expired record":
            state.write(SCOPE, [put("fleeting", expires_at_s=now_s + 0.05)])
        grant = acquire(state)
        at: int | None = state.commit(grant, [put("a")]).version
        if what == "a write":
            state.write(SCOPE, [put("report")])
        elif what == "a grant":
            state.release(acquire(state))
        elif what == "no version":
            at = None
        else:
            eventually(lambda: state.changes("other", NEVER).now_s > now_s + 0.05)
        with pytest.raises(StaleFencingToken, match="nothing was written"):
            state.commit(following(grant), [put("b")], at=at)
        assert "b" not in records(state)
        assert acquire(state, timeout_s=0.0).token > grant.token

    def test_a_free_lock_is_not_taken_up_before_one_that_waits(self, engine):
        state, other = engine.open(), engine.open()
        grant = acquire(state)
        waiting = in_thread(acquire, other)
        eventually(lambda: engine.waiters() == 1)
        written = state.commit(grant, [put("a")], at=grant.changes.version)
        assert (written.kept, written.is_free) == (False, False)
        with pytest.raises(StaleFencingToken):
            state.commit(following(grant), [put("b")], at=written.version)
        assert waiting.result(SOON_S).token > grant.token

    def test_a_free_lock_is_taken_up_until_the_end_of_the_lease(self, engine):
        state = engine.open(hold_timeout_s=0.05)
        grant = acquire(state)
        ends_s = grant.changes.now_s + 0.05
        written = state.commit(grant, [put("a")], at=grant.changes.version)
        eventually(lambda: state.changes(SCOPE, NEVER).now_s > ends_s)
        with pytest.raises(StaleFencingToken):
            state.commit(following(grant), [put("b")], at=written.version)

    def test_a_held_lock_is_not_granted_in_time(self, engine):
        holder, other = engine.open(), engine.open()
        acquire(holder)
        for timeout_s in (0.0, 0.1):
            with pytest.raises(ClusterLockTimeout, match="rack 1"):
                acquire(other, timeout_s=timeout_s)
            assert engine.waiters() == 0

    def test_a_timeout_does_not_hold_up_those_behind(self, engine):
        holder, impatient, patient = engine.open(), engine.open(), engine.open()

        def scene(timeout_s: float) -> tuple[LockGrant, Future[LockGrant]]:
            grant = acquire(holder)
            short = pool.submit(acquire, impatient, timeout_s)
            eventually(lambda: engine.waiters() == 1 or short.done())
            long = pool.submit(acquire, patient)
            eventually(lambda: engine.waiters() == 2 or short.done())
            if short.done():
                holder.release(grant)
                patient.release(long.result())
                raise TooSoon
            with pytest.raises(ClusterLockTimeout):
                short.result()
            return grant, long

        with Threads(2) as pool:
            grant, long = growing(scene, TooSoon)
            holder.release(grant)
            assert long.result().token > grant.token

    def test_clusters_do_not_wait_for_each_other(self, state):
        acquire(state)
        assert state.acquire("rack 2", timeout_s=0.0, seen=NEVER).scope == "rack 2"

    @pytest.mark.usefixtures("nobody_looks_again")
    @pytest.mark.parametrize("end", ["commit", "release"])
    def test_the_end_of_a_lease_wakes_a_waiter(self, engine, end):
        holder, other = engine.open(), engine.open()
        grant = acquire(holder)
        waiting = in_thread(acquire, other, NEVER_S)
        eventually(lambda: engine.waiters() == 1)
        holder.commit(grant, [put("a")]) if end == "commit" else holder.release(grant)
        granted = soon(engine, waiting)
        assert granted.waited_s > 0
        assert values(granted.changes) == ({"a": b""} if end == "commit" else {})

    def test_a_stale_commit_is_refused_and_nothing_is_written(self, engine):
        slow = engine.open(hold_timeout_s=0.3)
        stale = acquire(slow)
        other = engine.open()
        fresh = acquire(other)
        assert time.monotonic() >= stale.ends_at_s
        assert (fresh.token > stale.token, fresh.token.epoch) == (True, stale.token.epoch)
        before = other.changes(SCOPE, NEVER)
        with pytest.raises(StaleFencingToken, match="nothing was written"):
            slow.commit(stale, [put("a", b"stale")])
        assert other.changes(SCOPE, seen(before)).entries == []
        slow.release(stale)  # it has ended already
        assert other.commit(fresh, [put("a", b"fresh")]).applied == (True,)

    def test_an_expired_lease_is_stale_even_without_a_successor(self, engine):
        state = engine.open(hold_timeout_s=0.05)
        grant = acquire(state)
        ends_s = grant.changes.now_s + 0.05
        eventually(lambda: state.changes(SCOPE, NEVER).now_s > ends_s)
        with pytest.raises(StaleFencingToken):
            state.commit(grant, [put("a")])
        assert records(state) == {}

    @pytest.mark.parametrize("end", ["commit", "release"])
    def test_releasing_an_ended_lease_is_harmless(self, engine, end):
        state = engine.open()
        first = acquire(state)
        state.commit(first, []) if end == "commit" else state.release(first)
        second = acquire(state)
        state.release(first)
        with pytest.raises(ClusterLockTimeout):
            acquire(engine.open(), timeout_s=0.0)
        state.commit(second, [])

    def test_a_released_lease_cannot_commit(self, state):
        grant = acquire(state)
        state.release(grant)
        with pytest.raises(StaleFencingToken):
            state.commit(grant, [put("a")])

    def test_nothing_is_lost_under_contention(self, engine):
        states = [engine.open() for _ in range(4)]
        rounds, threads = 25, 8
        tokens: list[int] = []
        start = threading.Barrier(threads)

        def count(state: State) -> None:
            known, value = NEVER, 0
            start.wait()
            for _ in range(rounds):
                grant = acquire(state, known=known)
                value = int(values(grant.changes).get("counter") or value)
                known = seen(grant.changes)
                tokens.append(grant.token.number)
                state.commit(grant, [put("counter", b"%d" % (value + 1))])

        with Threads(threads) as pool:
            list(pool.map(count, 2 * states))
        assert records(states[0]) == {"counter": b"%d" % (rounds * threads)}
        assert tokens == sorted(set(tokens))
        assert engine.waiters() == 0


class TestClosing:
    @pytest.mark.usefixtures("nobody_looks_again")
    def test_closing_wakes_waiters(self, engine):
        holder, other = engine.open(), engine.open()
        acquire(holder)
        waiting = in_thread(acquire, other, NEVER_S)
        eventually(lambda: engine.waiters() == 1)
        other.close()
        with pytest.raises(StateUnavailable):
            soon(engine, waiting)

    def test_a_closed_state_refuses_everything(self, state):
        state.ping()
        state.close()
        calls: list[Callable[[], object]] = [
            state.ping,
            lambda: acquire(state),
            lambda: state.changes(SCOPE, NEVER),
            lambda: state.write(SCOPE, []),
        ]
        for call in calls:
            with pytest.raises(StateUnavailable):
                call()
        state.close()


class TestPriorityBoost:
    def test_a_boosted_request_overtakes_those_that_came_shortly_before(self, state, engine, pool):
        grant, served = acquire(state), []

        def wait(name: str, priority_boost_s: float) -> None:
            mine = state.acquire(
                SCOPE, timeout_s=SOON_S, seen=NEVER, priority_boost_s=priority_boost_s
            )
            served.append(name)
            state.release(mine)

        waiting = []
        for at, (name, priority_boost_s) in enumerate(
            [("first", 0.0), ("second", 0.0), ("late", 60.0), ("later", 30.0)], 1
        ):
            waiting.append(pool.submit(wait, name, priority_boost_s))
            eventually(lambda at=at: engine.waiters() == at)
        state.release(grant)
        for each in waiting:
            each.result(SOON_S)
        assert served == ["late", "later", "first", "second"]
