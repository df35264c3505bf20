"""Port: where records of decisions are kept, a log for each scope (a cluster, or ``@global``).

A record is opaque bytes in two parts, found by its position or by its instances. A log is bounded
in number and age: the oldest records go when others are added. It is no part of the shared state's
guarantees: nothing is decided by it, and what is lost of it is only not shown.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, Protocol

import msgspec

from scheduler_worker.model.decision_history import Position
from scheduler_worker.options import Opt


class Bounds(msgspec.Struct, frozen=True):
    """How many records a log has at most, and for how many seconds."""

    number: Annotated[int, Opt(name="max_per_cluster", min=1, max=10_000_000)] = 100_000
    """Decisions of which a cluster keeps a record; the oldest go first. In Redis one takes 1 to 2
    kB."""
    in_all: Annotated[int, Opt(name="max_records", min=1, max=100_000_000)] = 1_000_000
    """Records of all clusters together: where clusters are many, each keeps an equal share of these
    in place of max_per_cluster."""
    age_s: Annotated[float, Opt(name="max_age", min=60, max=366 * 86_400)] = 7 * 86_400.0
    """Seconds for which a record is kept."""

    def each_of(self, scopes: int) -> int:
        """How many records each of so many logs has at most."""
        return max(1, min(self.number, self.in_all // max(1, scopes)))


class LogRecord(NamedTuple):
    """A record to be added."""

    instances: tuple[str, ...]
    outline: bytes
    details: bytes


class Logged(NamedTuple):
    """A record as lists read it."""

    position: Position
    instances: tuple[str, ...]
    outline: bytes


class DecisionLog(Protocol):
    """Safe for threads. Every method but :meth:`close` raises StateUnavailable."""

    def append(
        self, scope: str, records: Sequence[LogRecord], *, once: str, scopes: int = 1
    ) -> None:
        """Add records, after all others, and remove what is out of bounds.

        ``scopes`` is how many logs there are. If the store is full, the older half of this log
        is removed before StateUnavailable is raised. Repeated with the same ``once`` within ten
        minutes it does nothing.
        """

    def newest(self, scope: str, *, before: Position | None = None, count: int) -> list[Logged]:
        """Up to ``count`` records, the newest first, of those before a position, if it is given."""

    def of_instance(self, scope: str, instance: str) -> list[Logged]:
        """The records with this instance, the newest first."""

    def get(self, scope: str, position: Position) -> tuple[Logged, bytes] | None:
        """The record at a position, with its details; None: there is none."""

    def details(self, scope: str, positions: Sequence[Position]) -> list[bytes | None]:
        """The details of the records at these positions; None: there are none any more."""

    def close(self) -> None:
        """Close the connections; further calls fail."""
