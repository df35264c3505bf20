"""The WSGI application: authentication, versions, forms, limits, faults, the access log.

Paths:

* ``/ovirt-engine/api``, also as ``/api``, and with the version behind it, ``.../v4``;
* ``/v1``, our own JSON API (``bind.py``);
* ``/console``, the web front end (``console/``), whose sessions are a log-in everywhere;
* ``/ovirt-engine/sso/oauth/token`` and ``/ovirt-engine/services/sso-logout``, as oVirt's client
  libraries log in and out.
"""

import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote_plus
from wsgiref.types import StartResponse, WSGIEnvironment

from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.wrappers import Request, Response

from scheduler_worker import events
from scheduler_worker.api.bind import V1
from scheduler_worker.api.calls import ROUTE, Reply, WebCall
from scheduler_worker.api.codec import Form, write
from scheduler_worker.api.console import Console
from scheduler_worker.api.ovirt import ROUTES, OvirtApi
from scheduler_worker.api.problems import BodyTooLarge, Refusal, problem_of, refusal_of, response_of
from scheduler_worker.api.rates import RateLimits, TooManyRequests
from scheduler_worker.api.sessions import LoginFailed, LoginSlowed, Sessions
from scheduler_worker.codec.typed import check_characters
from scheduler_worker.errors import RequestError
from scheduler_worker.events import OTHER
from scheduler_worker.http_server.negotiation import preferred
from scheduler_worker.observer import Observer
from scheduler_worker.operations.callers import Caller
from scheduler_worker.wording import one_line

LOG = logging.getLogger(__name__)
ACCESS = logging.getLogger("scheduler_worker.operations.access")

MAX_BODY = 1024 * 1024
"""Upper bound of a request's body, in bytes."""
VERSIONS = ("3", "4")
_DEFAULT_VERSION = "4"
_ROOT = re.compile(r"(?P<base>(?:/ovirt-engine)?/api(?:/v(?P<version>[0-9]+))?)(?P<rest>/.*|)\Z")
_TOKEN_PATH = "/ovirt-engine/sso/oauth/token"  # noqa: S105 - a path
_LOGOUT_PATH = "/ovirt-engine/services/sso-logout"
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_JSON = "application/json;charset=UTF-8"
_FORMS = {"application/xml": Form.XML, "text/xml": Form.XML, "application/json": Form.JSON}


