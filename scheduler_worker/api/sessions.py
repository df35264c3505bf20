"""Who calls: log-ins by password, tokens with an expiry, and the slowing of failed log-ins.

Sessions of the console are in ``console/``.
"""

import hashlib
import hmac
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from scheduler_worker.api.users import User, Users, hashed, is_password
from scheduler_worker.operations.callers import Caller
from scheduler_worker.ports import ApiToken, ApiTokens, Clock
from scheduler_worker.wording import cut, one_line

LOG = logging.getLogger(__name__)

FREE_FAILURES = 3
"""Failed log-ins that are not slowed."""
FIRST_DELAY_S = 1.0
MAX_DELAY_S = 300.0
_FORGET_S = 3600.0
_MAX_REMEMBERED = 10_000
_LONGEST_NAME = 200
"""Characters of a name that are remembered; no user has a longer one."""
_TURNS = 64
_REMEMBER_PASSWORD_S = 60.0


class LoginFailed(Exception):
    """Raised for a wrong name or password; does not say which."""

    def __init__(self) -> None:
        super().__init__("The user name or password is not correct.")


class LoginSlowed(Exception):
    """Raised without a check of the password, for too many have failed; ``wait_s`` is left."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"Too many log-ins have failed; try again in {wait_s:.0f} s.")
        self.wait_s = wait_s


class _Failures(NamedTuple):
    number: int = 0
    last_s: float = 0.0


class Throttle:
    """Slows guesses at a user from an address: each failure doubles the delay.

    Many users may share the address of a proxy, so one at whom nobody has guessed may always try.
    From an address that has failed at others each has one free try, in place of three.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[tuple[str, ...], _Failures] = OrderedDict()
        """Of each address with a name, and of each address: the sum over its names."""
        self._lock = threading.Lock()

    def wait_s(self, name: str, address: str, now_s: float) -> float:
        """How long a user has to wait; 0 if they may log in."""
        pair, whole = _keys(name, address)
        with self._lock:
            own, every = self._recent(pair, now_s), self._recent(whole, now_s)
        free = FREE_FAILURES if every.number - own.number < FREE_FAILURES else 1
        if own.number < free:
            return 0.0
        delay_s = min(FIRST_DELAY_S * 2.0 ** min(own.number - free, 30), MAX_DELAY_S)
        return max(0.0, own.last_s + delay_s - now_s)

    def tried(self, name: str, address: str, now_s: float) -> None:
        """Count a try before its check, as a failure until ``succeeded`` takes it back."""
        with self._lock:
            for key in _keys(name, address):
                self._put(key, self._recent(key, now_s).number + 1, now_s)

    def succeeded(self, name: str, address: str, now_s: float) -> None:
        """Forget the failures of a user, not of other users at this address."""
        pair, whole = _keys(name, address)
        with self._lock:
            own = self._failures.pop(pair, _Failures())
            every = self._recent(whole, now_s)
            self._put(whole, max(0, every.number - own.number), every.last_s)

    def _recent(self, key: tuple[str, ...], now_s: float) -> _Failures:
        failures = self._failures.get(key, _Failures())
        return failures if now_s - failures.last_s < _FORGET_S else _Failures()

    def _put(self, key: tuple[str, ...], number: int, last_s: float) -> None:
        self._failures.pop(key, None)
        if number:
            self._failures[key] = _Failures(number, last_s)
        if len(self._failures) > _MAX_REMEMBERED:
            self._failures.popitem(last=False)


