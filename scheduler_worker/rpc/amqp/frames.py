"""AMQP 0-9-1 frames: the two that are said for every request, and how one is found in what arrived.

py-amqp writes any method with any properties; that costs more than the rest of an answer does.
"""

from __future__ import annotations

from struct import pack, unpack_from

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"
_BASIC, _PUBLISH, _ACK = 60, 40, 80
_MANDATORY = 1
OVERHEAD = 8
"""The bytes of a frame around its payload."""


def _short(text: str) -> bytes:
    raw = text.encode()
    return pack(">B", len(raw)) + raw


_HAS = 1 << 15 | 1 << 14 | 1 << 12 | 1 << 11
_PERSISTENT, _PRIORITY = 2, 0
_PROPERTIES = b"".join(
    (
        pack(">H", _HAS),
        _short("application/json"),
        _short("utf-8"),
        pack(">BB", _PERSISTENT, _PRIORITY),
    )
)
"""Content type and encoding, delivery mode, priority: as oslo.messaging sets them."""


def answer(channel: int, queue: str, body: bytes, frame_max: int) -> bytes:
    """Publish a body to a queue by its name; it comes back if there is no such queue."""
    routing = pack(">HHH", _BASIC, _PUBLISH, 0) + _short("") + _short(queue)
    header = pack(">HHQ", _BASIC, 0, len(body)) + _PROPERTIES
    frames = [
        _frame(_METHOD, channel, routing + pack(">B", _MANDATORY)),
        _frame(_HEADER, channel, header),
    ]
    step = frame_max - OVERHEAD
    frames += [
        _frame(_BODY, channel, body[start : start + step]) for start in range(0, len(body), step)
    ]
    return b"".join(frames)


def acknowledgement(channel: int, tag: int, *, multiple: bool) -> bytes:
    """Acknowledge a delivery, with ``multiple`` all before it, too."""
    return _frame(_METHOD, channel, pack(">HHQB", _BASIC, _ACK, tag, multiple))


def first(inbox: bytearray) -> tuple[int, int, bytes] | None:
    """Kind, channel and payload of the frame at the beginning, if it is whole.

    Raises OSError where no frame ends there.
    """
    if len(inbox) < OVERHEAD:
        return None
    kind, channel, size = unpack_from(">BHI", inbox)
    end = OVERHEAD - 1 + size
    if len(inbox) <= end:
        return None
    if inbox[end] != _END[0]:
        raise OSError("the broker sent what is no frame")
    return kind, channel, bytes(inbox[OVERHEAD - 1 : end])


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return pack(">BHI", kind, channel, len(payload)) + payload + _END
