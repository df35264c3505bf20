"""Admission control: begins only calls that can be answered while their callers still wait.

Under overload a FIFO queue delivers every call when its caller is about to give up, and all work
is wasted. So a call is dropped on delivery, before anything is done for it, if it has
waited so long that it cannot be answered in time behind those in flight. The broker delivers the
next one at once, until one comes that can.
"""

import contextlib
import math
import time
from collections.abc import Callable

import msgspec

from scheduler_worker.rpc.serving import envelope
from scheduler_worker.rpc.serving.connection import BusConnection, Loop
from scheduler_worker.rpc.serving.envelope import WireRequest
from scheduler_worker.rpc.serving.queue_delay import QueueDelay, Throughput
from scheduler_worker.unique import unique_hex

_MEASURED_FOR_S = 60.0
"""For how long after the last call with a timeout the queue delay is measured."""
_MARGIN, _LARGEST_MARGIN_S = 0.1, 0.5
"""The part of a caller's timeout that is kept for the answer's way back and the unforeseen."""


class Admission:
    """Measures how long messages waited in the shared queue, and how fast those in flight get done.

    ``in_flight`` returns the number of messages that are worked on, which is at most ``limit``.

    Used by the loop's thread alone.
    """

    def __init__(self, loop: Loop, queue: str, *, in_flight: Callable[[], int], limit: int) -> None:
        self._loop = loop
        self._queue = queue
        self._in_flight = in_flight
        self._limit = limit
        self._connection: BusConnection | None = None
        self._delay = QueueDelay()
        self.ping_confirmed = self._delay.confirmed
        """The broker has put one of our pings into the queue."""
        self._throughput = Throughput()
        self._last_call_s = -math.inf
        """When the last call with a timeout was delivered."""
        self._is_pinging = False
        """Whether the next ping is scheduled."""
        self._was_busy = False
        """Whether something may have waited in the queue since the last ping: all slots were
        taken, or a call was dropped."""

    def use(self, connection: BusConnection | None) -> None:
        """Measure over this connection from now on; None: not at all."""
        self._connection = connection
        self._delay.clear()

    def ping_answered(self, body: bytes) -> None:
        """Some worker has got one of our pings, and answered it."""
        self._delay.received(envelope.answered_call(body))

    def waited_s(self, queue: str) -> float:
        """How long a message that is delivered now has waited at least; 0 where unknown.

        A redelivered message has waited longer: the broker put it before the others.
        """
        return self._delay.waited_s(time.monotonic()) if queue == self._queue else 0.0

    @property
    def queue_delay_s(self) -> float:
        """How long messages wait in the shared queue now; 0 where none wait, or unknown."""
        # The loop's thread changes it meanwhile.
        with contextlib.suppress(RuntimeError, IndexError):
            return self._delay.waited_s(time.monotonic())
        return 0.0

    def received(self, request: WireRequest, queue: str) -> WireRequest:
        """The request with the time that its caller has left after the wait in the queue."""
        if queue != self._queue:
            return request
        self._delay.received(request.id)  # it may be one of our own pings
        if request.remaining_s == math.inf:
            return request
        self._last_call_s = time.monotonic()
        margin_s = min(_MARGIN * request.remaining_s, _LARGEST_MARGIN_S)
        left_s = request.remaining_s - margin_s - self._delay.waited_s(self._last_call_s)
        return msgspec.structs.replace(request, remaining_s=left_s)

    def admits(self, request: WireRequest) -> bool:
        """Whether to begin it."""
        now_s, ahead = time.monotonic(), self._in_flight()
        is_admitted = request.remaining_s > self._throughput.expected_s(ahead, now_s)
        if is_admitted and not ahead:
            self._throughput.begun(now_s)
        if not is_admitted or ahead + 1 >= self._limit:
            self._was_busy = True
            if not self._is_pinging and self._is_measured(now_s):
                self._ping()
        return is_admitted

    def finished(self, *, dropped: bool) -> None:
        """A message that still counts as in flight is done, or was dropped by its handler."""
        self._was_busy |= self._in_flight() >= self._limit
        if not dropped:
            self._throughput.finished(time.monotonic())

    def _is_measured(self, now_s: float) -> bool:
        return now_s < self._last_call_s + _MEASURED_FOR_S

    def _ping(self) -> None:
        """Send a ping and schedule the next one, as long as something may wait in the queue."""
        now_s = time.monotonic()
        is_busy = self._was_busy or self._in_flight() >= self._limit
        self._was_busy, self._is_pinging = False, is_busy and self._is_measured(now_s)
        if not self._is_pinging:
            # A worker with a free slot has emptied the queue, pings included.
            self._delay.clear()
            return
        if self._connection is not None and not self._connection.is_blocked:
            name = unique_hex()
            if self._connection.ping(name):
                self._delay.sent(name, now_s)
        self._loop.call_later(self._delay.interval_s(now_s), self._ping)
