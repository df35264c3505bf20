"""The contract of every engine of the shared state (``docs/state.md``)."""

import time

import pytest

from scheduler_worker.errors import StateUnavailable
from scheduler_worker.ports import ABSENT, Changes, Guard, LockGrant, Put, Seen, State, Transaction
from tests.support.patience import NEVER_S, SOON_S, eventually

from .conftest import SCOPE, soon

NEVER = Seen()
LONG_AGO_S = 1.0


def put(key: str, value: bytes | None = b"", expires_at_s: float | None = None) -> Transaction:
    return Transaction([Put(key, value, expires_at_s)])


def guarded(key: str, version: int, value: bytes | None = b"") -> Transaction:
    return Transaction([Put(key, value)], [Guard(key, version)])


def seen(changes: Changes) -> Seen:
    return Seen(changes.epoch, changes.version)


def values(changes: Changes) -> dict[str, bytes | None]:
    assert len({entry.key for entry in changes.entries}) == len(changes.entries)
    return {entry.key: entry.value for entry in changes.entries}


def records(state: State, scope: str = SCOPE) -> dict[str, bytes | None]:
    return values(state.changes(scope, NEVER))


def acquire(state: State, timeout_s: float = SOON_S, known: Seen = NEVER) -> LockGrant:
    return state.acquire(SCOPE, timeout_s=timeout_s, seen=known)


class TestRecords:
    def test_a_written_record_is_read(self, state):
        every_byte = bytes(range(256))
        state.write(SCOPE, [Transaction([Put("h:a", every_byte), Put("h:ü", b"")])])
        assert records(state) == {"h:a": every_byte, "h:ü": b""}

    def test_scopes_share_nothing(self, state):
        for scope in ("a", "b", "a}", "{a}", "a:records", "@global"):
            state.write(scope, [put("key", scope.encode())])
        assert records(state, "a") == {"key": b"a"}
        assert records(state, "a}") == {"key": b"a}"}
        assert records(state, "unknown") == {}

    def test_a_write_returns_the_versions_before_and_after(self, state):
        before = state.changes(SCOPE, NEVER).version
        first = state.write(SCOPE, [put("a"), put("b")])
        versions = {entry.version for entry in state.changes(SCOPE, NEVER).entries}
        assert versions == {first.version}
        second = state.write(SCOPE, [put("c")])
        assert (first.applied, second.applied) == ((True, True), (True,))
        assert first.before == before < first.version == second.before < second.version
        assert state.changes(SCOPE, NEVER).version == second.version

    def test_a_write_that_expired_records_does_not_return_the_version_before_them(self, state):
        first = state.write(SCOPE, [put("gone", expires_at_s=LONG_AGO_S)])
        second = state.write(SCOPE, [put("a")])
        assert second.before != first.version
        assert records(state) == {"a": b""}

    def test_a_write_that_changes_nothing_leaves_the_version(self, state):
        before = state.write(SCOPE, [put("a")])
        nothing = state.write(
            SCOPE, [put("never was", None), guarded("a", ABSENT), Transaction([])]
        )
        assert nothing.applied == (True, False, True)
        assert state.write(SCOPE, ()).version == before.version
        assert nothing.version == before.version

    def test_many_records_at_once(self, state):
        state.write(SCOPE, [Transaction([Put(f"k{n}", b"%d" % n) for n in range(2500)])])
        assert records(state) == {f"k{n}": b"%d" % n for n in range(2500)}


class TestGuards:
    def test_the_version_must_be_the_present_one(self, state):
        first = state.write(SCOPE, [put("a", b"1")])
        second = state.write(SCOPE, [guarded("a", first.version, b"2")])
        late = state.write(SCOPE, [guarded("a", first.version, b"3")])
        assert (second.applied, late.applied) == ((True,), (False,))
        assert records(state) == {"a": b"2"}

    def test_absent_means_never_written_or_deleted(self, state):
        assert state.write(SCOPE, [guarded("a", ABSENT)]).applied == (True,)
        assert state.write(SCOPE, [guarded("a", ABSENT)]).applied == (False,)
        deleted = state.write(SCOPE, [put("a", None)])
        assert state.write(SCOPE, [guarded("a", deleted.version)]).applied == (False,)
        assert state.write(SCOPE, [guarded("a", ABSENT)]).applied == (True,)

    def test_a_transaction_is_applied_whole_or_not_at_all(self, state):
        state.write(SCOPE, [put("taken")])
        half = Transaction([Put("a", b""), Put("b", b"")], [Guard("free", 0), Guard("taken", 0)])
        assert state.write(SCOPE, [half, put("c")]).applied == (False, True)
        assert records(state).keys() == {"taken", "c"}

    @pytest.mark.parametrize("broken", range(3))
    def test_each_guard_counts(self, state, broken):
        versions = [state.write(SCOPE, [put(key)]).version for key in "abc"]
        versions[broken] -= 1
        guards = [Guard(key, version) for key, version in zip("abc", versions, strict=True)]
        refused = Transaction([Put("d", b"")], guards)
        assert state.write(SCOPE, [refused]).applied == (False,)
        assert state.commit(acquire(state), [refused]).applied == (False,)
        assert "d" not in records(state)

    def test_a_later_transaction_sees_an_earlier_one(self, state):
        written = state.write(SCOPE, [guarded("a", ABSENT, b"1"), guarded("a", ABSENT, b"2")])
        assert written.applied == (True, False)
        assert records(state) == {"a": b"1"}


