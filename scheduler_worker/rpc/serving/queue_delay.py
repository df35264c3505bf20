"""How long messages wait in the broker's queue, and how fast a worker finishes them. Pure.

Waits are measured without comparing clocks.

Messages do not carry the time at which they were sent. So a busy worker sends pings to the queue
that it consumes, as any client might. The queue is FIFO: a message that is delivered before a ping
was sent before that ping, and after the ping before it. With a ping every tenth of a second the
wait of each message is known to a tenth of a second, on one clock.

A ping counts once the broker has confirmed it, so a ping that hangs on its way to the broker is no
evidence. When a ping is received, by any worker, all sent before it have been received too: a ping
in flight at a worker that died or stands still misleads the others only until the next is answered.
"""

from collections import deque
from typing import NamedTuple

SHORTEST_INTERVAL_S = 0.1
_RESOLUTION = 20
"""The delay is known to a twentieth of itself, or to the shortest interval."""
LONGEST_S = 600.0
"""Longer delays are not measured: the broker drops a ping then, and it proves nothing any more."""


class _Ping(NamedTuple):
    name: str
    since_s: float
    """What the queue delivers after the ping before was sent after this time."""
    sent_s: float


class QueueDelay:
    """The pings of one worker that no worker has received. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self._in_transit: deque[_Ping] = deque()
        self._last_sent_s: float | None = None
        self._confirmed: str | None = None
        """The newest ping that is known to be in the queue."""

    def sent(self, name: str, now_s: float) -> None:
        """A ping was sent to the queue."""
        last_s = now_s if self._last_sent_s is None else self._last_sent_s
        # A message delivered after the last ping was sent after it, unless pings paused meanwhile.
        since_s = max(last_s, now_s - self.interval_s(now_s))
        self._in_transit.append(_Ping(name, since_s, now_s))
        self._last_sent_s = now_s

    def confirmed(self, name: str) -> None:
        """The broker has put this ping, and all that were sent before it, into the queue."""
        if self._is_in_transit(name):
            self._confirmed = name

    def received(self, name: str) -> bool:
        """Some worker got the message of this name; whether it is one of the pings in transit."""
        if not self._is_in_transit(name):
            return False
        # The queue is FIFO: every ping sent before this one has been received, too.
        while self._in_transit.popleft().name != name:
            pass
        return True

    def waited_s(self, now_s: float) -> float:
        """How long a message has waited that is delivered now; 0 where nothing is known.

        At most one interval more than the truth, and never less, except for a redelivered
        message: the broker put it at the head of the queue.
        """
        while self._in_transit and self._in_transit[0].sent_s < now_s - LONGEST_S:
            self._in_transit.popleft()
        if not self._in_transit or not self._is_in_transit(self._confirmed):
            return 0.0
        return now_s - self._in_transit[0].since_s

    def interval_s(self, now_s: float) -> float:
        """Seconds from the last ping to the next."""
        return max(SHORTEST_INTERVAL_S, self.waited_s(now_s) / _RESOLUTION)

    def clear(self) -> None:
        """Forget everything: the queue is empty, or out of reach."""
        self._in_transit.clear()
        self._last_sent_s = self._confirmed = None

    def _is_in_transit(self, name: str | None) -> bool:
        return any(ping.name == name for ping in self._in_transit)


_MIN_SAMPLES, _MAX_SAMPLES = 4, 32


class Throughput:
    """Estimates how long a new message will take, from messages that were finished lately.

    Times are of the monotonic clock.
    """

    def __init__(self) -> None:
        self._finished_s: deque[float] = deque(maxlen=_MAX_SAMPLES + 1)
        """When the last ones were finished; before them, when the first of them was begun."""

    def begun(self, now_s: float) -> None:
        """Work begins, and nothing else is in flight."""
        self._finished_s.clear()
        self._finished_s.append(now_s)

    def finished(self, now_s: float) -> None:
        """Work was done, and not dropped."""
        self._finished_s.append(now_s)

    def expected_s(self, ahead: int, now_s: float) -> float:
        """Seconds until a message is finished that has ``ahead`` before it; 0 where unknown.

        Work in flight divided by throughput (Little's law).
        """
        count = len(self._finished_s) - 1
        if count < _MIN_SAMPLES or not ahead:
            return 0.0
        return (ahead + 1) * (now_s - self._finished_s[0]) / count
