"""How errors look on the wire, and back: one table, since a client rebuilds classes by name.

A caller sees ``NoValidHost`` as Nova's own class, our errors that are the caller's business under
their own names, and ``InternalError`` for everything else, whose details stay in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from scheduler_worker import errors
from scheduler_worker.errors import (
    ClusterLockTimeout,
    ComputeHostMetricNotFound,
    Conflict,
    InternalError,
    NoValidHost,
    RequestError,
    SchedulerWorkerError,
    StateUnavailable,
)
from scheduler_worker.redaction import without_user

NOVA_MODULE = "nova.exception"
OUR_MODULE = "scheduler_worker.errors"
_NO_VALID_HOST = "No valid host was found. "
_HTTP_ERROR = 500


class WireError(msgspec.Struct, frozen=True):
    """What a failure reply says: ``module.class_name(*args, **kwargs)`` rebuilds it there."""

    module: str
    class_name: str
    message: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


def to_wire(error: Exception, request_id: str | None = None) -> WireError:
    """What a caller is told; ``request_id`` leads to the log lines of an unexpected error."""
    message = without_user(str(error))  # a value that is quoted may be a URL
    if isinstance(error, NoValidHost):
        about = {"reason": error.reason, "code": _HTTP_ERROR}
        return WireError(NOVA_MODULE, "NoValidHost", message, [message], about)
    if isinstance(error, RequestError):
        return WireError(
            OUR_MODULE, "RequestError", message, [error.field, without_user(error.problem)]
        )
    if isinstance(error, ComputeHostMetricNotFound):
        where = {"host": error.host, "node": error.node, "name": error.name, "code": _HTTP_ERROR}
        return WireError(NOVA_MODULE, "ComputeHostMetricNotFound", message, [message], where)
    for known in (ClusterLockTimeout, Conflict, StateUnavailable, InternalError):
        if isinstance(error, known):
            return WireError(OUR_MODULE, known.__name__, message, [message])
    told = "The request failed in the worker; its log says why"
    told += f" under request id {request_id}" if request_id else ""
    return WireError(OUR_MODULE, "InternalError", told, [told])


def from_wire(module: str, class_name: str, message: str) -> SchedulerWorkerError:
    """The error a client raises for a failure reply; what is not ours is an InternalError."""
    module, class_name = module.removesuffix("_Remote"), class_name.removesuffix("_Remote")
    rebuild = _REBUILT.get((module, class_name))
    return rebuild(message) if rebuild else InternalError(f"{class_name}: {message}")


def _no_valid_host(message: str) -> NoValidHost:
    return NoValidHost(message.removeprefix(_NO_VALID_HOST))


def _request_error(message: str) -> RequestError:
    field, _, problem = message.partition(": ")
    return RequestError(field, problem) if problem else RequestError("request", message)


_REBUILT: dict[tuple[str, str], Callable[[str], SchedulerWorkerError]] = {
    (NOVA_MODULE, "NoValidHost"): _no_valid_host,
    (OUR_MODULE, "RequestError"): _request_error,
    (OUR_MODULE, "ClusterLockTimeout"): errors.ClusterLockTimeout,
    (OUR_MODULE, "Conflict"): errors.Conflict,
    (OUR_MODULE, "StateUnavailable"): errors.StateUnavailable,
    (OUR_MODULE, "InternalError"): errors.InternalError,
}
