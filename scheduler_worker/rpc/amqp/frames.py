"""AMQP 0-9-1 frames: encodes the frames of every request, and assembles messages.

py-amqp encodes any method with any properties, which costs more than the rest of an answer does.
It decodes names, properties and headers while it assembles a message, and breaks over headers that
it cannot decode. Here they stay bytes: :func:`delivered` and :func:`returned` decode the part that
the broker wrote, and ``properties`` the sender's.
"""

import struct
from collections.abc import Callable, Iterator
from struct import pack, unpack_from
from typing import Any

import msgspec

from scheduler_worker.rpc.dispatcher import LONGEST_NAME

METHOD, HEADER, BODY, HEARTBEAT, _END = 1, 2, 3, 8, b"\xce"
_BASIC, _PUBLISH, _ACK = 60, 40, 80
BASIC_PUBLISH = (_BASIC, _PUBLISH)
BASIC_RETURN, BASIC_DELIVER = (_BASIC, 50), (_BASIC, 60)
BASIC_ACK, BASIC_NACK = (_BASIC, _ACK), (_BASIC, 120)
_CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
CHANNEL_CLOSE, CHANNEL_CLOSE_OK = (20, 40), (20, 41)
_QUEUE_DECLARE, QUEUE_DECLARE_OK = (50, 10), (50, 11)
_CONFIRM_SELECT = (85, 10)
_MANDATORY = _PASSIVE = _NO_WAIT = 1
OVERHEAD = 8
"""Bytes of a frame around its payload."""


def _short_string(text: str) -> bytes:
    """A short string. Raises ValueError for one that AMQP cannot carry."""
    raw = text.encode()
    if len(raw) > LONGEST_NAME:
        raise ValueError(f"a name of {len(raw)} bytes; AMQP allows {LONGEST_NAME}")
    return pack(">B", len(raw)) + raw


# The properties that follow, from the highest bit: types, delivery mode, priority.
_HAS = 1 << 15 | 1 << 14 | 1 << 12 | 1 << 11
_PERSISTENT, _PRIORITY = 2, 0
ANSWER = b"".join(
    (
        pack(">H", _HAS),
        _short_string("application/json"),
        _short_string("utf-8"),
        pack(">BB", _PERSISTENT, _PRIORITY),
    )
)
"""An answer's properties: content type and encoding, delivery mode, priority, as oslo.messaging
sets them."""


def publish(channel: int, queue: str, properties: bytes, body: bytes, frame_max: int) -> bytes:
    """Publish a body to the queue of this name; the broker returns it if there is none.

    Raises ValueError for a name that AMQP cannot carry.
    """
    routing = pack(">HHH", _BASIC, _PUBLISH, 0) + _short_string("") + _short_string(queue)
    header = pack(">HHQ", _BASIC, 0, len(body)) + properties
    frames = [
        _frame(METHOD, channel, routing + pack(">B", _MANDATORY)),
        _frame(HEADER, channel, header),
    ]
    step = frame_max - OVERHEAD
    starts = range(0, len(body), step)
    frames += [_frame(BODY, channel, body[start : start + step]) for start in starts]
    return b"".join(frames)


def reopen_channel(channel: int) -> bytes:
    """Acknowledge that the broker closed a channel, and open it again, with confirmations."""
    methods = (
        pack(">HH", *CHANNEL_CLOSE_OK),
        pack(">HH", *_CHANNEL_OPEN) + _short_string(""),
        pack(">HHB", *_CONFIRM_SELECT, _NO_WAIT),
    )
    return b"".join(_frame(METHOD, channel, method) for method in methods)


def passive_declare(channel: int, queue: str) -> bytes:
    """Ask for the number of messages and consumers of a queue that exists."""
    arguments = pack(">HHH", *_QUEUE_DECLARE, 0) + _short_string(queue) + pack(">BI", _PASSIVE, 0)
    return _frame(METHOD, channel, arguments)


def ack(channel: int, tag: int, *, multiple: bool) -> bytes:
    """Acknowledge a delivery; with ``multiple`` also all before it."""
    return _frame(METHOD, channel, pack(">HHQB", _BASIC, _ACK, tag, multiple))


def taken_from(inbox: bytearray) -> Iterator[tuple[int, int, bytes]]:
    """Take each complete frame off the beginning; yields its kind, channel and payload.

    Raises OSError where no frame ends as it should.
    """
    while len(inbox) >= OVERHEAD:
        kind, channel, size = unpack_from(">BHI", inbox)
        end = OVERHEAD - 1 + size
        if len(inbox) <= end:
            return
        # Without this mark the next frame would begin anywhere.
        if inbox[end] != _END[0]:
            raise OSError("the broker sent bytes that are no frame")
        payload = bytes(inbox[OVERHEAD - 1 : end])
        del inbox[: end + 1]
        yield kind, channel, payload


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return pack(">BHI", kind, channel, len(payload)) + payload + _END


