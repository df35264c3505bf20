"""The log of decisions in Redis: for each scope a stream, with the details in a hash beside it.

``append.lua`` writes; positions are the stream's ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, unquote

from scheduler_worker.backends.redis.connection import Server
from scheduler_worker.backends.redis.engine import MEMO_MS
from scheduler_worker.decision_log import Bounds, Logged, LogRecord
from scheduler_worker.model.kept_decisions import Position

_SCRIPT = "append"


class RedisDecisionLog:
    """The :class:`~scheduler_worker.decision_log.DecisionLog` of many processes; thread-safe.

    Connects at the first use, with connections of its own: ``url`` and ``prefix`` are those of
    :class:`~scheduler_worker.backends.redis.engine.RedisState`. What a failing server may delay is
    only the caller, for at most ``retry_for_s``, which is why it is short.
    """

    def __init__(
        self,
        url: str,
        *,
        bounds: Bounds | None = None,
        prefix: str = "scheduler_worker",
        connect_timeout_s: float = 2.0,
        socket_timeout_s: float = 5.0,
        retry_for_s: float = 1.0,
    ) -> None:
        self._bounds = bounds or Bounds()
        self._prefix = prefix
        self._server = Server(
            url,
            connect_timeout_s=connect_timeout_s,
            socket_timeout_s=socket_timeout_s,
            retry_for_s=retry_for_s,
            wait_replicas=0,
            scripts=(_SCRIPT,),
        )

    def append(self, scope: str, records: Sequence[LogRecord], *, once: str) -> None:
        keys = [self._key(scope, name) for name in ("", ":details", ":instances", f":memo:{once}")]
        bounds = MEMO_MS, self._bounds.number, int(1000 * self._bounds.age_s)
        packed = [
            part
            for record in records
            for part in (_joined(record.instances), record.outline, record.details)
        ]
        self._server.run(_SCRIPT, keys, [*bounds, *packed])

    def newest(self, scope: str, *, before: Position | None = None, count: int) -> list[Logged]:
        log = self._key(scope)
        end = "+" if before is None else f"({before}"
        found = self._server.command(log, "XREVRANGE", log, end, "-", "COUNT", count)
        return [_logged(each) for each in found]

    def of_instance(self, scope: str, instance: str) -> list[Logged]:
        key = self._key(scope, ":instances")
        quoted = _joined([instance])
        first, last = f"[{quoted} ", f"({quoted}!"  # the character after the space
        members = self._server.command(key, "ZRANGEBYLEX", key, first, last)
        positions = sorted((_position(each.rpartition(b" ")[2]) for each in members), reverse=True)
        return [each for position in positions for each in self._at(scope, position)]

    def get(self, scope: str, position: Position) -> tuple[Logged, bytes] | None:
        key = self._key(scope, ":details")
        for logged in self._at(scope, position):
            details = self._server.command(key, "HGET", key, str(position))
            if details is not None:
                return logged, details
        return None

    def details(self, scope: str, positions: Sequence[Position]) -> list[bytes | None]:
        if not positions:
            return []
        key = self._key(scope, ":details")
        found: list[bytes | None] = self._server.command(key, "HMGET", key, *map(str, positions))
        return found

    def close(self) -> None:
        self._server.refuse()
        self._server.disconnect()

    def _at(self, scope: str, position: Position) -> Iterable[Logged]:
        """The record at a position, if it is still there."""
        log = self._key(scope)
        found = self._server.command(log, "XRANGE", log, str(position), str(position))
        return [_logged(each) for each in found]

    def _key(self, scope: str, name: str = "") -> str:
        return f"{self._prefix}:{{{quote(scope, safe='@')}}}:decisions{name}"


def _logged(entry: Any) -> Logged:
    position, (_, instances, _, outline) = entry
    quoted = instances.decode().split()
    return Logged(_position(position), tuple(map(unquote, quoted)), outline)


def _joined(instances: Iterable[str]) -> str:
    """Separated by spaces, which the ids of a caller may have."""
    return " ".join([quote(each, safe="") for each in instances])


def _position(text: bytes) -> Position:
    ms, _, number = text.decode().partition("-")
    return Position(int(ms), int(number))
