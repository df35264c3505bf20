"""The form of errors over REST: a status and a fault, as oVirt's clients expect them."""

from collections.abc import Mapping

from scheduler_worker.api.codec import MalformedBody
from scheduler_worker.api.resource_types import Fault
from scheduler_worker.errors import (
    AdministrationError,
    BackendError,
    Conflict,
    Incomplete,
    NameTaken,
    NotFound,
    RequestError,
    SchedulerWorkerError,
)

FAILED = "Operation Failed"
INCOMPLETE = "Incomplete parameters"
IMMUTABLE = "Broken immutability constraint"
MALFORMED = "Request syntactically incorrect."

_STATUS = {"not-found": 404, "invalid": 400, "incomplete": 400, "forbidden": 403, "conflict": 409}
_UNAVAILABLE = 503
_OF_WORKER: tuple[tuple[type[SchedulerWorkerError], int], ...] = (
    (RequestError, 400),
    (Conflict, 409),
    (BackendError, _UNAVAILABLE),
)


class Refusal(Exception):
    """Raised to answer a request with a fault."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        reason: str = FAILED,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.fault = Fault(reason=reason, detail=detail)
        self.headers = dict(headers or {})


class BodyTooLarge(Refusal):
    """Raised for a body above the limit; it was not read whole, so the connection is closed."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            400,
            f"the body has more than {limit} bytes",
            reason=MALFORMED,
            headers={"Connection": "close"},
        )


def refusal_of(error: Exception, doing: str = "") -> Refusal | None:
    """The answer to an error, or None where it is a defect.

    ``doing`` begins the detail of a refused change, such as ``Cannot add Scheduling Policy.``
    """
    if isinstance(error, MalformedBody):
        return Refusal(400, str(error), reason=MALFORMED)
    if isinstance(error, AdministrationError):
        return _refused_change(error, doing)
    for kind, status in _OF_WORKER:
        if isinstance(error, kind):
            headers = {"Retry-After": "1"} if status == _UNAVAILABLE else {}
            return Refusal(status, _detail(doing, str(error)), headers=headers)
    return None


def _refused_change(error: AdministrationError, doing: str) -> Refusal:
    if isinstance(error, NotFound):
        return Refusal(404, f"Entity not found: {error.name}")
    if isinstance(error, Incomplete):
        fields = ", ".join(error.fields)
        return Refusal(400, f"{error.what} [{fields}] required for add", reason=INCOMPLETE)
    if isinstance(error, NameTaken):
        return Refusal(400, _detail(doing, f"Name is in use. {error}"))
    return Refusal(_STATUS[error.kind], _detail(doing, str(error)))


def _detail(doing: str, problem: str) -> str:
    return f"[{doing} {problem}]" if doing else f"[{problem}]"