class Application:
    """Serves the REST API."""

    def __init__(
        self,
        api: OvirtApi,
        v1: V1,
        sessions: Sessions,
        *,
        rates: RateLimits,
        max_body: int = MAX_BODY,
        foreign_caller: Callable[[WSGIEnvironment], Caller | None] = lambda _: None,
        console: Console | None = None,
        observer: Observer | None = None,
    ) -> None:
        """``foreign_caller`` knows callers by tokens of another service, and raises Refusal."""
        self._api = api
        self._v1 = v1
        self._sessions = sessions
        self._foreign_caller = foreign_caller
        self._rates = rates
        self._max_body = max_body
        self._console = console
        self._observer = observer or Observer()
        self._log_ins = {_TOKEN_PATH: self._give_token, _LOGOUT_PATH: self._log_out}

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        began_s = time.perf_counter()
        request = Request(environ)
        request_id = _request_id(request)
        who: list[str] = []
        response = self._respond(request, who, request_id)
        response.headers["Correlation-Id"] = request_id
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers["X-Content-Type-Options"] = "nosniff"
        if self._console is not None:
            self._console.without_challenge(request, response)
        if (request.content_length or 0) > self._max_body:
            # To keep the connection, the server would read all that is left of the body at once.
            response.headers["Connection"] = "close"
        took_s = time.perf_counter() - began_s
        route = environ.get(ROUTE) or OTHER  # anybody can make up paths, and methods for these
        method = OTHER if route == OTHER else request.method
        self._observer.count(events.API_REQUESTS, route, method, str(response.status_code))
        self._observer.time(events.API_TIME, took_s, route)
        ACCESS.info(
            '%s %s "%s %s" %d %s %.1f ms %s',
            request.remote_addr or "-",
            one_line(who[0]) if who else "-",
            request.method,
            one_line(request.path),
            response.status_code,
            response.content_length or 0,
            took_s * 1000,
            request_id,
        )
        return response(environ, start)

    def _respond(self, request: Request, who: list[str], request_id: str) -> Response:
        """The response to any request; ``who`` gets the name of the caller."""
        path = request.path.rstrip("/") or "/"
        console = self._console if self._console and self._console.owns(path) else None
        is_ours = self._v1.owns(path) or console is not None
        try:
            self._rates.take("address", request.remote_addr or "")
            _check_address(request)
            if console is not None:
                foreign_caller = partial(self._foreign_caller, request.environ)
                return console.respond(request, path, partial(self._body, request), foreign_caller)
            if is_ours:
                caller = self._caller(request, who)
                return self._v1.respond(request, caller, self._body(request), request_id)
            if path in self._log_ins:
                request.environ[ROUTE] = path
                return self._log_ins[path](request)
            return self._serve(request, path, who)
        except Exception as error:
            if isinstance(error, TooManyRequests):
                self._observer.count(events.API_LIMITED, error.by)
            if is_ours:
                problem = problem_of(error) or _refusal(error) or _defect(request, error)
                return response_of(problem, request_id)
            return _refused(request, _refusal(error) or _defect(request, error))

    # oVirt's resources

    def _serve(self, request: Request, path: str, who: list[str]) -> Response:
        match = _ROOT.match(path)
        if match is None:
            raise Refusal(404, f"[There is nothing at {path}; the API is at /ovirt-engine/api]")
        caller = self._caller(request, who)
        answer = _answer_form(request)
        call = WebCall(
            caller=caller,
            version=_version(request, match["version"]),
            base=match["base"],
            query=request.args,
            body=self._body(request),
            body_form=_body_form(request),
        )
        path, adapter = match["rest"] or "/", ROUTES.bind("")
        rule, arguments = adapter.match(path, request.method, return_rule=True)
        request.environ[ROUTE] = f"/api{rule.rule}".replace("<", "{").replace(">", "}")
        reply: Reply = getattr(self._api, rule.endpoint)(call, **arguments)
        response = Response(
            write(reply.body, answer), reply.status, content_type=f"{answer.value};charset=UTF-8"
        )
        if reply.location is not None:
            response.headers["Location"] = reply.location  # anybody can write a Host
        return response

    def _body(self, request: Request) -> bytes:
        """The body, which may also be of unknown length. Raises Refusal."""
        source = request.environ["wsgi.input"]
        length = request.content_length
        if length is None and not request.environ.get("wsgi.input_terminated"):
            return b""
        limit = self._max_body
        text: bytes = source.read(limit + 1 if length is None else min(length, limit + 1))
        if len(text) > limit or (length or 0) > limit:
            raise BodyTooLarge(limit)
        return text

    def _caller(self, request: Request, who: list[str]) -> Caller:
        """Who calls, whose name ``who`` gets. Raises Refusal, TooManyRequests."""
        authorization = request.authorization
        address = request.remote_addr or ""
        caller = self._foreign_caller(request.environ)
        if caller is None and authorization is not None:
            if authorization.type == "bearer" and authorization.token:
                caller = self._sessions.caller_of(authorization.token, address)
            elif authorization.type == "basic":
                check_origin(request)
                check_form(request)
                name, password = authorization.username or "", authorization.password or ""
                caller = self._sessions.log_in(name, password, address)
        if caller is None and authorization is None and self._console is not None:
            caller = self._console.caller_of(request)
        if caller is None:
            raise _unauthorized("The token is missing, expired or revoked; log in again.")
        who.append(caller.name)
        self._rates.take("user", caller.name)
        return caller

    # Log-in and log-out

    def _give_token(self, request: Request) -> Response:
        """OAuth's password grant, as oVirt's client libraries use it."""
        form = self._form(request)
        if form.get("grant_type") != "password":
            return _sso_error(400, "unsupported_grant_type", "Only grant_type=password is served.")
        check_origin(request)
        try:
            caller = self._sessions.log_in(
                form.get("username", ""), form.get("password", ""), request.remote_addr or ""
            )
        except LoginFailed as error:
            return _sso_error(400, "access_denied", str(error))
        except LoginSlowed as error:
            response = _sso_error(429, "access_denied", str(error))
            response.headers["Retry-After"] = str(int(error.wait_s) + 1)
            return response
        secret, expires_at_s = self._sessions.token_for(caller)
        return _json(
            {
                "access_token": secret,
                "scope": form.get("scope") or "ovirt-app-api",
                "exp": str(int(expires_at_s * 1000)),
                "token_type": "bearer",
            }
        )

    def _log_out(self, request: Request) -> Response:
        self._sessions.revoke(self._form(request).get("token", ""))
        return _json({})

    def _form(self, request: Request) -> dict[str, str]:
        if request.method != "POST":
            raise MethodNotAllowed(["POST"])
        text = self._body(request).decode(errors="replace")
        form = dict(parse_qsl(text, keep_blank_values=True))
        check_characters(form)
        return form


