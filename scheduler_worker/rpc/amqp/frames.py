"""AMQP 0-9-1 frames: encodes those that every request needs, and finds one in what arrived.

py-amqp encodes any method with any properties, which costs more than the rest of an answer does.
"""

from __future__ import annotations

from struct import pack, unpack_from

from scheduler_worker.rpc.contract import LONGEST_NAME

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
    frames += [
        _frame(BODY, channel, body[start : start + step]) for start in range(0, len(body), step)
    ]
    return b"".join(frames)


def reopen_channel(channel: int) -> bytes:
    """Acknowledge that the broker closed a channel, and open it again, with confirmations."""
    methods = (
        pack(">HH", *CHANNEL_CLOSE_OK),
        pack(">HH", *_CHANNEL_OPEN) + _short_string(""),
        pack(">HHB", *_CONFIRM_SELECT, _NO_WAIT),
    )
    return b"".join(_frame(METHOD, channel, each) for each in methods)


def passive_declare(channel: int, queue: str) -> bytes:
    """Ask for the number of messages and consumers of a queue that exists."""
    arguments = pack(">HHH", *_QUEUE_DECLARE, 0) + _short_string(queue) + pack(">BI", _PASSIVE, 0)
    return _frame(METHOD, channel, arguments)


def ack(channel: int, tag: int, *, multiple: bool) -> bytes:
    """Acknowledge a delivery; with ``multiple`` also all before it."""
    return _frame(METHOD, channel, pack(">HHQB", _BASIC, _ACK, tag, multiple))


def first_frame(inbox: bytearray) -> tuple[int, int, bytes] | None:
    """Kind, channel and payload of the frame at the beginning, if it is complete.

    Raises OSError where no frame ends there.
    """
    if len(inbox) < OVERHEAD:
        return None
    kind, channel, size = unpack_from(">BHI", inbox)
    end = OVERHEAD - 1 + size
    if len(inbox) <= end:
        return None
    if inbox[end] != _END[0]:
        raise OSError("the broker sent bytes that are no frame")
    return kind, channel, bytes(inbox[OVERHEAD - 1 : end])


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return pack(">BHI", kind, channel, len(payload)) + payload + _END
