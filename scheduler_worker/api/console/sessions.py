"""Sessions of the console: a secret in a cookie, which lasts while it is used.

Like a token of the API a session is stored as a digest among the shared tokens, so it holds at
every API process and survives their restarts. It ends when nobody has used it for a while, in any
case some time after the log-in, and with its user or the user's password.
"""

import hmac
import secrets
from typing import NamedTuple

import msgspec

from scheduler_worker.api.sessions import Sessions, token_digest
from scheduler_worker.operations.callers import Caller
from scheduler_worker.ports import ApiToken, ApiTokens, Clock

_RENEWALS = 20
"""How often at the most a session is stored again within its idle timeout."""


class Session(NamedTuple):
    """A session that is valid now; times in seconds since the epoch."""

    caller: Caller
    idle_ends_at_s: float
    """When it ends unless it is used."""
    ends_at_s: float
    """When it ends in any case."""


class Invitations:
    """Secrets of this process, each of which logs a user in once."""

    def __init__(self) -> None:
        self._users: dict[str, str] = {}

    def invite(self, user: str) -> str:
        """A new secret for a user."""
        secret = secrets.token_urlsafe(32)
        self._users[token_digest(secret)] = user
        return secret

    def take(self, secret: str) -> str | None:
        """The user of a secret, which is not valid any more afterwards; None: it was not valid."""
        return self._users.pop(token_digest(secret), None)


class ConsoleSessions:
    """Opens, finds and extends sessions; each method may raise BackendError."""

    def __init__(
        self,
        sessions: Sessions,
        tokens: ApiTokens,
        clock: Clock,
        *,
        idle_timeout_s: float,
        ttl_s: float,
    ) -> None:
        self._sessions = sessions
        self._tokens = tokens
        self._clock = clock
        self._idle_s = idle_timeout_s
        self._ttl_s = ttl_s

    def open(self, caller: Caller) -> str:
        """The secret of a new session of a caller who has proved the password."""
        now_s = self._clock.time_s()
        ends_at_s = now_s + self._ttl_s
        secret = secrets.token_urlsafe(32)
        expires_at_s = min(now_s + self._idle_s, ends_at_s)
        self._tokens.add(self._sessions.new_token(secret, caller, expires_at_s, ends_at_s))
        return secret

    def find(self, secret: str, address: str, *, is_use: bool) -> Session | None:
        """The session with a secret; None: there is none any more. A use extends it."""
        token = self._tokens.find(token_digest(secret))
        if token is None or token.ends_at_s is None:
            return None
        caller = self._sessions.holder(token, address)
        if caller is None:
            return None
        if is_use:
            token = self._extended(token, token.ends_at_s)
        return Session(caller, token.expires_at_s, token.ends_at_s or token.expires_at_s)

    def _extended(self, token: ApiToken, ends_at_s: float) -> ApiToken:
        expires_at_s = min(self._clock.time_s() + self._idle_s, ends_at_s)
        if expires_at_s - token.expires_at_s < self._idle_s / _RENEWALS:
            return token
        renewed = msgspec.structs.replace(token, expires_at_s=expires_at_s)
        self._tokens.extend(renewed)
        return renewed


def csrf_token(secret: str) -> str:
    """What a page sends with each change, and a page of another origin cannot know."""
    return hmac.digest(secret.encode(), b"csrf", "sha256").hex()


def is_csrf_token(token: str, secret: str) -> bool:
    """Whether a page of this session sent it."""
    return hmac.compare_digest(token.encode(errors="replace"), csrf_token(secret).encode())
