"""Errors of ``/v1``: ``application/problem+json``, as RFC 9457 has it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

import msgspec
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.wrappers import Response

from scheduler_worker.api.faults import BodyTooLarge, Refusal, refusal_of
from scheduler_worker.errors import AdministrationError, Invalid, RequestError, TextInvalid

MEDIA_TYPE = "application/problem+json"
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]+|\.\.\.)\]")


class FieldError(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with one field of the body, or with one parameter."""

    detail: str
    pointer: str | None = None
    """The field of the body, as a JSON pointer (RFC 6901)."""
    parameter: str | None = None
    """The parameter of the query."""
    line: int | None = None
    """The line in a field with a text of several lines; from 1, as its `column`."""
    column: int | None = None


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request failed (RFC 9457). Nothing has changed, unless the detail says so."""

    status: int
    title: str
    """The name of the status."""
    detail: str
    instance: str
    """The id of the request, which is in the logs too."""
    type: str = "about:blank"
    errors: tuple[FieldError, ...] = ()


class Failed(Exception):
    """Raised to answer a request with a problem."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})


def response_of(failed: Failed, request_id: str) -> Response:
    """The answer to a request that failed."""
    problem = Problem(
        status=failed.status,
        title=failed.status.phrase,
        detail=failed.detail,
        instance=request_id,
        errors=failed.errors,
    )
    response = Response(msgspec.json.encode(problem), failed.status, content_type=MEDIA_TYPE)
    response.headers.extend(failed.headers)
    return response


def failed_of(error: Exception) -> Failed | None:
    """The problem that an error is, or None where it is a defect."""
    if isinstance(error, Failed):
        return error
    if isinstance(error, BodyTooLarge):
        return Failed(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{error}.".capitalize(), headers=error.headers
        )
    if isinstance(error, (RequestError, Invalid)):
        return Failed(HTTPStatus.BAD_REQUEST, str(error), errors=list(_fields_of(error)))
    if isinstance(error, HTTPException):
        return _of_http(error)
    refusal = refusal_of(error) if not isinstance(error, Refusal) else error
    if refusal is None:
        return None
    detail = str(refusal).removeprefix("[").removesuffix("]")
    if isinstance(error, AdministrationError):
        detail = str(error)  # a fault has oVirt's words
    return Failed(HTTPStatus(refusal.status), detail, headers=refusal.headers)


def _fields_of(error: RequestError | Invalid) -> Iterator[FieldError]:
    pointer = pointer_of(error.field)
    if not isinstance(error, TextInvalid):
        yield FieldError(error.problem, pointer=pointer)
        return
    for issue in error.issues:
        at = issue.place
        yield FieldError(issue.what, pointer=pointer, line=at.line, column=at.column)


def _of_http(error: HTTPException) -> Failed:
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        detail = f"Only {allowed} are served here."
        return Failed(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers={"Allow": allowed})
    if isinstance(error, NotFound):
        return Failed(HTTPStatus.NOT_FOUND, "There is nothing here; GET /v1 has what there is.")
    status = HTTPStatus(error.code or HTTPStatus.INTERNAL_SERVER_ERROR)
    return Failed(status, error.description or error.name)


def of_parameters(error: RequestError, where: str) -> Failed:
    """The problem of a parameter: of the ``body``, else of the query."""
    if where:
        path = pointer_of(error.field)
        field_error = FieldError(error.problem, pointer=path)
        detail = f"The body: {path or '/'}: {error.problem}"
    else:
        field_error = FieldError(error.problem, parameter=error.field)
        detail = f"The parameter {error.field}: {error.problem}"
    return Failed(HTTPStatus.BAD_REQUEST, detail, errors=[field_error])


def pointer_of(path: str) -> str:
    """The JSON pointer of a path such as ``filters.hosts[0]``."""
    steps = [name or number for name, number in _STEP.findall(f".{path}")]
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)
