"""Answers whose queue was not there: their caller may be connecting again, or be gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from scheduler_worker.ports import Observer
from scheduler_worker.rpc.amqp.link import Returned
from scheduler_worker.rpc.amqp.loop import Loop

LOG = logging.getLogger(__name__)

_AGAIN_S = 0.25
"""After how long an answer is sent again, the first time; then after ever longer."""
_MOST = 1_000


class LostCallers:
    """Sends answers again for at most ``patience_s``; used by the loop's thread alone."""

    def __init__(
        self,
        loop: Loop,
        answer: Callable[[str, bytes], None],
        *,
        patience_s: float,
        observer: Observer,
    ) -> None:
        self._loop = loop
        self._answer = answer
        self._patience_s = patience_s
        self._observer = observer
        self._first_s: dict[Returned, float] = {}

    def take(self, returned: Returned) -> None:
        """An answer came back."""
        age_s = time.monotonic() - self._first_s.setdefault(returned, time.monotonic())
        if age_s > self._patience_s or len(self._first_s) > _MOST:
            self._forget(returned)
            self._observer.message_dropped("unroutable")
            LOG.warning("An answer was dropped: its caller's queue %s is gone", returned.queue)
            return
        self._loop.at(max(_AGAIN_S, age_s), lambda: self._answer(returned.queue, returned.body))
        self._loop.at(2 * self._patience_s, lambda: self._forget(returned))

    def _forget(self, returned: Returned) -> None:
        self._first_s.pop(returned, None)
