"""The execution of one message's handler."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

from scheduler_worker.rpc.serving.extra_consumers import ExtraConsumers

_MOST_EXTRA_CONSUMERS = 100


class Execution:
    """Lasts from a message's admission to its end; parked, without a slot, until a retry."""

    __slots__ = ("_extra_consumers", "_has_extra_consumer", "future", "is_parked", "taken_s")

    def __init__(self, extra_consumers: ExtraConsumers) -> None:
        self._extra_consumers = extra_consumers
        self._has_extra_consumer = False
        self.taken_s = time.monotonic()
        self.future: Future[Any] | None = None
        self.is_parked = False

    def cancel(self) -> bool:
        """Whether no slot works on it, and none will."""
        return self.is_parked or (self.future is not None and self.future.cancel())

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
