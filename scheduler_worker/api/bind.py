"""Operations over HTTP below ``/v1``: from a request to its operation, and from the answer back.

What belongs to HTTP alone is here: paths, statuses, ETags, preconditions, links to further pages.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import msgspec
from werkzeug.routing import Map, MapAdapter, Rule
from werkzeug.wrappers import Request, Response

import scheduler_worker
from scheduler_worker.api import openapi
from scheduler_worker.api.calls import ROUTE
from scheduler_worker.api.openapi import ROOT, Plain, has_body, path_names, query_fields
from scheduler_worker.api.problems import Refusal, of_parameters
from scheduler_worker.errors import RequestError
from scheduler_worker.http_server.negotiation import preferred
from scheduler_worker.operations.callers import Caller
from scheduler_worker.operations.forms import from_text, parsed
from scheduler_worker.operations.operation import Call, Nothing, Operation, Page
from scheduler_worker.operations.rights import Access
from scheduler_worker.operations.services import UseCases

_JSON = "application/json"


class Links(msgspec.Struct, frozen=True):
    """The entry of the API."""

    version: str
    """Of the program; the version of the API is in its path."""
    links: dict[str, str]


class V1:
    """Serves operations, and describes them."""

    def __init__(
        self, operations: Sequence[Operation[Any, Any]], services: UseCases, access: Access
    ) -> None:
        self._services = services
        self._access = access
        description = "Show the description of this API in OpenAPI 3.1."
        self._operations = [
            _own("entry", "", Links, "Show where everything is.", self._entry),
            _own("openapi", "/openapi.json", Plain, description, lambda *_: self.description),
            *(operation for operation in operations if operation.path is not None),
        ]
        self._routes = _routes(
            tuple((each.name, str(each.path), each.method) for each in self._operations)
        )
        self._by_name = {each.name: each for each in self._operations}

    @cached_property
    def description(self) -> Plain:
        """In OpenAPI. Made when it is first asked for: its schemas take some 20 ms."""
        return openapi.describe(self._operations)

    def owns(self, path: str) -> bool:
        """Whether a path is below the root."""
        return path == ROOT or path.startswith(f"{ROOT}/")

    def respond(self, request: Request, caller: Caller, body: bytes, request_id: str) -> Response:
        """The response to a request. Raises Refusal and the errors of the use cases."""
        adapter: MapAdapter = self._routes.bind("")
        name, arguments = adapter.match(request.path.rstrip("/"), request.method)
        operation = self._by_name[name]
        request.environ[ROUTE] = ROOT + str(operation.path)
        if preferred(request.headers.get("Accept", ""), [_JSON]) is None:
            raise Refusal(HTTPStatus.NOT_ACCEPTABLE, f"Only {_JSON} is answered here.")
        query = _query(operation, request)
        fields = _body(operation, request, body)
        call = Call(
            operation,
            self._services,
            caller,
            self._access,
            request_id=request_id,
            subject=next(iter(arguments.values()), ""),
            check_match=partial(check_match, request),
        )
        call.allow()
        parameters = _parameters(operation, {**query, **fields}, arguments)
        try:
            answer = operation.serve(call, parameters)
        except RequestError as error:
            if error.field not in query:
                raise
            raise of_parameters(error, "") from None
        return _response(operation, request, answer, is_new=call.is_new)

    def _entry(self, call: Call, _: Nothing) -> Links:
        read = (operation for operation in self._operations if operation.method == "GET")
        links = {each.name: f"{ROOT}{each.path}" for each in read if "{" not in str(each.path)}
        del links["entry"]
        return Links(scheduler_worker.__version__, links)


def _own(
    name: str, path: str, answer: Any, text: str, serve: Callable[[Call, Nothing], Any]
) -> Operation[Nothing, Any]:
    return Operation(
        name=name, text=text, method="GET", path=path, parameters=Nothing, answer=answer,
        serve=serve, right=None,
    )  # fmt: skip


@cache
def _routes(operations: tuple[tuple[str, str, str], ...]) -> Map:
    """The rules of operations, each with name, path and method. Compiling them takes some 20 ms."""
    rules = [
        Rule(ROOT + path.replace("{", "<").replace("}", ">"), methods=[method], endpoint=name)
        for name, path, method in operations
    ]
    return Map(rules, strict_slashes=False, merge_slashes=False)


def _query(operation: Operation[Any, Any], request: Request) -> dict[str, Any]:
    """The parameters of the query. Raises Refusal for one that is given twice."""
    kinds = {field.name: field.type for field in query_fields(operation)}
    query = {}
    for name, texts in request.args.to_dict(flat=False).items():
        if len(texts) > 1:
            raise of_parameters(RequestError(name, f"is given {len(texts)} times"), "")
        if name not in kinds:
            raise of_parameters(RequestError(name, "is not known here"), "")
        query[name] = from_text(kinds[name], texts[0])
    return query


def _body(operation: Operation[Any, Any], request: Request, body: bytes) -> dict[str, Any]:
    if not has_body(operation):
        if body:
            raise Refusal(HTTPStatus.BAD_REQUEST, "A body has no meaning here; send none.")
        return {}
    fields = read_object(request, body)
    for name in path_names(operation):
        if name in fields:
            raise of_parameters(RequestError(name, "is in the path, not in the body"), "body")
    return fields


def read_object(request: Request, body: bytes) -> dict[str, Any]:
    """The object in a body of JSON. Raises Refusal."""
    if request.mimetype != _JSON:
        problem = f"The body must be JSON: send Content-Type: {_JSON}."
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, problem)
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"The body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise of_parameters(RequestError("", "expected an object"), "body")
    return document


def _parameters(
    operation: Operation[Any, Any], fields: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Any:
    try:
        return parsed(operation, {**fields, **arguments})
    except RequestError as error:
        raise of_parameters(error, "body" if has_body(operation) else "") from None


def _response(
    operation: Operation[Any, Any], request: Request, answer: Any, *, is_new: bool
) -> Response:
    if operation.answer is None:
        response = Response(status=HTTPStatus.NO_CONTENT)
        del response.headers["Content-Type"]
        return response
    following = None
    if isinstance(answer, Page) and answer.next is not None:
        query = urlencode({**request.args.to_dict(), "marker": answer.next})
        following = f"{request.path.rstrip('/')}?{query}"
        answer = Page(answer.items, following)
    body = msgspec.json.encode(answer)
    status = HTTPStatus.CREATED if is_new else operation.status
    response = Response(body, status, content_type=_JSON)
    if following is not None:
        response.headers["Link"] = f'<{following}>; rel="next"'
    if operation.method in {"GET", "PUT"}:  # it answers the resource itself
        etag = etag_of(body)
        response.set_etag(etag)
        response.headers["Cache-Control"] = "private, no-cache"  # kept, and asked for each time
        if operation.method == "GET" and request.if_none_match.contains_weak(etag):
            response.status_code = HTTPStatus.NOT_MODIFIED
            response.set_data(b"")
            del response.headers["Content-Type"]
    return response


def etag_of(body: bytes) -> str:
    """The strong ETag of an answer: a digest of its bytes, without quotation marks."""
    return hashlib.sha256(body).hexdigest()[:32]


def check_match(request: Request, resource: object, is_needed: bool = True) -> None:
    """Check the preconditions of a change of a resource, as it is now; None: there is none.

    Raises Refusal with 412 where ``If-Match`` or ``If-None-Match`` does not hold, and with 428
    where an existing resource ``is_needed`` to be named by ``If-Match`` and is not.
    """
    failed, names_one = HTTPStatus.PRECONDITION_FAILED, "If-Match" in request.headers
    now = "" if resource is None else etag_of(msgspec.json.encode(resource))
    if names_one and not (now and request.if_match.contains(now)):
        raise Refusal(failed, "If-Match: the resource has changed in the meantime; read it again.")
    if now and request.if_none_match.contains(now):
        raise Refusal(failed, "If-None-Match: there is such a resource already.")
    if is_needed and now and not names_one:
        raise Refusal(
            HTTPStatus.PRECONDITION_REQUIRED,
            "The resource exists: send its ETag as If-Match, so that no change of others is lost, "
            "or If-Match: * to change it whatever it is.",
        )
