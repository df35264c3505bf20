"""Messages and answers as oslo.messaging writes them: JSON in JSON, with a few names of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from scheduler_worker.rpc.dispatcher import Message, Served
from scheduler_worker.rpc.wire_errors import OUR_MODULE, WireError
from scheduler_worker.unique import unique_hex

VERSION = "2.0"
_CONTEXT = "_context_"


class MalformedError(Exception):
    """Raised for a message that is not what oslo.messaging writes; says what is wrong with it."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it came, and how to answer it."""

    message: Message
    call_id: str | None = None
    """What the caller waits for; None for a cast."""
    reply_queue: str = ""
    monitor_s: float | None = None
    """A caller that hears nothing for so long gives up."""
    patience_s: float = math.inf
    """How long the caller waits from the sending of the message."""
    refusal: WireError | None = None
    """Why it is answered without a look into it."""

    @property
    def id(self) -> str:
        """The same in every delivery of the message."""
        return self.message.id or ""


class _Outer(msgspec.Struct):
    version: str = msgspec.field(name="oslo.version", default="1.0")
    message: str | None = msgspec.field(name="oslo.message", default=None)


class _Head(msgspec.Struct):
    """What can be told of a message without reading its arguments."""

    id: str = msgspec.field(name="_unique_id", default="")
    call_id: str | None = msgspec.field(name="_msg_id", default=None)
    reply_queue: str = msgspec.field(name="_reply_q", default="")
    method: str = ""


_outer = msgspec.json.Decoder(_Outer)
_head = msgspec.json.Decoder(_Head)
_encoder = msgspec.json.Encoder()


def decode(body: bytes, expiration: str | None, max_bytes: int) -> Request:
    """The request in a message's body; ``expiration`` is its property, milliseconds as text.

    Raises MalformedError.
    """
    patience_s = _patience_s(expiration)
    try:
        outer = _outer.decode(body)
        if outer.version.partition(".")[0] != "2" or outer.message is None:
            raise MalformedError(f"its envelope is of version {outer.version:.20}, not {VERSION}")
        if len(body) > max_bytes:
            return _too_large(_head.decode(outer.message), len(body), max_bytes, patience_s)
        content = _content(outer.message)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedError(f"it cannot be decoded: {error}") from None
    return _request(content, patience_s)


def _content(text: str) -> dict[str, Any]:
    try:
        content = msgspec.json.decode(text)
    except msgspec.DecodeError:
        content = json.loads(text)  # Python's writers also say NaN and Infinity
    if not isinstance(content, dict):
        raise MalformedError("it is not a mapping")
    return content


def _request(content: dict[str, Any], patience_s: float) -> Request:
    call_id, reply_queue = content.get("_msg_id"), content.get("_reply_q")
    is_call = isinstance(call_id, str) and isinstance(reply_queue, str)
    unique_id, monitor_s = content.get("_unique_id"), content.get("_timeout")
    cut = len(_CONTEXT)
    return Request(
        message=Message(
            method=content.get("method"),
            namespace=content.get("namespace"),
            version=content.get("version", "1.0"),
            args=content.get("args", {}),
            context={key[cut:]: content[key] for key in content if key.startswith(_CONTEXT)},
            id=unique_id if isinstance(unique_id, str) and unique_id else unique_hex(),
            is_call=is_call,
        ),
        call_id=str(call_id) if is_call else None,
        reply_queue=str(reply_queue) if is_call else "",
        monitor_s=_monitor_s(monitor_s) if is_call else None,
        patience_s=patience_s,
    )


def _too_large(head: _Head, size: int, max_bytes: int, patience_s: float) -> Request:
    problem = f"has {size} bytes; [rpc] max_message_bytes allows {max_bytes}"
    is_call = bool(head.call_id and head.reply_queue)
    unique_id = head.id or unique_hex()
    return Request(
        message=Message(method=head.method, id=unique_id, is_call=is_call),
        call_id=head.call_id if is_call else None,
        reply_queue=head.reply_queue,
        patience_s=patience_s,
        refusal=WireError(OUR_MODULE, "RequestError", f"message: {problem}", ["message", problem]),
    )


def _patience_s(expiration: str | None) -> float:
    try:
        return math.inf if expiration is None else float(expiration) / 1000
    except ValueError:
        return math.inf


def _monitor_s(told: object) -> float | None:
    is_time = isinstance(told, int | float) and not isinstance(told, bool) and told > 0
    return float(told) if is_time else None  # type: ignore[arg-type]


def written(request: Request, served: Served) -> bytes | None:
    """What a caller is answered; None when nobody waits. Raises TypeError, ValueError."""
    if request.call_id is None or served.dropped:
        return None
    if served.failure is not None:
        return failure(request.call_id, served.failure)
    return answer(request.call_id, served.value)


def answer(call_id: str, value: Any) -> bytes:
    """The last message to a caller: what the method returned."""
    return _reply({"result": value, "failure": None, "ending": True}, call_id)


def failure(call_id: str, error: WireError) -> bytes:
    """The last message to a caller whose call failed."""
    told = {
        "class": error.class_name,
        "module": error.module,
        "message": error.message,
        "tb": [f"{error.module}.{error.class_name}: {error.message}\n"],
        "args": error.args,
        "kwargs": error.kwargs,
    }
    return _reply({"result": None, "failure": json.dumps(told), "ending": True}, call_id)


def defect_error(told: str) -> WireError:
    """What a caller is told when something broke here."""
    return WireError(OUR_MODULE, "InternalError", told, [told])


def sign_of_life(call_id: str) -> bytes:
    """A message to a caller who monitors his call: somebody works on it."""
    return _reply({"result": None, "failure": None, "ending": False}, call_id)


def _reply(content: Mapping[str, Any], call_id: str) -> bytes:
    inner = {**content, "_msg_id": call_id, "_unique_id": unique_hex()}
    outer = {"oslo.version": VERSION, "oslo.message": _encoder.encode(inner).decode()}
    return _encoder.encode(outer)
