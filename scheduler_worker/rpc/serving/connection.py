"""What a server needs of a bus: a connection that delivers, and a loop that waits for it."""

import contextlib
import enum
import heapq
import itertools
import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from scheduler_worker.rpc.serving.deliveries import Command, Copy, Delivery, Publish

_DOZE_S = 0.002
"""The longest doze of a loop. A message waits so long while slots work, or are blocked."""


class ConnectionLostError(Exception):
    """Raised when the connection cannot be used any more."""


class PublishOutcome(enum.Enum):
    """What the broker did with a message."""

    CONFIRMED = "confirmed"
    UNROUTABLE = "its queue does not exist"
    NACKED = "the broker could not accept it"
    REFUSED = "refused"

    @property
    def may_pass(self) -> bool:
        """Whether the same message may be taken later: a node of the broker may be away now."""
        return self in {PublishOutcome.UNROUTABLE, PublishOutcome.NACKED}


class BusConnection:
    """A connection on which the queues exist; nothing is consumed until :meth:`consume`.

    Used by one thread, which calls :meth:`pump` when ``descriptor`` is readable. Everything may
    raise ConnectionLostError. What only a broker across a network needs does nothing here.
    """

    address: str
    """Of the broker, for the log."""
    descriptor: int
    vanished = frozenset[str]()
    """Queues that no longer existed, with what was in them."""
    is_blocked = False
    """Whether the broker accepts nothing for now."""
    priority = 0
    """Of our consumers of the topic's queue. Consumers of a lower one get only what we have no
    slot for. Counts when a consumer is opened."""

    def pump(self) -> None:
        """Dispatch what has arrived."""

    def flush(self) -> None:
        """Send what was written since the last flush."""

    def tick(self, *, reads: bool = True) -> None:
        """Send a heartbeat when one is due, and notice when the broker's are missing.

        With ``reads`` false nothing is read for now, so none can be missed.
        """

    def silence(self) -> str | None:
        """Says that the broker has been silent for longer than a heartbeat; None if it has not."""
        return None

    def consume(self, slots: int, *, shared: bool = True) -> None:
        """Consume each queue, at most ``slots`` unacknowledged messages at a time.

        Without ``shared`` all but the topic's queue. Raises BusUnavailable.
        """

    def consume_shared(self, slots: int) -> None:
        """Consume the topic's queue again, unless it is consumed."""

    def leave_shared(self) -> None:
        """Consume the topic's queue no more; what it has delivered is still handled here."""

    def open_extra_consumer(self, number: int) -> None:
        """Take one message more from the shared queue, for a handler that yielded its slot."""

    def close_extra_consumer(self, number: int) -> None:
        """Undo :meth:`open_extra_consumer`; a message that it delivered is still handled here."""

    def stop_consuming(self) -> None:
        """Consume no more."""

    def count_consumers(self) -> None:
        """Ask how many consumers the server's own queue has."""

    def ping(self, name: str) -> bool:
        """Send a ping to the shared queue; False where there is none."""
        return False

    def perform(self, command: Command) -> None:
        """Execute a command of the delivery tracker, with the next :meth:`flush`."""

    def answer(self, queue: str, body: bytes, *, matters: bool = True) -> None:
        """Publish to a reply queue; ``matters`` is false for heartbeats, which may get lost."""

    def unconfirmed_answers(self) -> list[Publish]:
        """The answers that the broker may not have got."""
        return []

    def close(self) -> None:
        """Close it properly; what is not acknowledged goes back to its queues."""

    def drop(self) -> None:
        """Close it without a handshake, as a crash does."""


def ignore(*_: object) -> None:
    """Do nothing."""


