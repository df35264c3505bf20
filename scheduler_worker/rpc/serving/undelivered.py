"""Answers that did not reach their callers: the reply queue was missing, or the broker away."""

import logging
import time
from collections.abc import Callable, Iterable

import msgspec

from scheduler_worker import events
from scheduler_worker.observer import Observer
from scheduler_worker.rpc.serving.connection import Loop
from scheduler_worker.rpc.serving.deliveries import Publish

LOG = logging.getLogger(__name__)

_CHECK_S = 0.25
"""How often it is checked which answers to send again."""
MAX_ANSWERS = 1_000
MAX_BYTES = 32 * 2**20
"""How many answers, and how many bytes of them, are kept; the oldest are dropped first."""


class _Undelivered(msgspec.Struct):
    """When an answer first failed to arrive, and when to send it again."""

    since_s: float
    retry_at_s: float


class UndeliveredAnswers:
    """Sends answers again for at most ``remaining_s``; used by the loop's thread alone.

    ``send`` publishes one and returns whether that was possible now.
    """

    def __init__(
        self, loop: Loop, send: Callable[[str, bytes], bool], remaining_s: float, observer: Observer
    ) -> None:
        self._loop = loop
        self._send = send
        self._remaining_s = remaining_s
        self._observer = observer
        self._kept: dict[Publish, _Undelivered] = {}
        """The oldest first."""
        self.size = 0
        """Bytes of all answers that are kept."""
        self._is_check_due = False
        self._unlogged: list[str] = []
        """The reply queues of answers that were dropped and are not logged yet."""

    def returned(self, answer: Publish) -> None:
        """The broker found no queue for it: send it again, at growing intervals."""
        now_s = time.monotonic()
        undelivered = self._keep(answer, now_s)
        undelivered.retry_at_s = now_s + max(_CHECK_S, now_s - undelivered.since_s)
        self._schedule_check()

    def connection_lost(self, answers: Iterable[Publish]) -> None:
        """The broker may not have these: send them on the next connection."""
        now_s = time.monotonic()
        for answer in answers:
            self._keep(answer, now_s).retry_at_s = now_s
        self._schedule_check()

    def delivered(self, answer: Publish) -> None:
        """The broker has put it into its caller's queue."""
        if answer in self._kept:
            del self._kept[answer]
            self.size -= len(answer.body)

    def _keep(self, answer: Publish, now_s: float) -> _Undelivered:
        undelivered = self._kept.get(answer)
        if undelivered is None:
            undelivered = self._kept[answer] = _Undelivered(now_s, now_s)
            self.size += len(answer.body)
        while len(self._kept) > MAX_ANSWERS or self.size > MAX_BYTES:
            self._drop(next(iter(self._kept)))
        return undelivered

    def _schedule_check(self) -> None:
        if not self._is_check_due and (self._kept or self._unlogged):
            self._is_check_due = True
            self._loop.call_later(_CHECK_S, self._check)

    def _check(self) -> None:
        self._is_check_due = False
        now_s = time.monotonic()
        for answer, undelivered in list(self._kept.items()):
            if now_s - undelivered.since_s > self._remaining_s:
                self._drop(answer)
            elif undelivered.retry_at_s <= now_s and self._send(*answer):
                undelivered.retry_at_s = float("inf")  # until the broker returns or confirms it
        self._log_dropped()
        self._schedule_check()

    def _drop(self, answer: Publish) -> None:
        self.delivered(answer)
        self._observer.count(events.DROPPED, "unroutable")
        self._unlogged.append(answer.queue)

    def _log_dropped(self) -> None:
        """Log many in one line: callers disappear by the thousand."""
        dropped, self._unlogged = self._unlogged, []
        if dropped:
            LOG.warning(
                "%d answers were dropped: their reply queues (the last: %s) are gone, or too "
                "many wait",
                len(dropped),
                dropped[-1],
            )
