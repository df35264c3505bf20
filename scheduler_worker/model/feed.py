"""What a source of hosts tells: its parts, their hosts' services, and what has changed in them.

A source is a system of record that knows hosts, such as Nova's databases. It is read in *parts*
that can fail one by one (cells, in Nova). Times are seconds since the epoch, by the source's clock.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from scheduler_worker.model.aggregates import Aggregate
from scheduler_worker.model.host_reports import HostReport

_SETTLED_S = 2.0
"""Times of change are whole seconds: this long after a row was first seen with one, no other
change of it has the same."""


class Part(msgspec.Struct, frozen=True):
    """A part of a source, which can fail while others work."""

    id: str
    name: str


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """What a source consists of."""

    parts: tuple[Part, ...] = ()
    part_of: Mapping[str, str] = {}
    """Host name -> the id of its part; hosts that are not in it are left alone."""
    aggregates: tuple[Aggregate, ...] = ()


class ServiceState(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A host's compute service."""

    last_seen_s: float | None = None
    """Its last heartbeat; None: never."""
    disabled: bool = False
    disabled_reason: str | None = None
    forced_down: bool = False

    def facts(self, now_s: float, down_after_s: float) -> dict[str, Any]:
        """The facts of the service in a host's record, which do not change with each heartbeat.

        Like Nova, takes a heartbeat from the future for none.
        """
        seen_s = self.last_seen_s
        is_up = seen_s is not None and abs(now_s - seen_s) <= down_after_s
        facts: dict[str, Any] = {"watched": True, "up": is_up}
        if self.disabled:
            facts["disabled"] = True
            if self.disabled_reason:
                facts["disabled_reason"] = self.disabled_reason
        if self.forced_down:
            facts["forced_down"] = True
        return facts


class ServiceStates(msgspec.Struct, frozen=True, gc=False):
    """The compute services of a part by host name, as they were at ``now_s``."""

    now_s: float
    by_host: Mapping[str, ServiceState]


class ChangedRow(NamedTuple):
    """A compute node or an instance, and when it changed last."""

    uuid: str
    host: str | None
    """None: an instance that is on no host."""
    changed_at_s: float
    is_settled: bool = False
    """Of an instance: nothing is under way with it, so no other host expects it."""


class Listing(msgspec.Struct, frozen=True, gc=False):
    """All compute nodes of a part, and how many instances are on each host, as of ``now_s``."""

    now_s: float
    nodes: Sequence[ChangedRow]
    instances: Mapping[str, int]


class RecentChanges(msgspec.Struct, frozen=True, gc=False):
    """The rows of a part that changed since given times, as of ``now_s``; removed ones included."""

    now_s: float
    nodes: Sequence[ChangedRow]
    instances: Sequence[ChangedRow]


class HostReading(msgspec.Struct, frozen=True, gc=False):
    """One host, whole: a report for each of its compute nodes, with all instances of the host."""

    host: str
    reports: tuple[HostReport, ...] = ()
    problems: tuple[str, ...] = ()
    """A sentence for each row that could not be read, and is left out."""


class Tail:
    """Follows the changes of a table from one query to the next.

    The times of change are of several writers' clocks, in whole seconds, and a row shows only when
    its transaction ends. So each query begins ``overlap_s`` before the latest change, until the
    source's clock is as far past that; and a row that was seen before is passed over only if it was
    looked at after its second was over. Missed is what a clock dates back by more than the overlap,
    and the second of two changes that two clocks date to the same second.
    """

    def __init__(self, since_s: float, overlap_s: float) -> None:
        self.since_s = since_s
        """From when changes are to be looked at next."""
        self._latest_s = since_s
        self._overlap_s = overlap_s
        self._refreshed_at_s = float("-inf")
        self._first_seen: dict[str, tuple[float, float]] = {}
        """Row -> its time of change, and when it was first seen with it."""

    def take(self, rows: Sequence[ChangedRow], now_s: float) -> list[ChangedRow]:
        """The rows that are to be read again, of all that changed at or after :attr:`since_s`."""
        before, self._first_seen = self._first_seen, {}
        changed_rows: list[ChangedRow] = []
        for row in rows:
            changed_at_s, first_seen_s = before.get(row.uuid, (None, now_s))
            if changed_at_s != row.changed_at_s:
                first_seen_s = now_s
            self._first_seen[row.uuid] = row.changed_at_s, first_seen_s
            if first_seen_s + _SETTLED_S > self._refreshed_at_s:
                changed_rows.append(row)
            # A writer whose clock is fast must not make those of the others look old.
            self._latest_s = max(self._latest_s, min(row.changed_at_s, now_s))
        is_over = now_s > self._latest_s + self._overlap_s
        self.since_s = self._latest_s + 1 if is_over else self._latest_s - self._overlap_s
        self._refreshed_at_s = now_s
        return changed_rows