class TestOnce:
    def test_a_repeated_write_changes_nothing_and_returns_the_same(self, state):
        first = state.write(SCOPE, [guarded("a", ABSENT, b"1")], once="report 7")
        state.write(SCOPE, [put("a", b"2")])
        again = state.write(SCOPE, [guarded("a", ABSENT, b"1")], once="report 7")
        assert (again.version, again.applied) == (first.version, first.applied)
        assert again.before == -1
        assert records(state) == {"a": b"2"}

    def test_a_refused_write_is_tried_again(self, state):
        state.write(SCOPE, [put("a")])
        assert state.write(SCOPE, [guarded("a", ABSENT)], once="x").applied == (False,)
        state.write(SCOPE, [put("a", None)])
        assert state.write(SCOPE, [guarded("a", ABSENT)], once="x").applied == (True,)

    def test_the_ids_of_writes_are_per_scope(self, state):
        for scope in ("a", "b"):
            state.write(scope, [put("k")], once="same")
        assert records(state, "a") == records(state, "b") == {"k": b""}


class TestChanges:
    def test_a_first_read_returns_everything(self, state):
        state.write(SCOPE, [put("a"), put("b"), put("c")])
        state.write(SCOPE, [put("b", None)])
        first = state.changes(SCOPE, NEVER)
        assert first.reset
        assert values(first).keys() == {"a", "c"}

    def test_a_second_read_returns_what_changed(self, state):
        state.write(SCOPE, [put("a", b"1"), put("b", b"1"), put("c", b"1")])
        known = seen(state.changes(SCOPE, NEVER))
        state.write(SCOPE, [put("b", b"2")])
        state.write(SCOPE, [put("c", None), put("d", b"2")])
        state.write(SCOPE, [put("b", b"3")])
        second = state.changes(SCOPE, known)
        assert not second.reset
        assert values(second) == {"b": b"3", "c": None, "d": b"2"}
        third = state.changes(SCOPE, seen(second))
        assert (third.entries, third.version, third.reset) == ([], second.version, False)

    def test_an_empty_scope_is_current_after_a_read(self, state):
        first = state.changes(SCOPE, NEVER)
        assert not state.changes(SCOPE, seen(first)).reset
        state.write(SCOPE, [put("a")])
        assert values(state.changes(SCOPE, seen(first))) == {"a": b""}

    @pytest.mark.parametrize("known", [Seen("another life", 0), Seen("another life", 2**52)])
    def test_another_epoch_resets(self, state, known):
        state.write(SCOPE, [put("a")])
        assert state.changes(SCOPE, known).reset
        assert values(state.changes(SCOPE, known)) == {"a": b""}

    def test_a_version_from_the_future_resets(self, state):
        state.write(SCOPE, [put("a")])
        now = state.changes(SCOPE, NEVER)
        future = Seen(now.epoch, now.version + 1)
        assert state.changes(SCOPE, future).reset

    def test_a_reader_that_missed_dropped_tombstones_is_reset(self, engine):
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

        assert values(state.changes(SCOPE, early)) == {"k0": b"lives again", "k7": b""}
        assert state.changes(SCOPE, early).reset
        assert values(state.changes(SCOPE, late)) == {"k5": None, "k6": None}
        assert state.write(SCOPE, [guarded("k1", ABSENT)]).applied == (True,)

    def test_changes_have_the_stores_time(self, state):
        before_s = time.time() - 1e-3
        assert before_s <= state.changes(SCOPE, NEVER).now_s <= time.time() + 1e-3


