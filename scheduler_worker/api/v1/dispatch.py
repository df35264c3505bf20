"""Serves ``/v1``: from a request to its operation, and from the answer to a response."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from http import HTTPStatus
from typing import Any

import msgspec
from werkzeug.http import parse_etags
from werkzeug.routing import Map, MapAdapter, Rule
from werkzeug.wrappers import Request, Response

import scheduler_worker
from scheduler_worker.api.calls import ROUTE
from scheduler_worker.api.sessions import Caller
from scheduler_worker.api.v1 import openapi
from scheduler_worker.api.v1.operations import ROOT, Answer, Call, Operation, etag_of
from scheduler_worker.api.v1.problems import Failed, of_body, of_query

_JSON = "application/json"
_NUMBER = re.compile(r"[0-9]{1,9}\Z")
_ARGUMENT = re.compile(r"\{(\w+)\}")


class Entry(msgspec.Struct, frozen=True):
    """The entry of the API."""

    version: str
    """Of the program; the version of the API is in its path."""
    links: dict[str, str]


class V1:
    """Serves operations, and describes them."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        own = [
            Operation("GET", "", "entry", "Where everything is.", self._entry, answer=Entry),
            Operation(
                "GET",
                "/openapi.json",
                "openapi",
                "The description of this API in OpenAPI 3.1.",
                self._openapi,
                answer=dict[str, Any],
            ),
        ]
        self._operations = [*own, *operations]
        self._routes = Map(map(_rule, self._operations), strict_slashes=False)

    @cached_property
    def description(self) -> openapi.Plain:
        """In OpenAPI. Made when it is first asked for: its schemas take some 20 ms."""
        return openapi.describe(self._operations)

    def owns(self, path: str) -> bool:
        """Whether a path is below the root."""
        return path == ROOT or path.startswith(f"{ROOT}/")

    def respond(self, request: Request, caller: Caller, body: bytes, request_id: str) -> Response:
        """The response to a request. Raises Failed and the errors of the use cases."""
        adapter: MapAdapter = self._routes.bind("")
        operation: Operation
        operation, arguments = adapter.match(request.path.rstrip("/"), request.method)
        request.environ[ROUTE] = ROOT + operation.path
        _check_accept(request)
        parameters = _single(request)
        call = Call(
            caller=caller,
            request_id=request_id,
            path=request.path.rstrip("/"),
            parameters=parameters,
            query=_query(operation, parameters),
            body=_body(operation, request, body),
            if_match=request.headers.get("If-Match"),
            if_none_match=request.headers.get("If-None-Match"),
        )
        answer: Answer = operation.serve(call, **arguments)
        return _response(operation, request, answer)

    def _entry(self, call: Call) -> Answer:
        listed = [each for each in self._operations if each.is_safe and "{" not in each.path]
        links = {each.name: ROOT + each.path for each in listed if each.path}
        return Answer(Entry(scheduler_worker.__version__, links))

    def _openapi(self, call: Call) -> Answer:
        return Answer(self.description)


def _rule(operation: Operation) -> Rule:
    path = _ARGUMENT.sub(r"<\1>", ROOT + operation.path)
    return Rule(path, methods=[operation.method], endpoint=operation)


def _check_accept(request: Request) -> None:
    accepted = request.accept_mimetypes
    if accepted and not accepted.best_match([_JSON, "application/problem+json"]):
        raise Failed(HTTPStatus.NOT_ACCEPTABLE, f"Only {_JSON} is answered here.")


def _single(request: Request) -> dict[str, str]:
    """The parameters of the query. Raises Failed for one that is given twice."""
    found = request.args.to_dict(flat=False)
    for name, values in found.items():
        if len(values) > 1:
            raise of_query(msgspec.ValidationError(f"is given {len(values)} times - at `$.{name}`"))
    return {name: values[0] for name, values in found.items()}


def _query(operation: Operation, parameters: dict[str, str]) -> Any:
    if operation.query is None and not parameters:
        return None
    values: dict[str, Any] = dict(parameters)
    if _NUMBER.match(parameters.get("limit", "")):
        values["limit"] = int(parameters["limit"])
    try:
        # All others are texts. A lax conversion would also take "null" for a null.
        return msgspec.convert(values, operation.query or _NoQuery)
    except msgspec.ValidationError as error:
        raise of_query(error) from None


class _NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Of operations without parameters."""


def _body(operation: Operation, request: Request, body: bytes) -> Any:
    if operation.body is None:
        if body:
            raise Failed(HTTPStatus.BAD_REQUEST, "A body has no meaning here; send none.")
        return None
    if request.mimetype != _JSON:
        raise Failed(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"The body must be JSON: send Content-Type: {_JSON}.",
        )
    try:
        return msgspec.json.decode(body, type=operation.body)
    except msgspec.ValidationError as error:
        raise of_body(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Failed(HTTPStatus.BAD_REQUEST, f"The body is no JSON: {error}") from None


def _response(operation: Operation, request: Request, answer: Answer) -> Response:
    body = b"" if answer.body is None else msgspec.json.encode(answer.body)
    response = Response(body, answer.status, content_type=_JSON)
    if answer.body is None:
        response.status_code = HTTPStatus.NO_CONTENT
        del response.headers["Content-Type"]
        return response
    if answer.next is not None:
        response.headers["Link"] = f'<{answer.next}>; rel="next"'
    if operation.has_etag:
        etag = etag_of(body)
        response.set_etag(etag)
        response.headers["Cache-Control"] = "private, no-cache"  # kept, and asked for each time
        wanted = request.headers.get("If-None-Match")
        if operation.is_safe and wanted is not None and _holds(wanted, etag):
            response.status_code = HTTPStatus.NOT_MODIFIED
            response.set_data(b"")
            del response.headers["Content-Type"]
    return response


def _holds(header: str, etag: str) -> bool:
    wanted = parse_etags(header)
    return wanted.star_tag or wanted.contains_weak(etag)
