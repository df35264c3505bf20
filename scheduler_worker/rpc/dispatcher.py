"""From a message to a handler: finds the method, checks the arguments, translates errors.

The same for every server; no library of any bus is known here.
"""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import msgspec

from scheduler_worker.errors import (
    BackendError,
    Conflict,
    RequestError,
    SchedulerWorkerError,
    Undeliverable,
)
from scheduler_worker.pauses import complete
from scheduler_worker.ports import Observer
from scheduler_worker.rpc.contract import Context, Endpoint
from scheduler_worker.rpc.wire_errors import WireError

LOG = logging.getLogger(__name__)

StepAside = Callable[[], AbstractContextManager[None]]
Translate = Callable[[Exception, str | None], WireError]
"""What a handler's exception looks like on the wire, given the id of the request."""

DISPATCHER_MODULE = "oslo_messaging.rpc.dispatcher"
"""Where callers expect the errors about methods and versions to be from."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it came, in plain values."""

    method: Any
    namespace: str | None = None
    version: Any = "1.0"
    args: Any = msgspec.field(default_factory=dict)
    context: Mapping[str, Any] = msgspec.field(default_factory=dict)
    id: str | None = None
    """The message's own id, the same in every delivery."""
    is_call: bool = False
    """Whether somebody waits for an answer."""


class Served(msgspec.Struct, frozen=True):
    """What became of a message."""

    value: Any = None
    failure: WireError | None = None
    again: bool = False
    """Whether the same cast may succeed later."""
    dropped: bool = False
    """Whether it was not begun, because its caller no longer waits."""


class Dispatcher:
    """Serves the methods of some endpoints."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        translate: Translate,
        observer: Observer | None = None,
    ) -> None:
        self._interfaces = [
            (each, {name: _Method(handler) for name, handler in each.methods.items()})
            for each in endpoints
        ]
        self._translate = translate
        self._observer = observer or Observer()

    def serve(
        self, message: Message, *, patience_s: float = math.inf, step_aside: StepAside = nullcontext
    ) -> Served:
        """The same as :meth:`serving`, for servers that give each request a thread."""
        return complete(self.serving(message, patience_s=patience_s, step_aside=step_aside))

    async def serving(
        self, message: Message, *, patience_s: float = math.inf, step_aside: StepAside = nullcontext
    ) -> Served:
        """Call the handler, and await it if it is a coroutine; never raises.

        ``patience_s`` is how much longer the caller waits.
        """
        if patience_s <= 0:
            self._observer.message_dropped("expired")
            return Served(dropped=True)
        began_s = time.monotonic()
        try:
            served = Served(await self._call(message, patience_s, step_aside))
        except _NotServedError as error:
            LOG.warning("Refused a message: %.200s", error)
            served = Served(failure=error.wire)
        except Exception as error:  # what it means is for translate to say
            served = self._failed(error, message)
        result = served.failure.class_name if served.failure else "ok"
        self._observer.request_served(_name(message), result, time.monotonic() - began_s)
        return served

    async def _call(self, message: Message, patience_s: float, step_aside: StepAside) -> Any:
        method = self._find(message)
        arguments = method.check(message.args)
        context = _context(message, patience_s, step_aside)
        result = method.handler(context, **arguments)
        return await result if inspect.iscoroutine(result) else result

    def _find(self, message: Message) -> _Method:
        """The first interface that fits and has the method, as oslo.messaging finds it."""
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
            if isinstance(name, str) and name in methods and not name.startswith("_"):
                return methods[name]
        raise _NotServedError("NoSuchMethod", f"Endpoint does not support RPC method {name}")

    def _failed(self, error: Exception, message: Message) -> Served:
        """Log all of a defect, and a line of a failed cast; who called hears for himself."""
        request_id = message.context.get("request_id")
        if not isinstance(error, SchedulerWorkerError):
            LOG.error("%s failed (request %s)", message.method, request_id, exc_info=error)
        elif not message.is_call:
            LOG.warning(
                "%s was cast and failed (request %s): %s", message.method, request_id, error
            )
        return Served(failure=self._translate(error, request_id), again=_may_pass(error))


class _NotServedError(Exception):
    """Raised for a method or version that is not served; carries its wire form."""

    def __init__(self, class_name: str, message: str) -> None:
        super().__init__(message)
        self.wire = WireError(DISPATCHER_MODULE, class_name, message, [message])


class _Method:
    """A handler, and which arguments it takes."""

    def __init__(self, handler: Callable[..., Any]) -> None:
        _, *parameters = inspect.signature(handler).parameters.values()
        self.handler = handler
        self._takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
        self._known = {each.name for each in parameters}
        self._required = [
            each.name
            for each in parameters
            if each.default is each.empty
            and each.kind in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}
        ]

    def check(self, arguments: object) -> dict[str, Any]:
        """The arguments, if the handler takes them; a RequestError names the first culprit."""
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


def _may_pass(error: Exception) -> bool:
    return isinstance(error, BackendError | Conflict) and not isinstance(error, Undeliverable)


def _name(message: Message) -> str:
    return message.method if isinstance(message.method, str) else "?"


def _context(
    message: Message,
    patience_s: float,
    step_aside: StepAside,
) -> Context:
    """What may be known of the caller: the token and the catalogue stay behind."""
    sent = message.context

    def text(name: str) -> str | None:
        value = sent.get(name)
        return value if isinstance(value, str) else None

    return Context(
        request_id=text("request_id") or "",
        global_request_id=text("global_request_id"),
        user_id=text("user_id"),
        project_id=text("project_id"),
        is_admin=sent.get("is_admin") is True,
        message_id=message.id,
        patience_s=patience_s,
        step_aside=step_aside,
    )
