"""Errors over REST: oVirt's faults, and the problems of ``/v1``, as RFC 9457 has them."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

import msgspec
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.exceptions import NotFound as NoRoute
from werkzeug.wrappers import Response

from scheduler_worker import errors
from scheduler_worker.api.codec import MalformedBody
from scheduler_worker.api.resource_types import Fault

LOG = logging.getLogger(__name__)

FAILED = "Operation Failed"
IMMUTABLE = "Broken immutability constraint"
_MALFORMED = "Request syntactically incorrect."
_STATUSES: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (errors.RequestError, HTTPStatus.BAD_REQUEST),
    (errors.Conflict, HTTPStatus.CONFLICT),
    (errors.BackendError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.Disabled, HTTPStatus.NOT_FOUND),
    (errors.Invalid, HTTPStatus.BAD_REQUEST),
    (errors.NameTaken, HTTPStatus.BAD_REQUEST),
    (errors.Forbidden, HTTPStatus.FORBIDDEN),
    (errors.Ambiguous, HTTPStatus.CONFLICT),
    (errors.ConflictingChange, HTTPStatus.CONFLICT),
)
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


class Refusal(Exception):
    """Raised to answer a request with a fault or a problem."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        reason: str = FAILED,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """``detail`` is in brackets where oVirt's clients expect them; a problem is without."""
        super().__init__(detail)
        self.status = HTTPStatus(status)
        self.fault = Fault(reason=reason, detail=detail)
        self.errors = tuple(errors)
        self.headers = dict(headers or {})


class BodyTooLarge(Refusal):
    """Raised for a body above the limit; it was not read whole, so the connection is closed."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            400,
            f"the body has more than {limit} bytes",
            reason=_MALFORMED,
            headers={"Connection": "close"},
        )


def refusal_of(error: Exception, doing: str = "") -> Refusal | None:
    """The fault that answers an error, or None where it is a defect.

    ``doing`` begins the detail of a refused change, such as ``Cannot add Scheduling Policy.``
    """
    if isinstance(error, MalformedBody):
        return Refusal(400, str(error), reason=_MALFORMED)
    if isinstance(error, errors.NotFound):
        return Refusal(404, f"Entity not found: {error.name}")
    if isinstance(error, errors.Incomplete):
        missing = f"{error.what} [{', '.join(error.fields)}] required for add"
        return Refusal(400, missing, reason="Incomplete parameters")
    problem = f"Name is in use. {error}" if isinstance(error, errors.NameTaken) else str(error)
    if isinstance(error, errors.BackendError) and error.service:
        LOG.warning("A request failed: %s", error)
        problem = f"The {error.service} cannot be used now; the log of the API has the reason"
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            headers = {"Retry-After": "1"} if kind is errors.BackendError else {}
            return Refusal(status, f"[{f'{doing} {problem}'.lstrip()}]", headers=headers)
    return None


def response_of(refusal: Refusal, request_id: str) -> Response:
    """The problem that answers a request which failed."""
    status, detail = refusal.status, str(refusal)
    detail = detail[1:-1] if detail.startswith("[") else detail
    problem = Problem(
        status=status,
        title=status.phrase,
        detail=detail,
        instance=request_id,
        errors=refusal.errors,
    )
    response = Response(msgspec.json.encode(problem), status, content_type=MEDIA_TYPE)
    response.headers.extend(refusal.headers)
    return response


def problem_of(error: Exception) -> Refusal | None:
    """The problem that answers an error, or None where it is a defect."""
    if isinstance(error, BodyTooLarge):
        detail = f"{error}.".capitalize()
        return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, headers=error.headers)
    if isinstance(error, (errors.RequestError, errors.Invalid)):
        return Refusal(HTTPStatus.BAD_REQUEST, str(error), errors=list(_fields_of(error)))
    if isinstance(error, HTTPException):
        return _of_http(error)
    refusal = error if isinstance(error, Refusal) else refusal_of(error)
    if refusal is not None and isinstance(error, errors.AdministrationError):
        return Refusal(refusal.status, str(error))  # a fault has oVirt's words
    return refusal


def _fields_of(error: errors.RequestError | errors.Invalid) -> Iterator[FieldError]:
    pointer = pointer_of(error.field)
    if not isinstance(error, errors.TextInvalid):
        yield FieldError(error.problem, pointer=pointer)
        return
    for issue in error.issues:
        at = issue.place
        yield FieldError(issue.what, pointer=pointer, line=at.line, column=at.column)


def _of_http(error: HTTPException) -> Refusal:
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        detail = f"Only {allowed} are served here."
        return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers={"Allow": allowed})
    if isinstance(error, NoRoute):
        return Refusal(HTTPStatus.NOT_FOUND, "There is nothing here; GET /v1 has what there is.")
    return Refusal(error.code or 500, error.description or error.name)


def of_parameters(error: errors.RequestError, where: str) -> Refusal:
    """The problem of a parameter: of the ``body``, else of the query."""
    if where:
        path = pointer_of(error.field)
        field_error = FieldError(error.problem, pointer=path)
        detail = f"The body: {path or '/'}: {error.problem}"
    else:
        field_error = FieldError(error.problem, parameter=error.field)
        detail = f"The parameter {error.field}: {error.problem}"
    return Refusal(HTTPStatus.BAD_REQUEST, detail, errors=[field_error])


def pointer_of(path: str) -> str:
    """The JSON pointer of a path such as ``filters.hosts[0]``."""
    steps = [name or number for name, number in _STEP.findall(f".{path}")]
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)
