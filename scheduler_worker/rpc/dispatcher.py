"""From a message to a handler of an endpoint: finds the method, checks the arguments, translates
errors.

The same for every server; knows no messaging library.
"""

import inspect
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from scheduler_worker import events
from scheduler_worker.errors import (
    ArchiveUnavailable,
    BackendError,
    BusUnavailable,
    Conflict,
    DeadlineExceeded,
    NobodyListens,
    RequestError,
    SchedulerWorkerError,
    StateLost,
    StateUnavailable,
    Undeliverable,
)
from scheduler_worker.events import OTHER
from scheduler_worker.observer import Observer
from scheduler_worker.redaction import redacted
from scheduler_worker.rpc.wire_errors import DISPATCHER_MODULE, WireError, to_wire
from scheduler_worker.waiters import YieldSlot, keep_slot

LOG = logging.getLogger(__name__)
_NOT_SERVED = {"NoSuchMethod", "UnsupportedVersion"}
"""Results with which the method's name is no label, since a caller can make up any."""

TRACEPARENT = "traceparent"
"""The field of a context with the caller's trace context; our server puts the header of that name
there."""
LONGEST_NAME = 255
"""Bytes of the longest name that AMQP carries: of a queue, an exchange, a routing key."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a method. Its token and service catalogue never get this far."""

    request_id: str = ""
    global_request_id: str | None = None
    traceparent: str | None = None
    """The caller's trace context, in W3C's form, unchecked."""
    user_id: str | None = None
    project_id: str | None = None
    roles: tuple[str, ...] = ()
    """The caller's roles in Keystone, as it says itself."""
    is_admin: bool = False
    message_id: str | None = None
    """The message's own id, the same in every replica that a fanout reaches."""
    waited_s: float = 0.0
    """How long the message waited in this process before the method was called."""
    remaining_s: float = math.inf
    """How much longer the caller waits, from the moment the method is called."""
    yield_slot: YieldSlot = keep_slot
    """Inside, this request only waits, and its slot serves others."""
    may_retry: bool = False
    """Whether a cast that the bus does not let succeed now is tried again."""


class Endpoint(NamedTuple):
    """The methods of one namespace and version; each takes the context, then named arguments."""

    namespace: str | None
    version: str
    methods: Mapping[str, Callable[..., Any]]
    non_blocking: Mapping[str, Callable[[Context], bool]] = {}
    """Methods that are answered as soon as they are decoded -> whether they never block for a
    caller."""
    in_order: Mapping[str, Callable[[Mapping[str, Any]], str]] = {}
    """Methods whose messages must not overtake each other -> their key, by arguments."""


def check_names(*, topic: str, server: str | None = None, exchange: str | None = None) -> None:
    """Raise ValueError for names that no broker takes; it says which and why."""
    key = f"{topic}.{server}" if server else topic
    for what, name in (("topic and server", key), ("exchange", exchange or "")):
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise ValueError(f"{what}: {name!r:.80} is not Unicode text") from None
        if size > LONGEST_NAME:
            raise ValueError(f"{what}: a name of {size} bytes; AMQP carries {LONGEST_NAME}")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A request in plain values, unchecked."""

    method: Any
    namespace: str | None = None
    version: Any = "1.0"
    args: Any = msgspec.field(default_factory=dict)
    context: Mapping[str, Any] = msgspec.field(default_factory=dict)
    id: str | None = None
    """The message's own id, the same in every delivery."""
    is_call: bool = False
    """Whether the caller waits for an answer."""


class Result(msgspec.Struct, frozen=True):
    """The result of handling a message."""

    value: Any = None
    failure: WireError | None = None
    why: str = ""
    """What raised the failure of a cast, for an operator; callers may learn less."""
    is_retryable: bool = False
    """Whether the same cast may succeed later."""
    is_bounded: bool = False
    """Whether a failure that recurs is taken for a lasting one."""
    is_dropped: bool = False
    """Whether nothing was done, because the caller no longer waits."""
    is_cut_off: bool = False
    """Whether this worker has lost the state, and another one may have it."""


