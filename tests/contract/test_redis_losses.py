"""Keys that are deleted or evicted: a scope that lost one begins a new epoch."""

from collections.abc import Callable
from itertools import combinations

import pytest

from scheduler_worker.backends.redis.engine import RedisState
from scheduler_worker.errors import StaleFencingToken
from scheduler_worker.ports import ABSENT

from .conftest import SCOPE
from .test_state import NEVER, acquire, guarded, put, seen, values

KEYS = ("meta", "records", "changed")
LOSSES = [lost for count in (1, 2, 3) for lost in combinations(KEYS, count)]


@pytest.fixture
def state(redis_engine) -> RedisState:
    return redis_engine.open()


@pytest.fixture
def lose(redis_client) -> Callable[..., None]:
    def lose(state: RedisState, *names: str) -> None:
        keys = [f"{state._base(SCOPE)}{name}" for name in names]
        assert redis_client.delete(*keys) == len(names)

    return lose


CALLS: dict[str, Callable[[RedisState], object]] = {
    "changes": lambda state: state.changes(SCOPE, NEVER),
    "write": lambda state: state.write(SCOPE, [guarded("other", ABSENT)]),
    "acquire": lambda state: state.release(acquire(state)),
    "watch": lambda state: state.await_change(SCOPE, NEVER, timeout_s=0.0),
}


@pytest.mark.parametrize("lost", LOSSES, ids="+".join)
@pytest.mark.parametrize("noticing", CALLS)
def test_the_next_call_begins_a_new_epoch(state, redis_engine, lose, lost, noticing):
    first = state.write(SCOPE, [put("a", b"1"), put("b", b"1"), put("gone")])
    state.write(SCOPE, [put("gone", None)])
    known = state.changes(SCOPE, NEVER)
    lose(state, *lost)
    CALLS[noticing](redis_engine.open())

    after = state.changes(SCOPE, seen(known))
    assert after.reset
    assert after.epoch != known.epoch
    assert after.version > known.version or set(lost) == set(KEYS)
    kept = {} if "records" in lost else {"a": b"1", "b": b"1"}
    assert {key: values(after)[key] for key in values(after) if key != "other"} == kept
    versions = {entry.key: entry.version for entry in after.entries}
    old, new = (guarded("a", first.version, b"old"), guarded("a", versions.get("a", 0), b"new"))
    assert state.write(SCOPE, [new]).applied == (True,)
    assert state.write(SCOPE, [old]).applied == (False,)
    again = state.changes(SCOPE, seen(after))
    assert (again.reset, values(again)["a"]) == (False, b"new")


@pytest.mark.parametrize("lost", LOSSES, ids="+".join)
def test_an_earlier_lease_commits_nothing(state, lose, lost):
    state.write(SCOPE, [put("a")])
    grant = acquire(state)
    lose(state, *lost)
    with pytest.raises(StaleFencingToken):
        state.commit(grant, [put("b")])
    assert "b" not in values(state.changes(SCOPE, NEVER))
    assert acquire(state, timeout_s=0.0).token.epoch != grant.token.epoch


@pytest.mark.parametrize("lost", LOSSES, ids="+".join)
def test_a_loss_is_logged(state, lose, lost, caplog):
    state.write(SCOPE, [put("a")])
    known = state.changes(SCOPE, NEVER)
    lose(state, *lost)
    known = state.changes(SCOPE, seen(known))
    state.changes(SCOPE, seen(known))
    [line] = [each for each in caplog.messages if "began again" in each]
    assert SCOPE in line
    named = "everything" if set(lost) == set(KEYS) else ", ".join(lost)
    assert named in line


def test_records_still_expire(state, lose):
    now_s = state.changes(SCOPE, NEVER).now_s
    state.write(SCOPE, [put("p:1", b"", now_s - 1), put("h:1")])
    for name in ("meta", "changed"):
        lose(state, name)
        assert values(state.changes(SCOPE, NEVER)).keys() == {"h:1"}


def test_the_index_of_a_large_scope_is_rebuilt(state, lose):
    state.write(SCOPE, [put(f"k{n}", b"%d" % n) for n in range(5_000)])
    lose(state, "changed")
    assert values(state.changes(SCOPE, NEVER)) == {f"k{n}": b"%d" % n for n in range(5_000)}


def test_lost_records_leave_nothing_behind(state, lose, redis_client):
    state.write(SCOPE, [put(f"k{n}", b"", 2e9) for n in range(10)])
    lose(state, "records")
    state.write(SCOPE, [put("a")])
    assert redis_client.zrange(f"{state._base(SCOPE)}changed", 0, -1) == [b"", b"a"]
    assert not redis_client.exists(f"{state._base(SCOPE)}expiry")


def test_a_scope_whose_records_were_all_deleted_has_lost_nothing(state):
    state.write(SCOPE, [put("a")])
    known = state.changes(SCOPE, NEVER)
    state.write(SCOPE, [put("a", None)])
    after = state.changes(SCOPE, seen(known))
    assert (after.reset, values(after)) == (False, {"a": None})


def test_a_scope_of_the_release_before_has_lost_nothing(state, lose, redis_client):
    """It had no marks yet; with the first write it gets them."""
    state.write(SCOPE, [put("a")])
    known = state.changes(SCOPE, NEVER)
    redis_client.hdel(f"{state._base(SCOPE)}meta", "marked")
    redis_client.hdel(f"{state._base(SCOPE)}records", "")
    redis_client.zrem(f"{state._base(SCOPE)}changed", "")
    assert not state.changes(SCOPE, seen(known)).reset
    state.write(SCOPE, [put("b")])
    assert values(state.changes(SCOPE, seen(known))) == {"b": b""}
    lose(state, "changed")
    assert state.changes(SCOPE, seen(known)).reset
