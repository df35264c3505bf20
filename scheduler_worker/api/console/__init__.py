"""The console: a web front end, and the log-ins of browsers.

======================  ========  ===========================================================
``/console/session``    GET       who is logged in, with the rights and the token for changes
``/console/session``    POST      log in, by user and password or by an invitation
``/console/session``    DELETE    log out
``/console/assets/X``   GET       a script, a style or an image
``/console/...``        GET       the page
======================  ========  ===========================================================

Every path that is no asset is answered with the one page, which shows what belongs to its path. No
script or style is within it. It asks the API itself for everything else. Its cookie is a log-in for
all of the API; a change needs the session's token against forged requests as well.

A session is a secret in that cookie, which lasts while it is used. Like a token of the API it is
stored as a digest among the shared tokens, so it holds at every API process and survives their
restarts. It ends when nobody has used it for a while, in any case some time after the log-in, and
with its user or the user's password.
"""

import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from importlib import resources
from pathlib import PurePath
from typing import Literal, NamedTuple

import msgspec
from msgspec import structs
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.wrappers import Request, Response

import scheduler_worker
from scheduler_worker.api.bind import etag_of, read_object
from scheduler_worker.api.calls import ROUTE
from scheduler_worker.api.problems import Refusal, of_parameters
from scheduler_worker.api.sessions import Sessions, token_digest
from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.codec.typed import typed
from scheduler_worker.errors import RequestError
from scheduler_worker.operations.callers import Caller, Right
from scheduler_worker.operations.operation import when
from scheduler_worker.operations.rights import Rights
from scheduler_worker.ports import ApiToken, ApiTokens, Clock

ROOT = "/console"
SESSION = f"{ROOT}/session"
_ASSETS = f"{ROOT}/assets/"
CSRF_HEADER = "X-CSRF-Token"
ACTIVITY_HEADER = "Console-Activity"
"""``user`` or ``refresh``, of every request that the page makes: a refresh uses no session."""
_SAFE = {"GET", "HEAD"}
_JSON = "application/json"

PAGE = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
LogIn = Literal["password", "keystone"]
_RENEWALS = 20
"""How often at the most a session is stored again within its idle timeout."""


class Credentials(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a log-in: user and password, or an invitation."""

    user: str = ""
    password: str = ""
    invitation: str = ""


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the page knows of the user; ``user`` null: nobody is logged in."""

    version: str
    log_in: Sequence[LogIn]
    """The ways to log in."""
    user: str | None = None
    rights: Sequence[str] = ()
    """What the user may do in at least one cluster."""
    csrf_token: str | None = None
    idle_ends_at: datetime | None = None
    ends_at: datetime | None = None


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
        self, sessions: Sessions, tokens: ApiTokens, clock: Clock, settings: ApiSettings
    ) -> None:
        self._sessions = sessions
        self._tokens = tokens
        self._clock = clock
        self._idle_s = settings.console_idle_timeout_s
        self._ttl_s = settings.console_session_ttl_s

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
        renewed = structs.replace(token, expires_at_s=expires_at_s)
        self._tokens.extend(renewed)
        return renewed


def csrf_token(secret: str) -> str:
    """What a page sends with each change, and a page of another origin cannot know."""
    return hmac.digest(secret.encode(), b"csrf", "sha256").hex()


