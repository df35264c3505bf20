"""The wire form of errors, in both directions: clients rebuild classes by name.

A caller sees ``NoValidHost`` as Nova's own class, errors that concern the caller under our own
names, and ``InternalError`` for everything else, whose details stay in the log.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from scheduler_worker import errors
from scheduler_worker.errors import (
    InternalError,
    Invalid,
    NoValidHost,
    RequestError,
    SchedulerWorkerError,
)
from scheduler_worker.redaction import without_user

NOVA_MODULE = "nova.exception"
OUR_MODULE = "scheduler_worker.errors"
DISPATCHER_MODULE = "oslo_messaging.rpc.dispatcher"
"""The module that callers expect for errors about methods and versions."""
_OF_PLACEMENT = (errors.PlacementUnavailable, errors.PlacementRefused, errors.PlacementConflict)
_NO_VALID_HOST = "No valid host was found. "
_ALLOCATION = "Failed to update allocations for consumer "
_AWAY = "The {} cannot be used by the worker now; its log says why. Try again"
"""Hides the address and account of a service from callers."""
_HTTP_ERROR = 500
_BY_MESSAGE = (
    errors.ClusterLockTimeout,
    errors.DeadlineExceeded,
    errors.Conflict,
    errors.StateUnavailable,
    errors.ArchiveUnavailable,
    errors.InternalError,
    errors.NotFound,
    errors.Disabled,
    errors.Forbidden,
    errors.Ambiguous,
    errors.Incomplete,
    errors.EditConflict,
    errors.NameTaken,
    errors.InUse,
)
"""The worker's errors whose message is all that callers get."""


class WireError(msgspec.Struct, frozen=True):
    """A failure reply; the client rebuilds it as ``module.class_name(*args, **kwargs)``."""

    module: str
    class_name: str = msgspec.field(name="class")
    message: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


def to_wire(error: Exception, request_id: str | None = None) -> WireError:
    """Encode an error; ``request_id`` leads to the log lines of an unexpected one."""
    message = without_user(str(error))  # a quoted value may be a URL with credentials
    if (of_nova := _of_nova(error, message)) is not None:
        return of_nova
    for kind in (RequestError, Invalid):
        if isinstance(error, kind):
            problem = without_user(error.problem)
            return WireError(OUR_MODULE, kind.__name__, message, [error.field, problem])
    if isinstance(error, errors.StateUnavailable | errors.ArchiveUnavailable):
        message = _AWAY.format(error.service)
    for known in (*_BY_MESSAGE, errors.ClusterPolicyError):
        if isinstance(error, known):
            return WireError(OUR_MODULE, known.__name__, message, [message])
    text = "The request failed in the worker; its log says why"
    text += f" under request id {request_id}" if request_id else ""
    return WireError(OUR_MODULE, "InternalError", text, [text])


def _of_nova(error: Exception, message: str) -> WireError | None:
    """An error that Nova has a class for, and its conductors an answer to."""
    kwargs: dict[str, Any]
    if isinstance(error, NoValidHost):
        name, kwargs = "NoValidHost", {"reason": error.reason}
    elif isinstance(error, _OF_PLACEMENT):
        # Nova's scheduler says so too, and conductors put the instance back as it was.
        name, kwargs = "NoValidHost", {"reason": message}
        message = f"{_NO_VALID_HOST}{message}"
    elif isinstance(error, errors.AllocationUpdateFailed):
        name = "AllocationUpdateFailed"
        kwargs = {"consumer_uuid": error.consumer, "error": error.problem}
    elif isinstance(error, errors.ComputeHostMetricNotFound):
        name = "ComputeHostMetricNotFound"
        kwargs = {"host": error.host, "node": error.node, "name": error.name}
    else:
        return None
    return WireError(NOVA_MODULE, name, message, [message], {**kwargs, "code": _HTTP_ERROR})


def from_wire(module: str, class_name: str, message: str) -> SchedulerWorkerError:
    """Decode a failure reply; an error of another module becomes an InternalError."""
    module, class_name = module.removesuffix("_Remote"), class_name.removesuffix("_Remote")
    rebuild = _REBUILT.get((module, class_name))
    return rebuild(message) if rebuild else InternalError(f"{class_name}: {message}")


def _from_message(kind: type[SchedulerWorkerError], message: str) -> SchedulerWorkerError:
    """An error whose parts are lost: it has its message alone."""
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    return error


def _allocation_update_failed(message: str) -> SchedulerWorkerError:
    consumer, _, problem = message.removeprefix(_ALLOCATION).partition(". Error: ")
    return errors.AllocationUpdateFailed(consumer, problem)


def _of_field(
    kind: Callable[[str, str], SchedulerWorkerError], message: str
) -> SchedulerWorkerError:
    field, _, problem = message.partition(": ")
    return kind(field, problem) if problem else kind("request", message)


_REBUILT: dict[tuple[str, str], Callable[[str], SchedulerWorkerError]] = {
    (DISPATCHER_MODULE, "UnsupportedVersion"): errors.NotServed,
    (NOVA_MODULE, "NoValidHost"): lambda text: NoValidHost(text.removeprefix(_NO_VALID_HOST)),
    (NOVA_MODULE, "AllocationUpdateFailed"): _allocation_update_failed,
    (OUR_MODULE, "RequestError"): partial(_of_field, RequestError),
    (OUR_MODULE, "Invalid"): partial(_of_field, Invalid),
    (OUR_MODULE, "ClusterPolicyError"): lambda text: errors.ClusterPolicyError([text]),
    **{(OUR_MODULE, each.__name__): partial(_from_message, each) for each in _BY_MESSAGE},
}