class Listener(NamedTuple):
    """Whom a connection tells what has happened."""

    message: Callable[[Delivery], None] = ignore
    answered: Callable[[Publish, PublishOutcome, str], None] = ignore
    """Gets the outcome of each answer, and the reason."""
    copied: Callable[[Copy, PublishOutcome, str], None] = ignore
    """Gets the outcome of each copy, and the reason."""
    consumers_counted: Callable[[int], None] = ignore
    """Gets the number of consumers of the server's own queue."""
    ping_confirmed: Callable[[str], None] = ignore
    """Gets the name of a ping that is in the queue now."""
    ping_answered: Callable[[bytes], None] = ignore
    """Gets the body of each answer to a ping."""
    waited_s: Callable[[str], float] = lambda _queue: 0.0
    """Returns how long messages that are delivered now have waited in a queue."""


Open = Callable[[Listener, bool], BusConnection]
"""Opens a connection to one broker; the flag says that the queues have existed before.

Raises:
    BusUnavailable: the broker refuses us.
    ConfigError: a queue exists and is of another kind.
    ConnectionLostError: anything else, and another try may succeed.
"""

Callback = Callable[[], None]


class Loop:
    """Callbacks, timers and one readable source, for one thread.

    The thread calls :meth:`wait` and :meth:`run_due` in turn.
    """

    def __init__(self) -> None:
        # Any thread appends, and the loop's takes: a deque needs no lock for either.
        self._ready: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Callback]] = []
        self._numbers = itertools.count()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        # Set by the loop's thread. Two threads that both see it asleep write a byte each, and one
        # read takes both.
        self._sleeps = self._dozes = False
        self._poll = select.poll()  # select() refuses descriptors above 1023
        self._poll.register(self._wake_read, select.POLLIN)
        self._polled: int | None = None
        """The descriptor of the source that is polled, too."""

    def __del__(self) -> None:
        # Not at the end of its server: other threads may still wake it, and the number be reused.
        os.close(self._wake_read)
        os.close(self._wake_write)

    def call_soon(self, callback: Callback, *, has_time: bool = False) -> None:
        """Run it in the loop's thread; safe from any thread. With ``has_time`` it ends no doze."""
        self._ready.append(callback)
        if not (has_time and self._dozes):
            self.wake()

    def wake(self) -> None:
        """End its sleep if callbacks wait; safe from any thread."""
        if self._sleeps and self._ready:
            self._sleeps = False
            # A pipe that is full wakes it as well. Callers may hold locks, so nothing blocks here.
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake_write, b"!")

    def call_later(self, delay_s: float, callback: Callback) -> None:
        """Run it after so many seconds; for the loop's thread alone."""
        due_s = time.monotonic() + delay_s
        heapq.heappush(self._timers, (due_s, next(self._numbers), callback))

    def run_due(self) -> None:
        """Run the callbacks that came from other threads, and the timers that are due."""
        # What a callback raises is the caller's, and what waits behind it runs the next time.
        while self._ready:
            self._ready.popleft()()
        now_s = time.monotonic()
        while self._timers and self._timers[0][0] <= now_s:
            heapq.heappop(self._timers)[2]()

    def doze(self) -> bool:
        """Sleep for a moment, unless callbacks come; returns whether any has come.

        A loop that reads while slots work takes the interpreter lock from them at each message.
        """
        self._dozes = True
        self.wait(timeout_s=_DOZE_S)
        self._dozes = False
        return bool(self._ready)

    def wait(self, source: int | None = None, *, timeout_s: float = 60.0) -> bool:
        """Sleep until a callback is due or the descriptor is readable; whether it is."""
        if self._timers:
            timeout_s = min(timeout_s, self._timers[0][0] - time.monotonic())
        self._sleeps = True
        if self._ready:  # checked after _sleeps is set: callers that append later write to the pipe
            timeout_s = 0.0
        if source != self._polled:
            if self._polled is not None:
                self._poll.unregister(self._polled)
            if source is not None:
                self._poll.register(source, select.POLLIN)
            self._polled = source
        readable = [descriptor for descriptor, _ in self._poll.poll(1000 * max(0.0, timeout_s))]
        self._sleeps = False
        if self._wake_read in readable:
            os.read(self._wake_read, 4096)
        return source in readable