class TestExpiry:
    def test_an_expired_record_is_deleted_and_others_stay(self, state):
        now_s = state.changes(SCOPE, NEVER).now_s
        state.write(SCOPE, [put("p:1", b"", now_s - 1), put("p:2", b"", now_s + 3600)])
        assert records(state).keys() == {"p:2"}
        assert state.write(SCOPE, [guarded("p:1", ABSENT)]).applied == (True,)

    def test_an_expiry_is_a_change(self, state):
        state.write(SCOPE, [put("p:1")])
        known = seen(state.changes(SCOPE, NEVER))
        state.write(SCOPE, [put("p:1", b"", LONG_AGO_S)])
        assert values(state.changes(SCOPE, known)) == {"p:1": None}

    def test_a_grant_includes_expiries(self, state):
        state.write(SCOPE, [put("p:1", b"", LONG_AGO_S)])
        assert values(acquire(state).changes) == {}

    def test_an_expiry_can_be_extended_or_removed(self, state):
        far_s = time.time() + 3600
        state.write(
            SCOPE,
            [put(key, b"1", LONG_AGO_S) for key in ("stays", "longer", "deleted")]
            + [put("stays", b"2"), put("longer", b"2", far_s), put("deleted", None)],
        )
        state.write(SCOPE, [guarded("deleted", ABSENT, b"again")])
        assert records(state) == {"stays": b"2", "longer": b"2", "deleted": b"again"}

    def test_more_than_a_hundred_records_expire_eventually(self, state):
        state.write(SCOPE, [put(f"p:{n}", b"", LONG_AGO_S) for n in range(250)])
        eventually(lambda: not records(state))


class TestAwaitChange:
    def test_an_earlier_change_returns_at_once(self, state):
        before = seen(state.changes(SCOPE, NEVER))
        state.write(SCOPE, [put("a")])
        assert state.await_change(SCOPE, before, timeout_s=SOON_S)
        assert state.await_change(SCOPE, NEVER, timeout_s=SOON_S)

    @pytest.mark.usefixtures("nobody_looks_again")
    @pytest.mark.parametrize("kind", ["write", "commit"])
    def test_a_change_wakes_all_watchers(self, state, engine, pool, kind):
        other = engine.open()
        other.write(SCOPE, [put("a")])
        now = seen(state.changes(SCOPE, NEVER))
        waiting = [
            pool.submit(each.await_change, SCOPE, now, timeout_s=NEVER_S)
            for each in (state, other, other)
        ]
        eventually(lambda: engine.watchers() == 3)
        if kind == "write":
            other.write(SCOPE, [put("b")])
        else:
            other.commit(acquire(other), [put("b")])
        assert all(soon(engine, each) for each in waiting)

    @pytest.mark.usefixtures("nobody_looks_again")
    def test_a_record_that_expires_is_a_change(self, state, engine, pool):
        start = state.changes(SCOPE, NEVER)
        written = state.write(SCOPE, [put("a", b"", start.now_s + 0.4)])
        known = Seen(start.epoch, written.version)
        assert soon(engine, pool.submit(state.await_change, SCOPE, known, timeout_s=NEVER_S))
        assert records(state) == {}

    def test_a_change_in_another_scope_wakes_no_watcher(self, state):
        state.write(SCOPE, [put("a")])
        now = seen(state.changes(SCOPE, NEVER))
        state.write("elsewhere", [put("a")])
        assert not state.await_change(SCOPE, now, timeout_s=0.2)

    def test_watchers_do_not_block_the_lock(self, state, engine, pool):
        state.write(SCOPE, [put("a")])
        now = seen(state.changes(SCOPE, NEVER))
        waiting = pool.submit(state.await_change, SCOPE, now, timeout_s=SOON_S)
        eventually(lambda: engine.watchers() == 1)
        state.release(acquire(state, timeout_s=0.0))
        assert not waiting.done()
        state.write(SCOPE, [put("b")])
        assert waiting.result(SOON_S)

    @pytest.mark.usefixtures("nobody_looks_again")
    def test_closing_wakes_watchers(self, state, engine, pool):
        state.write(SCOPE, [put("a")])
        now = seen(state.changes(SCOPE, NEVER))
        waiting = pool.submit(state.await_change, SCOPE, now, timeout_s=NEVER_S)
        eventually(lambda: engine.watchers() == 1)
        state.close()
        with pytest.raises(StateUnavailable):
            soon(engine, waiting)
