"""A message's properties: decodes them, and encodes a copy's properties.

Senders may write anything: what cannot be decoded is left out.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import amqp
import msgspec
from amqp.serialization import decode_properties_basic

from scheduler_worker.rpc.amqp import frames

DELIVERIES = "x-scheduler-worker-deliveries"
"""The header in which we count the deliveries of a message where the broker does not."""
EXPIRES = "x-scheduler-worker-expires"
"""The header of a copy with the time at which its caller gives up: milliseconds since 1970."""
SENDER = "x-scheduler-worker-user-id"
"""The header of a dead letter with its sender's ``user_id``, which the broker has verified."""
_BROKERS_COUNT = "x-delivery-count"
_KEPT = (
    "content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to",
    "message_id", "timestamp", "type", "app_id",
)  # fmt: skip
"""What a copy keeps. The broker accepts ``user_id`` from its owner alone, and counts ``expiration``
from the publishing; headers carry both."""
_NOT_COPIED = {"CC", "BCC", _BROKERS_COUNT}
"""Headers by which the broker would route or count the copy."""


class Properties(msgspec.Struct):
    """What could be decoded."""

    values: Mapping[str, Any]
    headers: Mapping[str, Any]
    expiration: str | None = None
    compression: object = None
    traceparent: str | None = None
    """The sender's trace context, in W3C's form."""
    expires_ms: int | None = None
    """When the caller of a copied message gives up; milliseconds since 1970."""
    _counted: int = 0
    _brokers_count: int | None = None

    def __post_init__(self) -> None:
        headers = self.headers
        self.expiration = _typed(str, self.values.get("expiration"))
        self.compression = headers.get("compression")
        self.traceparent = _typed(str, headers.get("traceparent"))
        self.expires_ms = _typed(int, headers.get(EXPIRES))
        self._counted = max(0, _typed(int, headers.get(DELIVERIES)) or 0)
        self._brokers_count = _typed(int, headers.get(_BROKERS_COUNT))

    def deliveries(self, *, broker_counts: bool) -> tuple[int, bool]:
        """How often the message was delivered before, and whether the broker counts that."""
        theirs = self._brokers_count if broker_counts else None
        return (self._counted, False) if theirs is None else (self._counted + max(0, theirs), True)


T = TypeVar("T")


def _typed(kind: type[T], value: object) -> T | None:
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


NOTHING = Properties({}, {})

_ALIKE = 512
"""Up to so many bytes of properties are remembered: one client mostly sends the same."""


def read(raw: bytes) -> Properties:
    """Decode a message's properties; :data:`NOTHING` where that fails."""
    return _remembered(raw) if len(raw) <= _ALIKE else _decoded(raw)


def _decoded(raw: bytes) -> Properties:
    try:
        values, _ = decode_properties_basic(raw, 0)
        headers = values.pop("application_headers", {})
        return Properties(values, {k: v for k, v in headers.items() if isinstance(k, str)})
    except Exception:  # senders may write anything, and py-amqp raises anything
        return NOTHING


_remembered = lru_cache(_decoded)


def of_copy(
    original: Properties, headers: Mapping[str, Any], expiration_ms: int | None, frame_max: int
) -> bytes:
    """Encode the properties of a copy with additional headers.

    Leaves out what of the sender's cannot be encoded, or does not fit into a frame.
    """
    kept = {name: original.values[name] for name in _KEPT if name in original.values}
    sent = {name: original.headers[name] for name in original.headers if name not in _NOT_COPIED}
    ours = {} if expiration_ms is None else {"expiration": str(expiration_ms)}
    for values, senders in ((kept, sent), (kept, {}), ({}, {})):
        encoded = _encoded({**values, **ours}, {**senders, **headers})
        if encoded is not None and len(encoded) <= frame_max - _ROOM:
            return encoded
    raise ValueError("headers of our own that cannot be encoded")


_ROOM = frames.OVERHEAD + 12


def _encoded(values: Mapping[str, Any], headers: Mapping[str, Any]) -> bytes | None:
    try:
        message = amqp.Message(b"", application_headers=dict(headers), **values)
        return bytes(message._serialize_properties())
    except Exception:  # py-amqp cannot encode everything that it decodes
        return None
