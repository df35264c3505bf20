"""Decodes requests and encodes answers in oslo.messaging's form: JSON in JSON.

Senders may write anything: :func:`read` and :func:`encode_result` return whatever they are given.
Bodies may be compressed as kombu does it; they are decompressed to no more than is allowed.
"""

import bz2
import json
import lzma
import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from scheduler_worker.conversion import json_reader
from scheduler_worker.rpc.dispatcher import LONGEST_NAME, TRACEPARENT, Message, Result
from scheduler_worker.rpc.wire_errors import OUR_MODULE, WireError
from scheduler_worker.unique import unique_hex

VERSION = "2.0"
_CONTEXT = "_context_"
_LONGEST_REASON = 255
_DIGITS = 15
_LONGEST_MONITOR_S = 1e9


class MalformedError(Exception):
    """Raised for a message that oslo.messaging would not write; the message says what is wrong."""


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded message, and how to answer it."""

    message: Message
    call_id: str | None = None
    """The id that the answer carries; None for a cast."""
    reply_queue: str = ""
    call_monitor_s: float | None = None
    """The caller gives up after so long without a heartbeat."""
    remaining_s: float = math.inf
    """How long the caller waits after sending the message."""
    refusal: WireError | None = None
    """Why it is answered without being handled."""

    @property
    def id(self) -> str:
        """The same in every delivery of the message."""
        return self.message.id or ""


class _Outer(msgspec.Struct):
    version: str = msgspec.field(name="oslo.version", default="1.0")
    message: str | None = msgspec.field(name="oslo.message", default=None)


class _Head(msgspec.Struct):
    """What is decoded of a message whose arguments are not."""

    id: str = msgspec.field(name="_unique_id", default="")
    call_id: str | None = msgspec.field(name="_msg_id", default=None)
    reply_queue: str = msgspec.field(name="_reply_q", default="")
    method: str = ""


_read_outer = json_reader(_Outer)
_read_head = json_reader(_Head)
_encoder = msgspec.json.Encoder()


def peek_id(body: bytes) -> str:
    """Decode nothing but a message's id; "" where it has none."""
    return _peeked(body).id


def answered_call(body: bytes) -> str:
    """The id of the call that an answer is for; "" where it has none."""
    return _peeked(body).call_id or ""


def _peeked(body: bytes) -> _Head:
    try:
        return _read_head(_read_outer(body).message or "{}")
    except Exception:  # read() says why
        return _Head()


def read(body: bytes, expiration: str | None, max_bytes: int) -> WireRequest | MalformedError:
    """As :func:`decode`, but returns the error; never raises."""
    try:
        return decode(body, expiration, max_bytes)
    except MalformedError as error:
        return error
    except Exception as error:  # whatever else a sender manages to break
        return MalformedError(
            f"it cannot be decoded: {type(error).__name__}: {error}"[:_LONGEST_REASON]
        )


def decode(body: bytes, expiration: str | None, max_bytes: int) -> WireRequest:
    """Decode a body; its property ``expiration`` is milliseconds as text. Raises MalformedError."""
    remaining_s = _remaining_s(expiration)
    try:
        outer = _read_outer(body)
        if outer.version.partition(".")[0] != "2" or outer.message is None:
            raise MalformedError(f"its envelope is of version {outer.version:.20}, not {VERSION}")
        if len(body) > max_bytes:
            return _too_large(_read_head(outer.message), len(body), max_bytes, remaining_s)
        content, is_text = _content(outer.message)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise MalformedError(f"it cannot be decoded: {error}") from None
    request = _request(content, remaining_s)
    if is_text:
        return request
    # Text that cannot be encoded cannot be stored or logged.
    message = Message(method=None, is_call=request.message.is_call, id=request.id)
    refusal = _refusal("has text with half a surrogate pair, which is no Unicode")
    return msgspec.structs.replace(request, message=message, refusal=refusal)


def _content(text: str) -> tuple[dict[str, Any], bool]:
    """A message's fields, and whether all of its text is Unicode."""
    is_text = True
    try:
        content = msgspec.json.decode(text)
    except msgspec.DecodeError:
        content = json.loads(text)  # Python's encoder also writes NaN, Infinity and lone surrogates
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            is_text = False
    if not isinstance(content, dict):
        raise MalformedError("it is not a mapping")
    return content, is_text


def traced(request: WireRequest, traceparent: str) -> WireRequest:
    """The same request with its caller's trace context, unless the context has one already."""
    message = request.message
    context = {TRACEPARENT: traceparent, **message.context}
    message = msgspec.structs.replace(message, context=context)
    return msgspec.structs.replace(request, message=message)


def _request(content: dict[str, Any], remaining_s: float) -> WireRequest:
    call_id, reply_queue = content.get("_msg_id"), content.get("_reply_q")
    is_call = _is_call(call_id, reply_queue)
    unique_id, call_monitor_s = content.get("_unique_id"), content.get("_timeout")
    cut = len(_CONTEXT)
    return WireRequest(
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
        call_monitor_s=_call_monitor_s(call_monitor_s) if is_call else None,
        remaining_s=remaining_s,
    )


def _is_call(call_id: object, reply_queue: object) -> bool:
    """Whether the caller waits for an answer. Raises MalformedError where none can reach it."""
    if not isinstance(call_id, str) or not isinstance(reply_queue, str):
        return False
    for name, value in (("_msg_id", call_id), ("_reply_q", reply_queue)):
        try:
            is_short = len(value.encode()) <= LONGEST_NAME
        except UnicodeEncodeError:
            is_short = False
        if not is_short:
            raise MalformedError(
                f"its {name} is not Unicode text of at most {LONGEST_NAME} bytes; "
                "it cannot be answered"
            )
    return True


