"""The execution of one message's handler, in a slot or parked without one.

For each message that needs no slot now, an extra consumer takes one more from the shared queue.
"""

import itertools
import math
import time

from scheduler_worker.rpc.serving.connection import BusConnection, Loop
from scheduler_worker.rpc.slots import Slots, Task

_MOST_EXTRA_CONSUMERS = 100


class Execution:
    """Lasts from a message's admission to its end; parked, without a slot, until a retry."""

    __slots__ = ("_extra_consumers", "_has_extra_consumer", "is_parked", "taken_s", "task")

    def __init__(self, extra_consumers: "ExtraConsumers") -> None:
        self._extra_consumers = extra_consumers
        self._has_extra_consumer = False
        self.taken_s = time.monotonic()
        self.task: Task | None = None
        self.is_parked = False

    def cancel(self) -> bool:
        """Whether no slot works on it, and none will."""
        return self.is_parked or (self.task is not None and self.task.cancel())

    def park(self, *, may_open: bool) -> None:
        """Wait for a retry; with ``may_open`` an extra consumer takes another message meanwhile.

        So messages that fail again and again do not keep others waiting.
        """
        self.is_parked = True
        self._has_extra_consumer = may_open and len(self._extra_consumers) < _MOST_EXTRA_CONSUMERS
        if self._has_extra_consumer:
            self._extra_consumers.open()

    def unpark(self) -> None:
        """Go on, or end."""
        if self._has_extra_consumer:
            self._extra_consumers.close()
        self.is_parked = self._has_extra_consumer = False


class ExtraConsumers:
    """Consumers of one message each, beside the consumers of slots; for the loop's thread alone."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._connection: BusConnection | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def use(self, connection: BusConnection | None) -> None:
        """Consume over this connection from now on; None: not at all."""
        if connection is self._connection:
            return
        self._connection = connection
        if connection is not None:
            for number in self._numbers:
                connection.open_extra_consumer(number)

    def leave(self) -> None:
        """Consume no more, until :meth:`use`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            for number in self._numbers:
                connection.close_extra_consumer(number)

    def open(self) -> None:
        """Take one message more."""
        number = next(free for free in itertools.count() if free not in self._numbers)
        self._numbers.append(number)
        if self._connection is not None:
            self._connection.open_extra_consumer(number)

    def close(self) -> None:
        """Undo one :meth:`open`, whichever."""
        number = self._numbers.pop()
        if self._connection is not None:
            self._connection.close_extra_consumer(number)


_FIRST_CHECK_S, _LONGEST_CHECK_S = 0.002, 0.05
"""How soon it is checked after work came; then ever less often, while nothing waits."""


class SlotWatch:
    """Calls :meth:`Slots.ensure_progress` while there is work; used by the loop's thread alone."""

    def __init__(self, loop: Loop, slots: Slots) -> None:
        self._loop = loop
        self._slots = slots
        self._interval_s = math.inf
        """Until the next check; infinite: none is due."""

    def submitted(self) -> None:
        """Work was given to the slots."""
        if self._interval_s > _FIRST_CHECK_S:
            self._check_after(_FIRST_CHECK_S)

    def _check_after(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._loop.call_later(interval_s, lambda: self._check(interval_s))

    def _check(self, interval_s: float) -> None:
        if interval_s != self._interval_s:
            return  # work came meanwhile, and an earlier check was scheduled
        is_busy = self._slots.ensure_progress()
        self._interval_s = math.inf
        if self._slots.waiting:
            self._check_after(_FIRST_CHECK_S)
        elif is_busy:
            self._check_after(min(4 * interval_s, _LONGEST_CHECK_S))
