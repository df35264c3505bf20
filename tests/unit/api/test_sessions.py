"""Log-ins, tokens, and how failures are slowed."""

import threading

import pytest

from scheduler_worker.api import sessions as module
from scheduler_worker.api.sessions import LoginFailed, LoginSlowed, Sessions
from scheduler_worker.api.users import User, hashed
from scheduler_worker.backends.memory import MemoryState
from scheduler_worker.operations.callers import Caller, Grant
from scheduler_worker.ports import Seen
from scheduler_worker.service.policies.api_tokens import MAX_TOKENS, SharedApiTokens
from tests.support.patience import SOON_S
from tests.support.threads import Threads

HASH, OTHER_HASH = hashed("correct horse"), hashed("another password")
HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def users():
    return {"anna": User(HASH, (Grant("reader"),))}


@pytest.fixture
def state(clock):
    return MemoryState(clock, hold_timeout_s=1.0)


@pytest.fixture
def tokens(state):
    return SharedApiTokens(state)


@pytest.fixture
def sessions(users, tokens, clock):
    return Sessions(lambda: users, tokens, clock, token_ttl_s=3600)


def fail(sessions, times=1, *, name="anna", address=HERE):
    for _ in range(times):
        with pytest.raises(LoginFailed):
            sessions.log_in(name, "wrong password", address)


@pytest.mark.parametrize("name", ["anna", "nobody", ""])
def test_wrong_names_and_passwords_look_alike(sessions, name):
    with pytest.raises(LoginFailed, match="name or password"):
        sessions.log_in(name, "wrong password", HERE)


def test_failures_double_the_wait(sessions, clock):
    fail(sessions, 3)
    for expected_s in (1, 2, 4):
        with pytest.raises(LoginSlowed) as slowed:
            sessions.log_in("anna", "correct horse", HERE)
        assert slowed.value.wait_s == expected_s
        clock.advance(expected_s)
        fail(sessions)
    clock.advance(module.MAX_DELAY_S)
    assert sessions.log_in("anna", "correct horse", HERE)
    fail(sessions, 3)


def test_an_attacker_elsewhere_does_not_lock_a_user_out(sessions):
    fail(sessions, 3, address=ELSEWHERE)
    with pytest.raises(LoginSlowed):
        sessions.log_in("anna", "correct horse", ELSEWHERE)
    assert sessions.log_in("anna", "correct horse", HERE)


def test_a_guesser_keeps_nobody_else_of_the_address_out(sessions):
    fail(sessions, 3, name="bert")
    for name in ("a", "b", "c"):
        fail(sessions, name=name)
    with pytest.raises(LoginSlowed):
        sessions.log_in("bert", "wrong password", HERE)
    assert sessions.log_in("anna", "correct horse", HERE)


def test_many_names_from_one_address_have_one_try_each(sessions, clock):
    for name in ("a", "b", "c"):
        fail(sessions, name=name)
    for wait_s in (1, 2, 4):
        fail(sessions)
        with pytest.raises(LoginSlowed) as slowed:
            sessions.log_in("anna", "correct horse", HERE)
        assert slowed.value.wait_s == wait_s
        clock.advance(wait_s)


def test_a_guesser_with_an_account_does_not_start_anew(sessions, users, clock):
    users["eve"] = User(HASH)
    for name in ("a", "b", "c", "bert"):
        fail(sessions, name=name)
    fail(sessions, name="eve")
    clock.advance(1)
    assert sessions.log_in("eve", "correct horse", HERE)
    fail(sessions)
    with pytest.raises(LoginSlowed):
        sessions.log_in("anna", "correct horse", HERE)


def test_what_is_remembered_does_not_help_a_guesser(sessions, clock):
    assert sessions.log_in("anna", "correct horse", HERE)
    fail(sessions, 3)
    with pytest.raises(LoginSlowed):
        sessions.log_in("anna", "correct horse", HERE)
    assert sessions.log_in("anna", "correct horse", ELSEWHERE)
    clock.advance(1)
    assert sessions.log_in("anna", "correct horse", HERE)


class Crowd:
    """Log-ins of one user at the same moment: a check lasts until all of them have begun."""

    def __init__(self, users, tokens, clock, monkeypatch, *, is_right):
        self.checked = 0
        self._begun = threading.Semaphore(0)
        self._all = threading.Event()
        self._users = users
        self._sessions = Sessions(self._begin, tokens, clock, token_ttl_s=3600)

        def check(*_):
            self.checked += 1
            assert self._all.wait(SOON_S)
            return is_right

        monkeypatch.setattr(module, "is_password", check)

    def _begin(self):
        self._begun.release()
        return self._users

    def log_in(self, number):
        """The outcome of each."""
        with Threads(number) as threads:
            tries = [
                threads.submit(self._sessions.log_in, "anna", "a password", HERE)
                for _ in range(number)
            ]
            for _ in tries:
                assert self._begun.acquire(timeout=SOON_S)
            self._all.set()
        return [type(each.exception()) for each in tries]


