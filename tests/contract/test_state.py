"""What every engine of the shared state promises (``docs/state.md``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from scheduler_worker.errors import ClusterLockTimeout, StaleFencingToken, StateUnavailable
from scheduler_worker.ports import (
    ABSENT,
    Changes,
    Grant,
    Guard,
    Put,
    Seen,
    State,
    Transaction,
)

from .conftest import SCOPE, Engine, eventually

PATIENCE_S = 20.0
NEVER = Seen()
LONG_AGO_S = 1.0

WOKEN_S = 0.8
"""A waiter that is not woken looks again after a second, when offers are as long as here."""


def put(key: str, value: bytes | None = b"", expires_at_s: float | None = None) -> Transaction:
    return Transaction([Put(key, value, expires_at_s)])


def guarded(key: str, version: int, value: bytes | None = b"") -> Transaction:
    return Transaction([Put(key, value)], [Guard(key, version)])


def seen(changes: Changes) -> Seen:
    return Seen(changes.epoch, changes.version)


def told(changes: Changes) -> dict[str, bytes | None]:
    assert len({entry.key for entry in changes.entries}) == len(changes.entries)
    return {entry.key: entry.value for entry in changes.entries}


def records(state: State, scope: str = SCOPE) -> dict[str, bytes | None]:
    return told(state.changes(scope, NEVER))


def acquire(state: State, timeout_s: float = PATIENCE_S, known: Seen = NEVER) -> Grant:
    return state.acquire(SCOPE, timeout_s=timeout_s, seen=known)


@pytest.fixture
def state(engine: Engine) -> State:
    return engine.open()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


class TestRecords:
    def test_what_is_written_is_read(self, state: State) -> None:
        every_byte = bytes(range(256))
        state.write(SCOPE, [Transaction([Put("h:a", every_byte), Put("h:ü", b"")])])
        assert records(state) == {"h:a": every_byte, "h:ü": b""}

    def test_scopes_share_nothing(self, state: State) -> None:
        for scope in ("a", "b", "a}", "{a}", "a:records", "@global"):
            state.write(scope, [put("key", scope.encode())])
        assert records(state, "a") == {"key": b"a"}
        assert records(state, "a}") == {"key": b"a}"}
        assert records(state, "unknown") == {}

    def test_a_write_answers_the_versions_around_it(self, state: State) -> None:
        before = state.changes(SCOPE, NEVER).version
        first = state.write(SCOPE, [put("a"), put("b")])
        second = state.write(SCOPE, [put("c")])
        assert (first.applied, second.applied) == ((True, True), (True,))
        assert first.before == before < first.version == second.before < second.version
        assert state.changes(SCOPE, NEVER).version == second.version

    def test_a_write_that_ended_promises_does_not_vouch_for_what_was_before(
        self, state: State
    ) -> None:
        first = state.write(SCOPE, [put("gone", expires_at_s=LONG_AGO_S)])
        second = state.write(SCOPE, [put("a")])
        assert second.before != first.version
        assert records(state) == {"a": b""}

    def test_records_of_one_write_share_its_version(self, state: State) -> None:
        written = state.write(SCOPE, [put("a"), put("b")])
        versions = {entry.version for entry in state.changes(SCOPE, NEVER).entries}
        assert versions == {written.version}

    def test_a_write_that_changes_nothing_leaves_the_version(self, state: State) -> None:
        before = state.write(SCOPE, [put("a")])
        nothing = state.write(
            SCOPE, [put("never was", None), guarded("a", ABSENT), Transaction([])]
        )
        assert nothing.applied == (True, False, True)
        assert nothing.version == before.version

    def test_many_records_at_once(self, state: State) -> None:
        state.write(SCOPE, [Transaction([Put(f"k{n}", b"%d" % n) for n in range(2500)])])
        assert records(state) == {f"k{n}": b"%d" % n for n in range(2500)}


class TestGuards:
    def test_the_version_must_be_the_present_one(self, state: State) -> None:
        first = state.write(SCOPE, [put("a", b"1")])
        second = state.write(SCOPE, [guarded("a", first.version, b"2")])
        late = state.write(SCOPE, [guarded("a", first.version, b"3")])
        assert (second.applied, late.applied) == ((True,), (False,))
        assert records(state) == {"a": b"2"}

    def test_absent_means_never_written_or_deleted(self, state: State) -> None:
        assert state.write(SCOPE, [guarded("a", ABSENT)]).applied == (True,)
        assert state.write(SCOPE, [guarded("a", ABSENT)]).applied == (False,)
        deleted = state.write(SCOPE, [put("a", None)])
        assert state.write(SCOPE, [guarded("a", deleted.version)]).applied == (False,)
        assert state.write(SCOPE, [guarded("a", ABSENT)]).applied == (True,)

    def test_a_transaction_is_applied_whole_or_not_at_all(self, state: State) -> None:
        state.write(SCOPE, [put("taken")])
        half = Transaction([Put("a", b""), Put("b", b"")], [Guard("free", 0), Guard("taken", 0)])
        assert state.write(SCOPE, [half, put("c")]).applied == (False, True)
        assert records(state).keys() == {"taken", "c"}

    def test_a_later_transaction_sees_an_earlier_one(self, state: State) -> None:
        written = state.write(SCOPE, [guarded("a", ABSENT, b"1"), guarded("a", ABSENT, b"2")])
        assert written.applied == (True, False)
        assert records(state) == {"a": b"1"}


class TestOnce:
    def test_a_repetition_changes_nothing_and_answers_the_same(self, state: State) -> None:
        first = state.write(SCOPE, [guarded("a", ABSENT, b"1")], once="report 7")
        state.write(SCOPE, [put("a", b"2")])
        again = state.write(SCOPE, [guarded("a", ABSENT, b"1")], once="report 7")
        assert (again.version, again.applied) == (first.version, first.applied)
        assert again.before == -1
        assert records(state) == {"a": b"2"}

    def test_what_was_refused_is_tried_anew(self, state: State) -> None:
        state.write(SCOPE, [put("a")])
        assert state.write(SCOPE, [guarded("a", ABSENT)], once="x").applied == (False,)
        state.write(SCOPE, [put("a", None)])
        assert state.write(SCOPE, [guarded("a", ABSENT)], once="x").applied == (True,)

    def test_names_belong_to_a_scope(self, state: State) -> None:
        for scope in ("a", "b"):
            state.write(scope, [put("k")], once="same")
        assert records(state, "a") == records(state, "b") == {"k": b""}


class TestChanges:
    def test_a_first_look_sees_everything(self, state: State) -> None:
        state.write(SCOPE, [put("a"), put("b"), put("c")])
        state.write(SCOPE, [put("b", None)])
        first = state.changes(SCOPE, NEVER)
        assert first.reset
        assert told(first).keys() == {"a", "c"}

    def test_a_second_look_sees_what_changed(self, state: State) -> None:
        state.write(SCOPE, [put("a", b"1"), put("b", b"1"), put("c", b"1")])
        known = seen(state.changes(SCOPE, NEVER))
        state.write(SCOPE, [put("b", b"2")])
        state.write(SCOPE, [put("c", None), put("d", b"2")])
        state.write(SCOPE, [put("b", b"3")])
        second = state.changes(SCOPE, known)
        assert not second.reset
        assert told(second) == {"b": b"3", "c": None, "d": b"2"}
        third = state.changes(SCOPE, seen(second))
        assert (third.entries, third.version, third.reset) == ([], second.version, False)

    def test_an_empty_scope_is_known_after_a_look(self, state: State) -> None:
        first = state.changes(SCOPE, NEVER)
        assert not state.changes(SCOPE, seen(first)).reset
        state.write(SCOPE, [put("a")])
        assert told(state.changes(SCOPE, seen(first))) == {"a": b""}

    @pytest.mark.parametrize("known", [Seen("another life", 0), Seen("another life", 2**52)])
    def test_another_epoch_starts_anew(self, state: State, known: Seen) -> None:
        state.write(SCOPE, [put("a")])
        assert state.changes(SCOPE, known).reset
        assert told(state.changes(SCOPE, known)) == {"a": b""}

    def test_a_version_from_the_future_starts_anew(self, state: State) -> None:
        state.write(SCOPE, [put("a")])
        now = state.changes(SCOPE, NEVER)
        future = Seen(now.epoch, now.version + 1)
        assert state.changes(SCOPE, future).reset

    def test_who_missed_forgotten_tombstones_starts_anew(self, engine: Engine) -> None:
        state = engine.open(max_tombstones=5)
        state.write(SCOPE, [put(f"k{n}") for n in range(8)])
        early = seen(state.changes(SCOPE, NEVER))
        state.write(SCOPE, [put("k0", None)])
        state.write(SCOPE, [put("k0", b"lives again")])
        for n in range(1, 5):
            state.write(SCOPE, [put(f"k{n}", None)])
        late = seen(state.changes(SCOPE, early))
        assert not state.changes(SCOPE, early).reset
        state.write(SCOPE, [put("k5", None)])
        state.write(SCOPE, [put("k6", None)])

        assert told(state.changes(SCOPE, early)) == {"k0": b"lives again", "k7": b""}
        assert state.changes(SCOPE, early).reset
        assert told(state.changes(SCOPE, late)) == {"k5": None, "k6": None}
        assert state.write(SCOPE, [guarded("k1", ABSENT)]).applied == (True,)

    def test_the_store_tells_its_time(self, state: State) -> None:
        assert state.changes(SCOPE, NEVER).now_s == pytest.approx(time.time(), abs=5.0)


class TestExpiry:
    def test_an_expired_promise_ends_and_others_stay(self, state: State) -> None:
        now_s = state.changes(SCOPE, NEVER).now_s
        state.write(SCOPE, [put("p:1", b"", now_s - 1), put("p:2", b"", now_s + 3600)])
        assert records(state).keys() == {"p:2"}
        assert state.write(SCOPE, [guarded("p:1", ABSENT)]).applied == (True,)

    def test_the_end_of_a_promise_is_a_change(self, state: State) -> None:
        state.write(SCOPE, [put("p:1")])
        known = seen(state.changes(SCOPE, NEVER))
        state.write(SCOPE, [put("p:1", b"", LONG_AGO_S)])
        assert told(state.changes(SCOPE, known)) == {"p:1": None}

    def test_a_holder_is_told_of_it_too(self, state: State) -> None:
        state.write(SCOPE, [put("p:1", b"", LONG_AGO_S)])
        assert told(acquire(state).changes) == {}

    def test_a_promise_may_be_prolonged_or_made_to_stay(self, state: State) -> None:
        far_s = time.time() + 3600
        state.write(
            SCOPE,
            [put(key, b"1", LONG_AGO_S) for key in ("stays", "longer", "deleted")]
            + [put("stays", b"2"), put("longer", b"2", far_s), put("deleted", None)],
        )
        state.write(SCOPE, [guarded("deleted", ABSENT, b"again")])
        assert records(state) == {"stays": b"2", "longer": b"2", "deleted": b"again"}

    def test_more_than_a_hundred_end_in_the_end(self, state: State) -> None:
        state.write(SCOPE, [put(f"p:{n}", b"", LONG_AGO_S) for n in range(250)])
        eventually(lambda: not records(state))


class TestLock:
    def test_a_grant_tells_what_changed(self, state: State) -> None:
        state.write(SCOPE, [put("a", b"1")])
        first = acquire(state)
        assert (first.changes.reset, told(first.changes)) == (True, {"a": b"1"})
        state.write(SCOPE, [put("b", b"1")])
        state.release(first)
        second = acquire(state, known=seen(first.changes))
        assert (second.changes.reset, told(second.changes)) == (False, {"b": b"1"})

    def test_tokens_grow(self, state: State) -> None:
        tokens = []
        for _ in range(20):
            grant = acquire(state)
            tokens.append(grant.token)
            state.release(grant)
        assert tokens == sorted(set(tokens))
        assert len({token.epoch for token in tokens}) == 1

    def test_a_grant_says_when_it_ends(self, engine: Engine) -> None:
        state = engine.open(hold_timeout_s=7.0)
        before_s = time.monotonic()
        grant = acquire(state)
        assert before_s + 7.0 <= grant.ends_at_s <= time.monotonic() + 7.0

    def test_commit_writes_and_hands_on(self, state: State) -> None:
        grant = acquire(state)
        written = state.commit(grant, [put("a", b"1"), guarded("a", 99)])
        assert written.applied == (True, False)
        assert written.before == grant.changes.version
        following = acquire(state, timeout_s=0.0, known=seen(grant.changes))
        assert told(following.changes) == {"a": b"1"}
        assert following.changes.version == written.version

    def test_committing_twice_answers_the_same(self, state: State) -> None:
        grant = acquire(state)
        first = state.commit(grant, [guarded("a", ABSENT, b"1")])
        state.write(SCOPE, [put("a", b"2")])
        assert state.commit(grant, [guarded("a", ABSENT, b"1")]) == first
        assert records(state) == {"a": b"2"}

    def test_a_hold_can_be_kept_for_another_commit(self, state: State) -> None:
        grant = acquire(state)
        first = state.commit(grant, [put("a")], keep_at=grant.changes.version)
        assert first.kept
        assert state.commit(grant, [put("a")], keep_at=grant.changes.version)[:2] == first[:2]
        again = msgspec.structs.replace(grant, turn=1)
        second = state.commit(again, [put("b")])
        assert (second.before, second.kept) == (first.version, False)
        assert acquire(state).token > grant.token
        with pytest.raises(StaleFencingToken):
            state.commit(msgspec.structs.replace(grant, turn=2), [put("c")])

    def test_a_hold_is_not_kept_by_who_missed_a_change(self, state: State) -> None:
        grant = acquire(state)
        state.write(SCOPE, [put("report")])
        assert not state.commit(grant, [put("a")], keep_at=grant.changes.version).kept
        assert acquire(state).token > grant.token

    def test_a_hold_is_not_kept_while_somebody_waits(self, engine: Engine) -> None:
        state, other = engine.open(), engine.open()
        grant = acquire(state)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(acquire, other)
            eventually(lambda: engine.waiters() == 1)
            assert not state.commit(grant, [put("a")], keep_at=grant.changes.version).kept
            assert waiting.result(PATIENCE_S).token > grant.token

    def test_a_held_lock_is_not_granted_in_time(self, engine: Engine) -> None:
        holder, other = engine.open(), engine.open()
        acquire(holder)
        for timeout_s in (0.0, 0.1):
            with pytest.raises(ClusterLockTimeout, match="rack 1"):
                acquire(other, timeout_s=timeout_s)
            assert engine.waiters() == 0

    def test_a_timeout_does_not_hold_up_those_behind(self, engine: Engine) -> None:
        holder, impatient, patient = engine.open(), engine.open(), engine.open()
        grant = acquire(holder)
        with ThreadPoolExecutor(2) as pool:
            short = pool.submit(acquire, impatient, 0.3)
            eventually(lambda: engine.waiters() == 1)
            long = pool.submit(acquire, patient)
            with pytest.raises(ClusterLockTimeout):
                short.result()
            holder.release(grant)
            assert long.result().waited_s < 5

    def test_clusters_do_not_wait_for_each_other(self, state: State) -> None:
        acquire(state)
        assert state.acquire("rack 2", timeout_s=0.0, seen=NEVER).scope == "rack 2"

    def test_waiters_are_served_as_they_came(self, engine: Engine) -> None:
        holder = engine.open()
        grant = acquire(holder)
        served: list[int] = []

        def wait(number: int, state: State) -> None:
            mine = acquire(state)
            served.append(number)
            state.release(mine)

        with ThreadPoolExecutor(5) as pool:
            for number in range(5):
                pool.submit(wait, number, engine.open())
                eventually(lambda number=number: engine.waiters() == number + 1)
            holder.release(grant)
        assert served == list(range(5))

    @pytest.mark.parametrize("end", ["commit", "release"])
    def test_a_waiter_is_woken(self, engine: Engine, end: str) -> None:
        holder, other = engine.open(), engine.open()
        grant = acquire(holder)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(acquire, other)
            eventually(lambda: engine.waiters() == 1)
            released_s = time.monotonic()
            holder.commit(grant, [put("a")]) if end == "commit" else holder.release(grant)
            granted = waiting.result()
        assert time.monotonic() - released_s < WOKEN_S
        assert granted.waited_s > 0
        assert told(granted.changes) == ({"a": b""} if end == "commit" else {})

    def test_a_hold_that_ran_out_lets_the_next_in(self, engine: Engine) -> None:
        slow, other = engine.open(hold_timeout_s=0.3), engine.open(hold_timeout_s=0.3)
        stale = acquire(slow)
        fresh = acquire(other)
        assert fresh.token > stale.token
        assert 0.2 < fresh.waited_s < 5

    def test_a_stale_commit_is_refused_and_nothing_is_written(self, engine: Engine) -> None:
        slow, other = engine.open(hold_timeout_s=0.3), engine.open(hold_timeout_s=0.3)
        stale = acquire(slow)
        fresh = acquire(other)
        before = other.changes(SCOPE, NEVER)
        with pytest.raises(StaleFencingToken, match="nothing was written"):
            slow.commit(stale, [put("a", b"stale")])
        assert other.changes(SCOPE, seen(before)).entries == []
        slow.release(stale)  # is no longer its to release
        assert other.commit(fresh, [put("a", b"fresh")]).applied == (True,)

    def test_a_hold_that_ran_out_is_stale_even_if_nobody_came(self, engine: Engine) -> None:
        state = engine.open(hold_timeout_s=0.05)
        grant = acquire(state)
        eventually(lambda: time.monotonic() > grant.ends_at_s + 0.05)
        with pytest.raises(StaleFencingToken):
            state.commit(grant, [put("a")])
        assert records(state) == {}

    @pytest.mark.parametrize("end", ["commit", "release"])
    def test_releasing_what_is_not_held_is_harmless(self, engine: Engine, end: str) -> None:
        state = engine.open()
        first = acquire(state)
        state.commit(first, []) if end == "commit" else state.release(first)
        second = acquire(state)
        state.release(first)
        with pytest.raises(ClusterLockTimeout):
            acquire(engine.open(), timeout_s=0.0)
        state.commit(second, [])

    def test_a_released_hold_cannot_commit(self, state: State) -> None:
        grant = acquire(state)
        state.release(grant)
        with pytest.raises(StaleFencingToken):
            state.commit(grant, [put("a")])

    def test_nothing_is_lost_under_contention(self, engine: Engine) -> None:
        states = [engine.open() for _ in range(4)]
        rounds, threads = 25, 8
        tokens: list[int] = []
        start = threading.Barrier(threads)

        def count(state: State) -> None:
            known, value = NEVER, 0
            start.wait()
            for _ in range(rounds):
                grant = acquire(state, known=known)
                value = int(told(grant.changes).get("counter") or value)
                known = seen(grant.changes)
                tokens.append(grant.token.number)
                state.commit(grant, [put("counter", b"%d" % (value + 1))])

        run_all([lambda state=states[n % 4]: count(state) for n in range(threads)])
        assert records(states[0]) == {"counter": b"%d" % (rounds * threads)}
        assert tokens == sorted(set(tokens))
        assert engine.waiters() == 0


class TestClosing:
    def test_it_wakes_those_who_wait(self, engine: Engine) -> None:
        holder, other = engine.open(), engine.open()
        acquire(holder)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(acquire, other)
            eventually(lambda: engine.waiters() == 1)
            closed_s = time.monotonic()
            other.close()
            with pytest.raises(StateUnavailable):
                waiting.result(timeout=5)
            assert time.monotonic() - closed_s < WOKEN_S

    def test_nothing_can_be_done_afterwards(self, state: State) -> None:
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


def run_all(jobs: list[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(len(jobs)) as pool:
        for future in [pool.submit(job) for job in jobs]:
            future.result()


class TestHeadStart:
    def test_a_head_start_overtakes_who_came_shortly_before(
        self, state: State, engine: Engine, pool: ThreadPoolExecutor
    ) -> None:
        grant, served = acquire(state), []

        def wait(name: str, head_start_s: float) -> None:
            mine = state.acquire(SCOPE, timeout_s=PATIENCE_S, seen=NEVER, head_start_s=head_start_s)
            served.append(name)
            state.release(mine)

        waiting = []
        for at, (name, head_start_s) in enumerate(
            [("first", 0.0), ("second", 0.0), ("late", 60.0), ("later", 30.0)], 1
        ):
            waiting.append(pool.submit(wait, name, head_start_s))
            eventually(lambda at=at: engine.waiters() == at)
        state.release(grant)
        for each in waiting:
            each.result(PATIENCE_S)
        assert served == ["late", "later", "first", "second"]


class TestAwaitingAChange:
    def test_what_has_changed_already_is_not_waited_for(self, state: State) -> None:
        before = seen(state.changes(SCOPE, NEVER))
        state.write(SCOPE, [put("a")])
        assert state.await_change(SCOPE, before, timeout_s=PATIENCE_S)
        assert state.await_change(SCOPE, NEVER, timeout_s=PATIENCE_S)

    def test_without_a_change_it_ends_in_time(self, state: State) -> None:
        state.write(SCOPE, [put("a")])
        now = seen(state.changes(SCOPE, NEVER))
        assert not state.await_change(SCOPE, now, timeout_s=0.2)

    @pytest.mark.parametrize("kind", ["write", "commit"])
    def test_a_change_wakes_everybody_who_waits(
        self, state: State, engine: Engine, pool: ThreadPoolExecutor, kind: str
    ) -> None:
        other = engine.open()
        other.write(SCOPE, [put("a")])
        now = seen(state.changes(SCOPE, NEVER))
        waiting = [
            pool.submit(each.await_change, SCOPE, now, timeout_s=PATIENCE_S)
            for each in (state, other, other)
        ]
        eventually(lambda: engine.watchers() == 3)
        started = time.monotonic()
        if kind == "write":
            other.write(SCOPE, [put("b")])
        else:
            other.commit(acquire(other), [put("b")])
        assert all(each.result(PATIENCE_S) for each in waiting)
        assert time.monotonic() - started < WOKEN_S

    def test_a_record_that_expires_is_a_change(self, state: State) -> None:
        start = state.changes(SCOPE, NEVER)
        state.write(SCOPE, [put("a", b"", start.now_s + 0.4)])
        now = seen(state.changes(SCOPE, NEVER))
        started = time.monotonic()
        assert state.await_change(SCOPE, now, timeout_s=PATIENCE_S)
        assert time.monotonic() - started < PATIENCE_S / 2
        assert records(state) == {}

    def test_another_scope_wakes_nobody(self, state: State) -> None:
        state.write(SCOPE, [put("a")])
        now = seen(state.changes(SCOPE, NEVER))
        state.write("elsewhere", [put("a")])
        assert not state.await_change(SCOPE, now, timeout_s=0.2)

    def test_those_who_wait_keep_nobody_from_the_lock(
        self, state: State, engine: Engine, pool: ThreadPoolExecutor
    ) -> None:
        state.write(SCOPE, [put("a")])
        now = seen(state.changes(SCOPE, NEVER))
        waiting = pool.submit(state.await_change, SCOPE, now, timeout_s=PATIENCE_S)
        eventually(lambda: engine.watchers() == 1)
        started = time.monotonic()
        state.release(acquire(state))
        assert time.monotonic() - started < WOKEN_S
        assert not waiting.done()
        state.write(SCOPE, [put("b")])
        assert waiting.result(PATIENCE_S)

    def test_closing_wakes_who_waits(
        self, state: State, engine: Engine, pool: ThreadPoolExecutor
    ) -> None:
        state.write(SCOPE, [put("a")])
        now = seen(state.changes(SCOPE, NEVER))
        waiting = pool.submit(state.await_change, SCOPE, now, timeout_s=PATIENCE_S)
        eventually(lambda: engine.watchers() == 1)
        state.close()
        with pytest.raises(StateUnavailable):
            waiting.result(PATIENCE_S)
