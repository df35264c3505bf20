"""A circuit breaker for servers that do not answer.

Each caller retries for some seconds before it gives up. Requests that queue behind one another (for
a replica, say) would add these up until their own callers have gone. So once one caller has given
up, the others fail at once, and a single thread asks the server until it answers.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Hashable

from redis import exceptions

from scheduler_worker.backends.redis.nodes import is_passing

RETRY_DELAY_S = 0.1
"""Delay between two pings of a server that refuses connections."""
GRACE_S = 0.5
"""How long after its beginning callers wait for the end of an outage; afterwards they fail at once.

Callers may hold a lock while they wait (that of a replica). If each of them waited again, a worker
would refuse two requests a second, and those behind them would time out unanswered.
"""
MAX_DEFERRED = 1_000


class _Outage:
    def __init__(self, why: str, answers: int) -> None:
        self.why = why
        self.answers = answers
        self.began_s = time.monotonic()
        self.over = threading.Event()
        self.deferred: list[Callable[[], object]] = []


class Outages:
    """The servers that do not answer; ``of`` identifies the keys of one server.

    The threads stop when ``closed`` is set.
    """

    def __init__(self, closed: threading.Event) -> None:
        self._closed = closed
        # Held for the books alone. `known` is read without it: a caller that misses an outage asks
        # the server, and finds out itself.
        self._guard = threading.Lock()
        self.known: dict[Hashable, _Outage] = {}

    def begin(
        self, of: Hashable, error: exceptions.RedisError, answers: int, ask: Callable[[], object]
    ) -> None:
        """Begin an outage; ``ask`` is called until it succeeds, or fails with a lasting error.

        ``answers`` is how many calls of any server had succeeded before.
        """
        with self._guard:
            if of in self.known:
                return
            outage = self.known[of] = _Outage(str(error), answers)
        arguments = (of, outage, ask)
        threading.Thread(target=self._run, args=arguments, name="redis-outage", daemon=True).start()

    def defer(self, of: Hashable, call: Callable[[], object]) -> bool:
        """Defer a call to the end of the outage; False if there is no outage.

        A server may execute after the outage what was sent before it, and so grant a lock to a
        waiter that has given up. So a waiter that gives up during an outage leaves the queue after
        it.
        """
        with self._guard:
            outage = self.known.get(of)
            if outage is None:
                return False
            if len(outage.deferred) < MAX_DEFERRED:
                outage.deferred.append(call)
            return True

    def check(self, of: Hashable) -> None:
        """Raise the error of the outage, at once unless it has only just begun."""
        # The caller may hold a replica's lock, and so holds up others for the rest of the grace.
        outage = self.known.get(of)
        if outage is None:
            return
        left_s = outage.began_s + GRACE_S - time.monotonic()
        if not outage.over.wait(max(0.0, left_s)):
            raise exceptions.ConnectionError(outage.why)

    def _run(self, of: Hashable, outage: _Outage, ask: Callable[[], object]) -> None:
        try:
            while not self._closed.wait(RETRY_DELAY_S):
                try:
                    ask()
                except exceptions.RedisError as error:
                    if is_passing(error):
                        outage.why = str(error)
                        continue
                break
        finally:  # else callers would fail for ever
            # Out of the books first: what is deferred from now on is called by its own thread.
            with self._guard:
                del self.known[of]
            for call in outage.deferred:
                with contextlib.suppress(exceptions.RedisError):
                    call()
            outage.over.set()
