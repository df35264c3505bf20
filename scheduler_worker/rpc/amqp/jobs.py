"""What is done about a message in hand."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

from scheduler_worker.rpc.amqp.lanes import Lanes

_MOST_LANES = 100


class Job:
    """The work on one message, which may be parked: it waits, without a slot, for another try."""

    __slots__ = ("_has_lane", "_lanes", "future", "is_parked", "taken_s")

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._has_lane = False
        self.taken_s = time.monotonic()
        self.future: Future[Any] | None = None
        self.is_parked = False

    def park(self, may_open: bool) -> None:
        """With ``may_open`` another message is taken for it: what fails holds up nothing else."""
        self.is_parked = True
        self._has_lane = may_open and len(self._lanes) < _MOST_LANES
        if self._has_lane:
            self._lanes.open()

    def unpark(self) -> None:
        """It goes on, or is forgotten."""
        if self._has_lane:
            self._lanes.close()
        self.is_parked = self._has_lane = False