class Console:
    """Serves the console, and knows the users of its sessions."""

    def __init__(
        self,
        sessions: Sessions,
        console_sessions: ConsoleSessions,
        rights: Rights,
        log_in: Sequence[LogIn],
    ) -> None:
        self.invitations = Invitations()
        self._sessions = sessions
        self._console_sessions = console_sessions
        self._rights = rights
        self._log_in = log_in
        self._assets = load_assets()

    def owns(self, path: str) -> bool:
        """Whether a path is below the root."""
        return path == ROOT or path.startswith(f"{ROOT}/")

    # Requests of pages to the API

    def caller_of(self, request: Request) -> Caller | None:
        """Who is logged in with the cookie of a request to the API; None: nobody is.

        Raises Refusal with 403 for a change without the session's token.
        """
        secret, session = self._session(request)
        if session is None:
            return None
        if request.method not in _SAFE:
            _check_csrf(request, secret)
        return session.caller

    def without_challenge(self, request: Request, response: Response) -> None:
        """Take back the challenge of a 401, for which a browser would ask for a password itself."""
        if response.status_code == HTTPStatus.UNAUTHORIZED and ACTIVITY_HEADER in request.headers:
            response.headers["WWW-Authenticate"] = 'Console realm="scheduler_worker"'

    def _session(self, request: Request) -> tuple[str, Session | None]:
        secret = request.cookies.get(_cookie_name(request), "")
        if not secret:
            return "", None
        is_use = request.headers.get(ACTIVITY_HEADER) != "refresh"
        return secret, self._console_sessions.find(secret, request.remote_addr or "", is_use=is_use)

    # The console's own paths

    def respond(
        self,
        request: Request,
        path: str,
        body: Callable[[], bytes],
        foreign_caller: Callable[[], Caller | None],
    ) -> Response:
        """The answer to a request below the root.

        ``foreign_caller`` knows the user of another service's token that the request has.

        Raises Refusal, LoginFailed, LoginSlowed, BackendError.
        """
        if path == SESSION:
            return self._serve_session(request, body, foreign_caller)
        if request.method not in _SAFE:
            raise MethodNotAllowed(sorted(_SAFE))
        name = path.removeprefix(_ASSETS) if path.startswith(_ASSETS) else PAGE
        request.environ[ROUTE] = f"{_ASSETS}{{name}}" if path.startswith(_ASSETS) else ROOT
        asset = self._assets.get(name)
        if asset is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"The console has no file {name!r}.")
        return response_with(asset, request)

    def _serve_session(
        self,
        request: Request,
        body: Callable[[], bytes],
        foreign_caller: Callable[[], Caller | None],
    ) -> Response:
        request.environ[ROUTE] = SESSION
        if request.method in _SAFE:
            secret, session = self._session(request)
            caller = session.caller if session else foreign_caller()
            return _json(self._info(caller, secret, session))
        if request.method == "POST":
            return self._open(request, body())
        if request.method == "DELETE":
            return self._end(request)
        raise MethodNotAllowed(["DELETE", "GET", "POST"])

    def _open(self, request: Request, body: bytes) -> Response:
        # A form of another site cannot send the type of JSON, so it logs nobody in.
        try:
            credentials = typed(read_object(request, body), Credentials, "")
        except RequestError as error:
            raise of_parameters(error, "body") from None
        address = request.remote_addr or ""
        caller = self._proved(credentials, address)
        if old := request.cookies.get(_cookie_name(request)):
            self._sessions.revoke(old)  # the cookie is replaced, so nobody could end it later
        secret = self._console_sessions.open(caller)
        session = self._console_sessions.find(secret, address, is_use=False)
        response = _json(self._info(caller, secret, session), HTTPStatus.CREATED)
        # Until the browser is closed; the store knows when its session ends.
        name, is_secure = _cookie_name(request), request.is_secure
        response.set_cookie(name, secret, secure=is_secure, httponly=True, samesite="Strict")
        return response

    def _proved(self, credentials: Credentials, address: str) -> Caller:
        if not credentials.invitation:
            return self._sessions.log_in(credentials.user, credentials.password, address)
        user = self.invitations.take(credentials.invitation)
        caller = None if user is None else self._sessions.known(user, address)
        if caller is None:
            raise Refusal(
                HTTPStatus.FORBIDDEN,
                "This link has been used already; it logs in only once. Log in by password, or "
                "start the console again for another link.",
            )
        return caller

    def _end(self, request: Request) -> Response:
        secret, session = self._session(request)
        if session is not None:
            _check_csrf(request, secret)
            self._sessions.revoke(secret)
        response = Response(status=HTTPStatus.NO_CONTENT)
        response.delete_cookie(_cookie_name(request), secure=request.is_secure, httponly=True)
        return response

    def _info(self, caller: Caller | None, secret: str, session: Session | None) -> SessionInfo:
        info = SessionInfo(version=scheduler_worker.__version__, log_in=self._log_in)
        if caller is None:
            return info
        return structs.replace(
            info,
            user=caller.name,
            rights=[right.value for right in Right if self._rights.may(caller, right)],
            csrf_token=csrf_token(secret) if session else None,
            idle_ends_at=when(session.idle_ends_at_s) if session else None,
            ends_at=when(session.ends_at_s) if session else None,
        )


def _cookie_name(request: Request) -> str:
    """Under TLS a browser takes the prefix as a proof that this host has set it."""
    return "__Host-scheduler_console" if request.is_secure else "scheduler_console"


def _check_csrf(request: Request, secret: str) -> None:
    sent = request.headers.get(CSRF_HEADER, "").encode(errors="replace")
    if not hmac.compare_digest(sent, csrf_token(secret).encode()):
        problem = f"{CSRF_HEADER}: it is not the token of this session; reload the page."
        raise Refusal(HTTPStatus.FORBIDDEN, problem)


def _json(info: SessionInfo, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(info), status, content_type=_JSON)


# The page and its assets: nothing is loaded from another place


class Asset(NamedTuple):
    """A file that is served."""

    content: bytes
    media_type: str
    etag: str


def load_assets() -> Mapping[str, Asset]:
    """The files by name."""
    assets = {}
    for file in resources.files(__package__).joinpath("assets").iterdir():
        suffix = PurePath(file.name).suffix
        if suffix in _TYPES:
            content = file.read_bytes()
            assets[file.name] = Asset(content, _TYPES[suffix], etag_of(content))
    return assets


def response_with(asset: Asset, request: Request) -> Response:
    """The answer that has the asset, or says that the browser has it already."""
    response = Response(asset.content, content_type=asset.media_type)
    response.headers.extend(HEADERS)
    response.headers["Cache-Control"] = "no-cache"  # kept, and asked for each time
    response.set_etag(asset.etag)
    if request.if_none_match.contains(asset.etag):
        response.status_code = HTTPStatus.NOT_MODIFIED
        response.set_data(b"")
    return response