Signature = tuple[int, int]
_CONTENTS = {BASIC_RETURN, BASIC_DELIVER}
_PROPERTIES_AT = 12


class Content(msgspec.Struct, eq=False):
    """A message that is being assembled."""

    signature: Signature
    arguments: bytes
    """The method's, undecoded."""
    properties: bytes = b""
    _chunks: list[bytes] = []
    missing: int = 0
    """Bytes of the body that have not arrived."""

    def begin(self, header: bytes) -> None:
        """The header frame has arrived."""
        if len(header) < _PROPERTIES_AT:
            raise OSError("the broker sent half a header")
        # Behind the class and a weight that is always 0 comes the size of the whole body.
        (self.missing,) = unpack_from(">Q", header, 4)
        self.properties = header[_PROPERTIES_AT:]

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.missing -= len(chunk)

    @property
    def body(self) -> bytes:
        # Joined once: asked for again, for a copy, it is one chunk.
        if len(self._chunks) > 1:
            self._chunks = [b"".join(self._chunks)]
        return self._chunks[0] if self._chunks else b""


class Assembler:
    """Takes a connection's frames, in the order in which they arrive.

    ``on_content`` gets a channel and its complete messages. ``on_method`` gets other methods and
    returns whether it handled them; py-amqp handles the rest. Raises OSError where the broker
    violates the protocol, or sends what py-amqp cannot decode.
    """

    def __init__(
        self,
        connection: Any,
        fallback: Callable[[int, Signature, bytes, None], Any],
        *,
        on_content: Callable[[int, Content], None],
        on_method: Callable[[int, Signature, bytes], bool],
    ) -> None:
        self._connection = connection
        self._fallback = fallback
        self._on_content = on_content
        self._on_method = on_method
        self._partial: dict[int, Content] = {}

    def __call__(self, frame: tuple[int, int, bytes]) -> bool:
        """Take a frame; whether it completed a method or a message."""
        kind, channel, payload = frame
        self._connection.bytes_recv += 1  # py-amqp takes a change of it for a heartbeat
        if kind == HEARTBEAT:
            return False
        if kind == METHOD:
            return self._begin(channel, payload)
        content = self._partial.get(channel)
        if content is None:
            raise OSError("the broker sent a part of no message")
        if kind == HEADER:
            content.begin(payload)
        else:
            content.add(payload)
        if content.missing > 0:
            return False
        del self._partial[channel]
        self._on_content(channel, content)
        return True

    def _begin(self, channel: int, payload: bytes) -> bool:
        signature: Signature = unpack_from(">HH", payload)
        if signature in _CONTENTS:
            self._partial[channel] = Content(signature, payload[4:])
            return False
        if not self._on_method(channel, signature, payload[4:]):
            try:
                self._fallback(channel, signature, payload, None)
            except (ValueError, LookupError, struct.error) as error:
                raise OSError(f"the broker sent what cannot be decoded: {error}") from None
        return True


def delivered(arguments: bytes) -> tuple[str, int, bool]:
    """The consumer and tag of basic.deliver, and whether the message was delivered before."""
    consumer, at = _name(arguments, 0)
    tag, redelivered = unpack_from(">QB", arguments, at)
    return consumer, tag, bool(redelivered & 1)


def returned(arguments: bytes) -> str:
    """The name of the queue in basic.return."""
    # Two bytes of a code, the reason, the exchange, and then the routing key.
    _, at = _name(arguments, 2)
    _, at = _name(arguments, at)
    return _name(arguments, at)[0]


def confirmation(arguments: bytes) -> tuple[int, bool]:
    """The arguments of basic.ack or basic.nack: a delivery tag, and whether all up to it."""
    number, multiple = unpack_from(">QB", arguments)
    return number, bool(multiple & 1)


def consumers_declared(arguments: bytes) -> int:
    """How many consumers a queue has, of queue.declare-ok."""
    _, at = _name(arguments, 0)
    _messages, consumers = unpack_from(">II", arguments, at)
    return int(consumers)


def channel_closed(arguments: bytes) -> tuple[int, str, Signature]:
    """The arguments of channel.close: a code, a text that may have been cut anywhere, and the
    method that the broker refused.
    """
    (code,) = unpack_from(">H", arguments)
    why, at = _name(arguments, 2)
    refused: Signature = unpack_from(">HH", arguments, at)
    return code, why, refused


def _name(arguments: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + arguments[at]
    return arguments[at + 1 : end].decode(errors="replace"), end
