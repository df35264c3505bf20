"""Assembles messages from frames, without decoding what their senders wrote.

py-amqp decodes names, properties and headers while it assembles a message, and breaks over those
that it cannot decode. Here they stay bytes: :func:`delivered` and :func:`returned` decode the part
that the broker wrote, and ``properties`` the sender's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import unpack_from
from typing import Any, NamedTuple

from scheduler_worker.rpc.amqp import frames

Signature = tuple[int, int]
_CONTENTS = {frames.BASIC_RETURN, frames.BASIC_DELIVER}
_PROPERTIES_AT = 12


class Content:
    """A message that is being assembled."""

    __slots__ = ("_chunks", "_missing", "arguments", "properties", "signature")

    def __init__(self, signature: Signature, arguments: bytes) -> None:
        self.signature = signature
        self.arguments = arguments
        """The method's, undecoded."""
        self.properties = b""
        self._chunks: list[bytes] = []
        self._missing = 0

    def begin(self, header: bytes) -> None:
        """The header frame has arrived."""
        if len(header) < _PROPERTIES_AT:
            raise OSError("the broker sent half a header")
        (self._missing,) = unpack_from(">Q", header, 4)
        self.properties = header[_PROPERTIES_AT:]

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._missing -= len(chunk)

    @property
    def is_complete(self) -> bool:
        return self._missing <= 0

    @property
    def body(self) -> bytes:
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
        if kind == frames.HEARTBEAT:
            return False
        if kind == frames.METHOD:
            return self._begin(channel, payload)
        content = self._partial.get(channel)
        if content is None:
            raise OSError("the broker sent a part of no message")
        if kind == frames.HEADER:
            content.begin(payload)
        else:
            content.add(payload)
        if not content.is_complete:
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
            self._pass_on(channel, signature, payload)
        return True

    def _pass_on(self, channel: int, signature: Signature, payload: bytes) -> None:
        try:
            self._fallback(channel, signature, payload, None)
        except (ValueError, LookupError, struct.error) as error:
            raise OSError(f"the broker sent what cannot be decoded: {error}") from None


class Delivered(NamedTuple):
    """The arguments of basic.deliver that matter here."""

    consumer: str
    tag: int
    redelivered: bool


def delivered(arguments: bytes) -> Delivered:
    """The arguments of basic.deliver; names of exchange and routing key are left undecoded."""
    consumer, at = _name(arguments, 0)
    tag, redelivered = unpack_from(">QB", arguments, at)
    return Delivered(consumer, tag, bool(redelivered & 1))


def returned(arguments: bytes) -> tuple[str, str]:
    """The arguments of basic.return: why, and the name of the queue."""
    why, at = _name(arguments, 2)
    _, at = _name(arguments, at)
    queue, _ = _name(arguments, at)
    return why, queue


def confirmation(arguments: bytes) -> tuple[int, bool]:
    """The arguments of basic.ack or basic.nack: a delivery tag, and whether all up to it."""
    number, multiple = unpack_from(">QB", arguments)
    return number, bool(multiple & 1)


def queue_declared(arguments: bytes) -> tuple[str, int, int]:
    """The arguments of queue.declare-ok: the queue, its messages, its consumers."""
    queue, at = _name(arguments, 0)
    messages, consumers = unpack_from(">II", arguments, at)
    return queue, messages, consumers


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
