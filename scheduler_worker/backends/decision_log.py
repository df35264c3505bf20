"""The log of decisions of one process, in memory."""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from itertools import dropwhile, islice

from scheduler_worker.backends.clock import SystemClock
from scheduler_worker.decision_log import Bounds, Logged, LogRecord
from scheduler_worker.model.decision_history import Position
from scheduler_worker.ports import Clock

_ONCE_S = 600.0
"""How long a repeated call is recognised."""


class _Log:
    """The records of one scope, in their order."""

    def __init__(self) -> None:
        self.records: OrderedDict[Position, tuple[Logged, bytes]] = OrderedDict()
        self.of_instance: defaultdict[str, list[Position]] = defaultdict(list)
        self.last = Position(0, 0)

    def add(self, ms: int, record: LogRecord) -> None:
        last = self.last
        self.last = Position(ms, 0) if ms > last.ms else Position(last.ms, last.number + 1)
        logged = Logged(self.last, record.instances, record.outline)
        self.records[self.last] = logged, record.details
        for instance in record.instances:
            self.of_instance[instance].append(self.last)

    def remove_oldest(self) -> None:
        position, (logged, _) = self.records.popitem(last=False)
        for instance in logged.instances:
            positions = self.of_instance[instance]
            positions.remove(position)
            if not positions:
                del self.of_instance[instance]


class MemoryDecisionLog:
    """A :class:`~scheduler_worker.decision_log.DecisionLog` that ends with its process."""

    def __init__(self, bounds: Bounds | None = None, clock: Clock | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._clock = clock or SystemClock()
        self._guard = threading.Lock()
        self._logs: defaultdict[str, _Log] = defaultdict(_Log)
        self._once: OrderedDict[str, float] = OrderedDict()

    def append(
        self, scope: str, records: Sequence[LogRecord], *, once: str, scopes: int = 1
    ) -> None:
        ms = int(1000 * self._clock.time_s())
        with self._guard:
            if self._is_repeated(once):
                return
            log = self._logs[scope]
            for record in records:
                log.add(ms, record)
            oldest_ms = ms - 1000 * self._bounds.age_s
            while log.records and (
                len(log.records) > self._bounds.each_of(scopes)
                or next(iter(log.records)).ms < oldest_ms
            ):
                log.remove_oldest()

    def _is_repeated(self, once: str) -> bool:
        now_s = self._clock.monotonic_s()
        while self._once and now_s - next(iter(self._once.values())) > _ONCE_S:
            self._once.popitem(last=False)
        if once in self._once:
            return True
        self._once[once] = now_s
        return False

    def newest(self, scope: str, *, before: Position | None = None, count: int) -> list[Logged]:
        with self._guard:
            entries = reversed(self._logs[scope].records.values())
            older = dropwhile(lambda entry: before and entry[0].position >= before, entries)
            return [logged for logged, _ in islice(older, count)]

    def of_instance(self, scope: str, instance: str) -> list[Logged]:
        with self._guard:
            log = self._logs[scope]
            positions = log.of_instance.get(instance, [])
            return [log.records[position][0] for position in reversed(positions)]

    def get(self, scope: str, position: Position) -> tuple[Logged, bytes] | None:
        with self._guard:
            return self._logs[scope].records.get(position)

    def details(self, scope: str, positions: Sequence[Position]) -> list[bytes | None]:
        with self._guard:
            records = self._logs[scope].records
            return [records[position][1] if position in records else None for position in positions]

    def close(self) -> None:
        """Nothing is open."""