class Dispatcher:
    """Calls the methods of some endpoints."""

    def __init__(self, endpoints: Iterable[Endpoint], observer: Observer | None = None) -> None:
        self._interfaces = [
            (endpoint, {name: _Method(handler) for name, handler in endpoint.methods.items()})
            for endpoint in endpoints
        ]
        self._non_blocking = {
            (each.namespace, name): never_blocks
            for each, _ in self._interfaces
            for name, never_blocks in each.non_blocking.items()
        }
        self._in_order = {
            (each.namespace, name): key
            for each, _ in self._interfaces
            for name, key in each.in_order.items()
        }
        self._observer = observer or Observer()

    def order_of(self, message: Message) -> str | None:
        """What is handled in the order of arrival with this message; None: it waits for none."""
        try:
            key = self._in_order.get((message.namespace, message.method))
        except TypeError:  # a caller may send anything as a name
            return None
        return key(message.args) if key and isinstance(message.args, dict) else None

    def is_non_blocking(self, message: Message) -> bool:
        """Whether the method may be called by a thread that must not block."""
        try:
            never_blocks = self._non_blocking.get((message.namespace, message.method))
        except TypeError:  # a caller may send anything as a name
            return False
        return never_blocks is not None and never_blocks(context_of(message))

    async def serve(
        self,
        message: Message,
        *,
        waited_s: float = 0.0,
        remaining_s: float = math.inf,
        yield_slot: YieldSlot = keep_slot,
        may_retry: bool = False,
    ) -> Result:
        """Call the handler, and await it if it is a coroutine; never raises.

        ``waited_s`` is how long the message waited in this process, ``remaining_s`` how much longer
        the caller waits.
        """
        if remaining_s <= 0:
            return self._expired()
        began_s = time.monotonic()
        try:
            context = context_of(message, remaining_s, yield_slot, waited_s, may_retry=may_retry)
            method = self._find(message)
            value = method.handler(context, **method.check(message.args))
            result = Result(await value if inspect.iscoroutine(value) else value)
        except _NotServedError as error:
            LOG.warning("Refused a message: %.200s", error)
            result = Result(failure=error.wire)
        except DeadlineExceeded as error:
            if message.is_call:
                return self._expired()
            result = self._failed(error, message)
        except Exception as error:  # to_wire decides what it means
            result = self._failed(error, message)
        outcome = result.failure.class_name if result.failure else "ok"
        name = OTHER if outcome in _NOT_SERVED else message.method
        self._observer.count(events.REQUESTS, name, outcome)
        self._observer.time(events.REQUEST_TIME, time.monotonic() - began_s)
        return result

    def _expired(self) -> Result:
        self._observer.count(events.DROPPED, "expired")
        return Result(is_dropped=True)

    def _find(self, message: Message) -> "_Method":
        """Find the first interface that fits and has the method, as oslo.messaging does."""
        name, version = message.method, message.version
        fitting = [
            methods
            for endpoint, methods in self._interfaces
            if endpoint.namespace == message.namespace and supports(endpoint.version, version)
        ]
        if not fitting:
            raise _NotServedError(
                "UnsupportedVersion",
                f"Endpoint does not support RPC version {version}. Attempted method: {name}",
            )
        for methods in fitting:
            if isinstance(name, str) and name in methods:
                return methods[name]
        raise _NotServedError("NoSuchMethod", f"Endpoint does not support RPC method {name}")

    def _failed(self, error: Exception, message: Message) -> Result:
        """Log the traceback of a defect, and one line for a failed cast; calls are answered.

        StateUnavailable is not logged for each message: the state itself logs an outage once.
        """
        request_id = message.context.get("request_id")
        if not isinstance(error, SchedulerWorkerError):
            LOG.error("%s failed (request %s)", message.method, request_id, exc_info=error)
        elif isinstance(error, ArchiveUnavailable):
            LOG.warning("%s failed (request %s): %s", message.method, request_id, error)
        elif not message.is_call and not isinstance(error, StateUnavailable):
            LOG.warning(
                "%s was cast and failed (request %s): %s", message.method, request_id, error
            )
        is_lasting = isinstance(error, Undeliverable) and not isinstance(error, NobodyListens)
        return Result(
            failure=to_wire(error, request_id),
            why="" if message.is_call else redacted(f"{type(error).__name__}: {error}"),
            is_retryable=isinstance(error, BackendError | Conflict) and not is_lasting,
            is_bounded=isinstance(error, BusUnavailable),
            is_cut_off=isinstance(error, StateLost),
        )


class _NotServedError(Exception):
    """Raised for a method or version that is not served; carries the wire form."""

    def __init__(self, class_name: str, message: str) -> None:
        super().__init__(message)
        self.wire = WireError(DISPATCHER_MODULE, class_name, message, [message])


class _Method:
    """A handler, and the arguments that it takes."""

    def __init__(self, handler: Callable[..., Any]) -> None:
        _, *parameters = inspect.signature(handler).parameters.values()
        self.handler = handler
        self._takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        self._known = {parameter.name for parameter in parameters}
        self._required = [
            parameter.name
            for parameter in parameters
            if parameter.default is parameter.empty
            and parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
        ]

    def check(self, arguments: object) -> dict[str, Any]:
        """The arguments, checked by name. RequestError names the first that is wrong."""
        if not isinstance(arguments, dict):
            raise RequestError("args", "expected a mapping of names to values")
        for name in self._required:
            if name not in arguments:
                raise RequestError(name, "is missing")
        for name in arguments:
            if name not in self._known and not self._takes_all:
                raise RequestError(str(name)[:80], "is not an argument of this method")
        return arguments


_LONGEST_VERSION = 40


def supports(ours: str, theirs: object) -> bool:
    """Whether an interface of version ``ours`` serves a caller of version ``theirs``."""
    if not isinstance(theirs, str) or len(theirs) > _LONGEST_VERSION:
        return False
    our_major, our_minor = _parts(ours)
    try:
        major, minor = _parts(theirs)
    except ValueError:
        return False
    return major == our_major and minor <= our_minor


@lru_cache
def _parts(version: str) -> tuple[int, int]:
    major, minor, *_ = (int(part) for part in version.split("."))
    return major, minor


def context_of(
    message: Message,
    remaining_s: float = math.inf,
    yield_slot: YieldSlot = keep_slot,
    waited_s: float = 0.0,
    *,
    may_retry: bool = False,
) -> Context:
    """What handlers may know of the caller; its token and service catalogue are left out."""
    fields, roles = message.context, message.context.get("roles")
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    return Context(
        request_id=texts.get("request_id", ""),
        global_request_id=texts.get("global_request_id"),
        traceparent=texts.get(TRACEPARENT),
        user_id=texts.get("user_id"),
        project_id=texts.get("project_id"),
        roles=tuple(role for role in roles if isinstance(role, str))
        if isinstance(roles, list)
        else (),
        is_admin=fields.get("is_admin") is True,
        message_id=message.id,
        waited_s=waited_s,
        remaining_s=remaining_s,
        yield_slot=yield_slot,
        may_retry=may_retry,
    )