def _refusal(problem: str) -> WireError:
    return WireError(OUR_MODULE, "RequestError", f"message: {problem}", ["message", problem])


def _too_large(head: _Head, size: int, max_bytes: int, remaining_s: float) -> WireRequest:
    problem = f"has {size} bytes; [rpc] max_message_bytes allows {max_bytes}"
    is_call = bool(head.call_id and head.reply_queue) and _is_call(head.call_id, head.reply_queue)
    unique_id = head.id or unique_hex()
    return WireRequest(
        message=Message(method=head.method, id=unique_id, is_call=is_call),
        call_id=head.call_id if is_call else None,
        reply_queue=head.reply_queue,
        remaining_s=remaining_s,
        refusal=_refusal(problem),
    )


def _remaining_s(expiration: str | None) -> float:
    """Seconds; infinite for what a broker would not accept as an expiration."""
    is_number = expiration is not None and expiration.isascii() and expiration.isdigit()
    return int(expiration[:_DIGITS]) / 1000 if is_number and expiration else math.inf


def _call_monitor_s(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return None
    return float(min(value, _LONGEST_MONITOR_S))


def encode_result(request: WireRequest, result: Result) -> bytes | None:
    """The answer to a caller; None for a cast. Never raises.

    A value that cannot be encoded becomes a failure.
    """
    if request.call_id is None or result.is_dropped:
        return None
    if result.failure is None:
        try:
            return encode_answer(request.call_id, result.value)
        except Exception as error:
            result = Result(failure=internal_error(f"The answer cannot be encoded: {error!r:.200}"))
    assert result.failure is not None  # noqa: S101
    try:
        return encode_failure(request.call_id, result.failure)
    except Exception:  # it quotes something that cannot be encoded
        return encode_failure(request.call_id, internal_error("The error cannot be encoded"))


def encode_answer(call_id: str, value: Any) -> bytes:
    """The last message to a caller: the method's result."""
    return _reply({"result": value, "failure": None, "ending": True}, call_id)


def encode_failure(call_id: str, error: WireError) -> bytes:
    """The last message to a caller whose call failed."""
    traceback = [f"{error.module}.{error.class_name}: {error.message}\n"]
    failure = json.dumps({**msgspec.to_builtins(error), "tb": traceback})
    return _reply({"result": None, "failure": failure, "ending": True}, call_id)


def failure_instead_of(body: bytes, why: str) -> bytes | None:
    """A failure in place of an answer that the broker refused; None where it was a failure."""
    content = msgspec.json.decode(_read_outer(body).message or "{}")
    if content["failure"] is not None:
        return None
    text = f"The answer has {len(body)} bytes, and RabbitMQ refuses it ({why:.200})"
    return encode_failure(content["_msg_id"], internal_error(text))


def internal_error(text: str) -> WireError:
    """The error for a caller when something broke here."""
    return WireError(OUR_MODULE, "InternalError", text, [text])


def encode_heartbeat(call_id: str) -> bytes:
    """A message to a caller that monitors its call: it is worked on."""
    return _reply({"result": None, "failure": None, "ending": False}, call_id)


def encode_ping(call_id: str, reply_queue: str) -> bytes:
    """A call that every Nova service answers at once, and so do we."""
    inner = {
        "method": "ping",
        "namespace": "baseapi",
        "version": "1.0",
        "args": {"arg": None},
        "_msg_id": call_id,
        "_reply_q": reply_queue,
        "_unique_id": call_id,
    }
    return _enveloped(inner)


def _reply(content: Mapping[str, Any], call_id: str) -> bytes:
    return _enveloped({**content, "_msg_id": call_id, "_unique_id": unique_hex()})


def _enveloped(inner: Mapping[str, Any]) -> bytes:
    outer = {"oslo.version": VERSION, "oslo.message": _encoder.encode(inner).decode()}
    return _encoder.encode(outer)


_GZIP, _BZ2, _LZMA = "application/x-gzip", "application/x-bz2", "application/x-lzma"
_NAMES = {"gzip": _GZIP, "zlib": _GZIP, "bzip2": _BZ2, "bzip": _BZ2, "lzma": _LZMA, "xz": _LZMA}
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    _GZIP: zlib.decompressobj,
    _BZ2: bz2.BZ2Decompressor,
    _LZMA: lzma.LZMADecompressor,
}


class DecompressionError(Exception):
    """Raised for a body that cannot be decompressed, or is too large; the message says why."""


def decompressed(body: bytes, compression: object, max_bytes: int) -> bytes:
    """The decompressed body; the same body without ``compression``. Raises DecompressionError."""
    if not compression:
        return body
    name = _NAMES.get(compression, compression) if isinstance(compression, str) else ""
    make = _DECOMPRESSORS.get(name)
    if make is None:
        raise DecompressionError(
            f"its header compression is {compression!r:.40}; known are {', '.join(sorted(_NAMES))}"
        )
    stream = make()
    try:
        plain: bytes = stream.decompress(body, max_bytes + 1)
    except Exception as error:  # each library raises its own
        raise DecompressionError(f"it cannot be decompressed: {error}") from None
    if len(plain) > max_bytes:
        raise DecompressionError(
            f"it has more than {max_bytes} bytes when decompressed; [rpc] max_message_bytes allows "
            "no more"
        )
    if not stream.eof:
        raise DecompressionError("it cannot be decompressed: its end is missing")
    return plain
