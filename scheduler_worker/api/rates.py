"""Limits on the rate of requests: a token bucket for each user, and one for each address."""

import threading
from collections import OrderedDict
from typing import Literal

from scheduler_worker.ports import Clock

MAX_REMEMBERED = 10_000
"""How many users and addresses are remembered: the ones served last."""
_ROUNDING_S = 1e-6


class TooManyRequests(Exception):
    """Raised for a request above the limit ``by`` user or address; wait for ``wait_s``."""

    def __init__(self, by: str, wait_s: float) -> None:
        super().__init__(f"Too many requests; try again in {wait_s:.1f} s.")
        self.by = by
        self.wait_s = wait_s


class RateLimits:
    """Lets ``burst`` requests pass at once, and ``requests_per_second`` on; 0: any number.

    Safe for threads. The limits hold for this process.
    """

    def __init__(self, clock: Clock, *, requests_per_second: float = 0.0, burst: int = 1) -> None:
        self._clock = clock
        self._rate = requests_per_second
        self._burst = burst
        self._lock = threading.Lock()
        self._full_at_s: OrderedDict[tuple[str, str], float] = OrderedDict()
        """When each bucket will be full again."""

    def take(self, kind: Literal["address", "user"], name: str) -> None:
        """Count a request from an address or of a user. Raises TooManyRequests."""
        if not self._rate:
            return
        now_s = self._clock.monotonic_s()
        with self._lock:
            full_at_s = max(self._full_at_s.get((kind, name), now_s), now_s) + 1.0 / self._rate
            # What is taken takes until full_at_s to come back; a whole bucket takes burst / rate.
            wait_s = full_at_s - now_s - self._burst / self._rate
            if wait_s > _ROUNDING_S:
                raise TooManyRequests(kind, wait_s)
            self._full_at_s[kind, name] = full_at_s
            self._full_at_s.move_to_end((kind, name))
            if len(self._full_at_s) > MAX_REMEMBERED:
                self._full_at_s.popitem(last=False)