def test_guesses_at_the_same_moment_are_all_counted(users, tokens, clock, monkeypatch):
    crowd = Crowd(users, tokens, clock, monkeypatch, is_right=False)
    found = crowd.log_in(20)
    assert crowd.checked == found.count(LoginFailed) == 3
    assert found.count(LoginSlowed) == 17


def test_a_client_with_many_requests_at_the_same_moment_gets_in(users, tokens, clock, monkeypatch):
    crowd = Crowd(users, tokens, clock, monkeypatch, is_right=True)
    assert crowd.log_in(20) == [type(None)] * 20
    assert crowd.checked == 1


def test_the_name_that_was_tried_is_logged_as_one_short_line(sessions, caplog):
    fail(sessions, name="x\nforged " + 1000 * "y")
    [record] = caplog.records
    assert r"Log-in as 'x\nforged yyy" in record.getMessage()
    assert HERE in record.getMessage()
    assert len(record.getMessage()) < 200


def test_a_password_that_was_checked_is_not_hashed_again(sessions, clock, monkeypatch):
    sessions.log_in("anna", "correct horse", HERE)
    monkeypatch.setattr(module, "is_password", lambda *_: False)
    assert sessions.log_in("anna", "correct horse", HERE)
    clock.advance(61)
    with pytest.raises(LoginFailed):
        sessions.log_in("anna", "correct horse", HERE)


def test_a_changed_password_is_not_accepted_from_memory(sessions, users):
    sessions.log_in("anna", "correct horse", HERE)
    users["anna"] = User(OTHER_HASH)
    fail(sessions)
    with pytest.raises(LoginFailed):
        sessions.log_in("anna", "correct horse", HERE)


def test_a_token_lasts_until_it_expires(sessions, clock, tokens):
    secret, expires_at_s = sessions.token_for(sessions.log_in("anna", "correct horse", HERE))
    assert expires_at_s == clock.time_s() + 3600
    assert sessions.caller_of(secret, ELSEWHERE) == Caller("anna", (Grant("reader"),), ELSEWHERE)
    clock.advance(3600)
    assert sessions.caller_of(secret, HERE) is None


def test_a_revoked_token_ends(sessions):
    caller = sessions.log_in("anna", "correct horse", HERE)
    (first, _), (second, _) = sessions.token_for(caller), sessions.token_for(caller)
    sessions.revoke(first)
    sessions.revoke("unknown")
    assert sessions.caller_of(first, HERE) is None
    assert sessions.caller_of(second, HERE) == caller


@pytest.mark.parametrize("change", ["password", "gone"])
def test_a_token_ends_with_its_user_or_password(sessions, users, change):
    secret, _ = sessions.token_for(sessions.log_in("anna", "correct horse", HERE))
    if change == "gone":
        del users["anna"]
    else:
        users["anna"] = User(OTHER_HASH)
    assert sessions.caller_of(secret, HERE) is None


def test_roles_of_a_token_are_those_of_now(sessions, users):
    secret, _ = sessions.token_for(sessions.log_in("anna", "correct horse", HERE))
    users["anna"] = User(HASH, (Grant("administrator"),))
    assert sessions.caller_of(secret, HERE).grants == (Grant("administrator"),)


def test_the_store_has_no_token_that_could_be_used(sessions, state, clock):
    secret, _ = sessions.token_for(sessions.log_in("anna", "correct horse", HERE))
    [stored] = state.changes("@tokens", Seen()).entries
    assert secret.encode() not in stored.value
    clock.advance(3601)
    assert [each.value for each in state.changes("@tokens", Seen()).entries] in ([], [None])


def test_processes_share_tokens(sessions, users, state, clock):
    other = Sessions(lambda: users, SharedApiTokens(state), clock, token_ttl_s=3600)
    secret, _ = sessions.token_for(sessions.log_in("anna", "correct horse", HERE))
    assert other.caller_of(secret, HERE) is not None
    other.revoke(secret)
    assert sessions.caller_of(secret, HERE) is None


def test_a_users_oldest_token_ends_when_there_are_too_many(sessions, users, clock):
    users["bert"] = users["anna"]
    caller = sessions.log_in("anna", "correct horse", HERE)
    of_another, _ = sessions.token_for(caller._replace(name="bert"))
    first, second, *_, last = (
        sessions.token_for(caller)[0] for _ in range(MAX_TOKENS + 1) if not clock.advance(0.001)
    )
    assert sessions.caller_of(first, HERE) is None
    assert sessions.caller_of(second, HERE) == sessions.caller_of(last, HERE) == caller
    assert sessions.caller_of(of_another, HERE) is not None