# Errors


def _refused(request: Request, refusal: Refusal) -> Response:
    try:
        form = _answer_form(request)
    except Refusal:
        form = Form.XML
    response = Response(
        write(refusal.fault, form), refusal.status, content_type=f"{form.value};charset=UTF-8"
    )
    response.headers.extend(refusal.headers)
    return response


def _defect(request: Request, error: Exception) -> Refusal:
    LOG.error("%s %s failed", request.method, one_line(request.path), exc_info=error)
    return Refusal(500, "[Internal error; the log of the API has the details]")


def _refusal(error: Exception) -> Refusal | None:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, LoginFailed):
        return _unauthorized(str(error))
    if isinstance(error, (LoginSlowed, TooManyRequests)):
        return Refusal(429, str(error), headers={"Retry-After": str(int(error.wait_s) + 1)})
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        return Refusal(405, f"[Only {allowed} are served here]", headers={"Allow": allowed})
    if isinstance(error, HTTPException):
        return Refusal(error.code or 500, f"[{error.description or error.name}]")
    return refusal_of(error)


def _unauthorized(detail: str) -> Refusal:
    challenge = 'Basic realm="scheduler_worker", Bearer realm="scheduler_worker"'
    return Refusal(401, detail, headers={"WWW-Authenticate": challenge})


# Forms


def _json(document: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(document), status, content_type=_JSON)


def _sso_error(status: int, code: str, description: str) -> Response:
    return _json({"error": description, "error_code": code}, status)


def _version(request: Request, in_path: str | None) -> int:
    version = in_path or request.headers.get("Version") or _DEFAULT_VERSION
    if version not in VERSIONS:
        served = ", ".join(VERSIONS)
        raise Refusal(400, f"[Version {version!r} is not served; there are {served}]")
    return int(version)


def _answer_form(request: Request) -> Form:
    """The form of the answer: XML unless the client wants JSON."""
    best = preferred(request.headers.get("Accept", ""), [*_FORMS])
    if best is None:
        raise Refusal(406, "[Only application/xml and application/json can be answered]")
    return _FORMS[best]


def _body_form(request: Request) -> Form:
    """The form of the body: XML unless it says otherwise."""
    name = request.mimetype or Form.XML.value
    form = _FORMS.get(name)
    if form is None and request.method in {"POST", "PUT"}:
        raise Refusal(415, f"[A body of type {name} is not read; send XML or JSON]")
    return form or Form.XML


def _check_address(request: Request) -> None:
    query = unquote_plus(request.query_string.decode("latin-1"))
    try:
        check_characters({"path": request.path, "query": query})
    except RequestError as error:
        where = error.field.removeprefix(".")
        raise Refusal(400, f"[The {where} {error.problem}]") from None


def _request_id(request: Request) -> str:
    """The caller's correlation id where it is harmless, else a new one."""
    headers = request.headers
    correlation_id = request.args.get("correlation_id") or headers.get("Correlation-Id") or ""
    return correlation_id if _REQUEST_ID.match(correlation_id) else f"req-{uuid.uuid4()}"


_TYPES_OF_FORMS = {"", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain"}
"""What a page sends to another origin without asking it first; empty: no type at all."""
_OWN_SITES = {"same-origin", "none"}
"""``none``: the user typed the address."""


def check_origin(request: Request) -> None:
    """Raises Refusal with 403 for a browser's request from another origin.

    For passwords only: a browser adds one to the requests of any page, and a token to none.
    """
    site = request.headers.get("Sec-Fetch-Site")
    # Browsers that are old, or ask over plain HTTP, send no site; a POST has its origin then.
    origin = request.headers.get("Origin")
    own = f"{request.scheme}://{request.host}"
    is_foreign = site not in _OWN_SITES if site else origin is not None and origin != own
    if is_foreign:
        raise Refusal(
            HTTPStatus.FORBIDDEN,
            "[A page of another origin has sent this request; a password is accepted from this "
            "origin only, use a token]",
        )


def check_form(request: Request) -> None:
    """Raises Refusal with 415 for a POST that an HTML form could have sent.

    Of changes a form sends POST only; a browser asks first before any other method.
    """
    if request.method == "POST" and request.mimetype in _TYPES_OF_FORMS:
        raise Refusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "[A POST with a password needs the Content-Type of its body, application/json or "
            f"application/xml; it has {request.mimetype or 'none'}]",
        )
