"""What the broker did not take: answers without a queue, whatever a failing node nacked."""

import logging
import time
from collections.abc import Callable, Iterable

import msgspec

from scheduler_worker import events
from scheduler_worker.observer import Observer
from scheduler_worker.rpc.serving.connection import Loop, PublishOutcome
from scheduler_worker.rpc.serving.deliveries import Copy, Publish

LOG = logging.getLogger(__name__)

_CHECK_S = 0.25
"""How often it is checked what to send again."""
MAX_MESSAGES = 10_000
MAX_BYTES = 32 * 2**20
"""How many messages, and how many bytes of answers, are kept; the oldest are dropped first."""


class _Undelivered(msgspec.Struct):
    """When a message first failed to arrive, when to send it again, and what happened last."""

    since_s: float
    retry_at_s: float
    outcome: PublishOutcome


class Undelivered:
    """Sends messages again for at most ``remaining_s``; used by the loop's thread alone.

    ``send`` publishes one and returns whether that was possible now. ``give_up`` gets each copy
    that was not taken in time, while its original is still unacknowledged. An original that waits
    for its copy holds a place of its consumer: ``take_more`` gets 1 when it begins to, -1 at the
    end.
    """

    def __init__(
        self,
        loop: Loop,
        send: Callable[[Publish | Copy], bool],
        give_up: Callable[[Copy, PublishOutcome], None],
        take_more: Callable[[int], None],
        remaining_s: float,
        observer: Observer,
    ) -> None:
        self._loop = loop
        self._send = send
        self._give_up = give_up
        self._take_more = take_more
        self._remaining_s = remaining_s
        self._observer = observer
        self._kept: dict[Publish | Copy, _Undelivered] = {}
        """The oldest first."""
        self.size = 0
        """Bytes of all answers that are kept."""
        self.copies = 0
        """How many of the messages are copies."""
        self._is_check_due = False
        self._unlogged: list[str] = []
        """The reply queues of answers that were dropped and are not logged yet."""

    @property
    def has_nacked(self) -> bool:
        """Whether something is kept whose queue exists: only a node of the broker is away."""
        return any(each.outcome is PublishOutcome.NACKED for each in self._kept.values())

    def not_taken(self, message: Publish | Copy, outcome: PublishOutcome) -> None:
        """The broker returned or nacked it: send it again, at growing intervals."""
        now_s = time.monotonic()
        undelivered = self._keep(message, now_s)
        undelivered.outcome = outcome
        undelivered.retry_at_s = now_s + max(_CHECK_S, now_s - undelivered.since_s)
        self._schedule_check()

    def connection_lost(self, answers: Iterable[Publish]) -> None:
        """The broker may not have these: send them on the next connection.

        Copies are made again when their originals are redelivered.
        """
        now_s = time.monotonic()
        for copy in [each for each in self._kept if not isinstance(each, Publish)]:
            self.settled(copy)
        for answer in answers:
            self._keep(answer, now_s).retry_at_s = now_s
        self._schedule_check()

    def settled(self, message: Publish | Copy) -> None:
        """The broker has it, or has refused it for good."""
        if self._kept.pop(message, None) is not None:
            self._count(message, -1)

    def _keep(self, message: Publish | Copy, now_s: float) -> _Undelivered:
        undelivered = self._kept.get(message)
        if undelivered is None:
            undelivered = _Undelivered(now_s, now_s, PublishOutcome.UNROUTABLE)
            self._kept[message] = undelivered
            self._count(message, 1)
        while len(self._kept) > MAX_MESSAGES or self.size > MAX_BYTES:
            self._drop(next(iter(self._kept)))
        return undelivered

    def _count(self, message: Publish | Copy, number: int) -> None:
        if isinstance(message, Publish):
            self.size += number * len(message.body)
        else:
            self.copies += number
            self._take_more(number)

    def _schedule_check(self) -> None:
        if not self._is_check_due and (self._kept or self._unlogged):
            self._is_check_due = True
            self._loop.call_later(_CHECK_S, self._check)

    def _check(self) -> None:
        self._is_check_due = False
        now_s = time.monotonic()
        for message, undelivered in list(self._kept.items()):
            if now_s - undelivered.since_s > self._remaining_s:
                self._drop(message)
            elif undelivered.retry_at_s <= now_s and self._send(message):
                undelivered.retry_at_s = float("inf")  # until the broker tells its outcome
        self._log_dropped()
        self._schedule_check()

    def _drop(self, message: Publish | Copy) -> None:
        outcome = self._kept[message].outcome
        self.settled(message)
        if not isinstance(message, Publish):
            self._give_up(message, outcome)
            return
        is_nacked = outcome is PublishOutcome.NACKED
        self._observer.count(events.DROPPED, "refused" if is_nacked else "unroutable")
        self._unlogged.append(message.queue)

    def _log_dropped(self) -> None:
        """Log many in one line: callers disappear by the thousand."""
        dropped, self._unlogged = self._unlogged, []
        if dropped:
            LOG.warning(
                "%d answers were dropped: their reply queues (the last: %s) are gone, RabbitMQ "
                "does not take them, or too many wait",
                len(dropped),
                dropped[-1],
            )