def _keys(name: str, address: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (address, name[:_LONGEST_NAME]), (address,)


class Sessions:
    """Checks passwords and tokens.

    Failures are counted for a name from an address, so that an attacker elsewhere does not lock a
    user out.
    """

    def __init__(
        self, users: Callable[[], Users], tokens: ApiTokens, clock: Clock, *, token_ttl_s: float
    ) -> None:
        self._users = users
        self._tokens = tokens
        self._clock = clock
        self._ttl_s = token_ttl_s
        self._throttle = Throttle()
        self._turns = [threading.Lock() for _ in range(_TURNS)]
        self._key = secrets.token_bytes(32)
        self._checked: OrderedDict[bytes, float] = OrderedDict()
        """Correct pairs of hash and password, and until when they are not hashed again."""
        self._nobody = User(hashed(secrets.token_hex()))

    def log_in(self, name: str, password: str, address: str) -> Caller:
        """The caller with this password. Raises LoginFailed or LoginSlowed."""
        user = self._users().get(name, self._nobody)
        try:
            # One try of a user at a time: those at the same moment see what has failed, and one
            # that has succeeded spares them the hash.
            with self._turns[hash((name, address)) % _TURNS]:
                self._check(name, user, password, address)
        except (LoginFailed, LoginSlowed) as error:
            LOG.warning("Log-in as '%s' from %s: %s", one_line(cut(name)), address, error)
            raise
        return Caller(name, user.roles, address)

    def _check(self, name: str, user: User, password: str, address: str) -> None:
        now_s = self._clock.monotonic_s()
        # Before what is remembered, which would tell a guesser the right one of many at no cost.
        if wait_s := self._throttle.wait_s(name, address, now_s):
            raise LoginSlowed(wait_s)
        text = f"{user.password} {password}".encode(errors="surrogatepass")
        proof = hmac.digest(self._key, text, "sha256")
        if self._checked.get(proof, 0.0) > now_s:
            return
        self._throttle.tried(name, address, now_s)
        # An unknown name takes as long as a wrong password.
        if not is_password(password, user.password) or user is self._nobody:
            raise LoginFailed
        self._throttle.succeeded(name, address, now_s)
        # Each request of Basic authentication has the password; scrypt takes some 50 ms.
        self._checked[proof] = now_s + _REMEMBER_PASSWORD_S
        while len(self._checked) > _MAX_REMEMBERED:
            self._checked.popitem(last=False)

    def known(self, name: str, address: str) -> Caller | None:
        """A user who has proved otherwise who they are; None: there is no such user any more."""
        user = self._users().get(name)
        return None if user is None else Caller(name, user.roles, address)

    def token_for(self, caller: Caller) -> tuple[str, float]:
        """A new token of a caller, and when it expires, in seconds since the epoch."""
        secret = secrets.token_urlsafe(32)
        token = self.new_token(secret, caller, self._clock.time_s() + self._ttl_s)
        self._tokens.add(token)
        return secret, token.expires_at_s

    def new_token(
        self, secret: str, caller: Caller, expires_at_s: float, ends_at_s: float | None = None
    ) -> ApiToken:
        """What is stored of a secret that a caller with a password gets; it is not stored here."""
        return ApiToken(
            digest=token_digest(secret),
            user=caller.name,
            fingerprint=self._users()[caller.name].fingerprint,
            expires_at_s=expires_at_s,
            ends_at_s=ends_at_s,
        )

    def caller_of(self, secret: str, address: str) -> Caller | None:
        """The caller with a token; None if it is unknown, expired, revoked, or its user changed."""
        token = self._tokens.find(token_digest(secret))
        is_session = token is not None and token.ends_at_s is not None
        return None if token is None or is_session else self.holder(token, address)

    def holder(self, token: ApiToken, address: str) -> Caller | None:
        """The caller with a stored token; None if it has expired or its user has changed."""
        if token.expires_at_s <= self._clock.time_s():
            return None
        user = self._users().get(token.user)
        if user is None or user.fingerprint != token.fingerprint:
            return None
        return Caller(token.user, user.roles, address)

    def revoke(self, secret: str) -> None:
        """End a token; an unknown one is no error."""
        self._tokens.remove(token_digest(secret))


def token_digest(secret: str) -> str:
    """What is stored of a token: nobody who reads the store can use it."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
