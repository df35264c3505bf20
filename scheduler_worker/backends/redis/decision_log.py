"""The log of decisions in Redis: for each scope a stream, with the details in a hash beside it.

``append.lua`` writes, ``details.lua`` reads details; positions are the stream's ids.
DecisionDetails are compressed in groups that are written together. They are much alike, and take a
fifth of what each would take alone, of memory and of time.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from redis.exceptions import OutOfMemoryError

from scheduler_worker.backends.redis.connection import RedisServer
from scheduler_worker.backends.redis.engine import MEMO_MS, base_of
from scheduler_worker.backends.settings import PREFIX
from scheduler_worker.decision_log import Bounds, Logged, LogRecord
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.model.decision_history import Position

_APPEND, _DETAILS = "append", "details"
_GROUP = 32
"""How many details are compressed together, 64 kB of JSON: who reads one unpacks them all."""
_LEVEL = 1
"""Of the compression: the fastest, and of these the higher ones gain nothing."""


class RedisDecisionLog:
    """The :class:`~scheduler_worker.decision_log.DecisionLog` of many processes; thread-safe.

    Connects at the first use, with connections of its own: ``url`` and ``prefix`` are the same as
    of :class:`~scheduler_worker.backends.redis.engine.RedisState`. What a failing server may delay
    is only the caller, for at most ``retry_for_s``, which is why it is short.
    """

    def __init__(
        self,
        url: str,
        *,
        bounds: Bounds | None = None,
        prefix: str = PREFIX,
        retry_for_s: float = 1.0,
    ) -> None:
        self._bounds = bounds or Bounds()
        self._prefix = prefix
        self._server = RedisServer(
            url, retry_for_s=retry_for_s, wait_replicas=0, scripts=(_APPEND, _DETAILS)
        )

    def append(
        self, scope: str, records: Sequence[LogRecord], *, once: str, scopes: int = 1
    ) -> None:
        keys = [self._key(scope, name) for name in ("", ":details", ":instances", f":memo:{once}")]
        number, age_ms = self._bounds.each_of(scopes), int(1000 * self._bounds.age_s)
        packed: list[Any] = []
        for begin in range(0, len(records), _GROUP):
            group = records[begin : begin + _GROUP]
            details = msgspec.msgpack.encode([record.details for record in group])
            packed += [len(group), zlib.compress(details, _LEVEL)]
            for record in group:
                packed += [_joined(record.instances), record.outline]
        try:
            self._server.run(_APPEND, keys, [MEMO_MS, number, age_ms, *packed])
        except StateUnavailable as error:
            if isinstance(error.__cause__, OutOfMemoryError):
                # Reservations need the room; a full server still permits what frees some.
                half = self._server.command(keys[0], "XLEN", keys[0]) // 2
                self._server.run(_APPEND, keys, [MEMO_MS, half, age_ms])
            raise

    def newest(self, scope: str, *, before: Position | None = None, count: int) -> list[Logged]:
        log = self._key(scope)
        end = "+" if before is None else f"({before}"
        entries = self._server.command(log, "XREVRANGE", log, end, "-", "COUNT", count)
        return [_logged(entry) for entry in entries]

    def of_instance(self, scope: str, instance: str) -> list[Logged]:
        key = self._key(scope, ":instances")
        quoted = _joined([instance])
        first, last = f"[{quoted} ", f"({quoted}!"  # the character after the space
        members = self._server.command(key, "ZRANGEBYLEX", key, first, last)
        positions = sorted(
            (_position(member.rpartition(b" ")[2]) for member in members), reverse=True
        )
        return [logged for position in positions for logged in self._at(scope, position)]

    def get(self, scope: str, position: Position) -> tuple[Logged, bytes] | None:
        for logged in self._at(scope, position):
            [details] = self.details(scope, [position])
            if details is not None:
                return logged, details
        return None

    def details(self, scope: str, positions: Sequence[Position]) -> list[bytes | None]:
        if not positions:
            return []
        keys = [self._key(scope), self._key(scope, ":details")]
        reply = self._server.run(_DETAILS, keys, [str(position) for position in positions])
        places, stored = reply.value
        groups = [
            None if packed is None else _GROUPS.decode(zlib.decompress(packed)) for packed in stored
        ]
        details: list[bytes | None] = []
        for which, number in places:
            group = groups[which - 1] if which else None
            details.append(group[number] if group is not None else None)
        return details

    def close(self) -> None:
        self._server.refuse()
        self._server.disconnect()

    def _at(self, scope: str, position: Position) -> Iterable[Logged]:
        """The record at a position, if it is still there."""
        log = self._key(scope)
        entries = self._server.command(log, "XRANGE", log, str(position), str(position))
        return [_logged(entry) for entry in entries]

    def _key(self, scope: str, name: str = "") -> str:
        return f"{base_of(self._prefix, scope)}decisions{name}"


def _logged(entry: Any) -> Logged:
    position, (_, instances, _, outline, *_) = entry
    return Logged(_position(position), tuple(map(unquote, instances.decode().split())), outline)


def _joined(instances: Iterable[str]) -> str:
    """Separated by spaces, which the ids of a caller may have."""
    return " ".join([quote(instance, safe="") for instance in instances])


_GROUPS = msgspec.msgpack.Decoder(list[bytes])


def _position(text: bytes) -> Position:
    ms, _, number = text.decode().partition("-")
    return Position(int(ms), int(number))
