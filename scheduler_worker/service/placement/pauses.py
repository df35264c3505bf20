"""Growing pauses of random length between attempts of the same thing."""

from __future__ import annotations

import math
import random

_FIRST_S, _LONGEST_S = 0.05, 2.0
"""Bounds of the first pause, and of every later one. Each may last twice as long as the last."""


class Pauses:
    """Until when something is left alone. Random lengths let those that collided go on apart."""

    def __init__(self) -> None:
        self.until_s = -math.inf
        self._longest_s = _FIRST_S

    def begin(self, now_s: float, until_s: float = math.inf) -> None:
        """Pause from now on, but not beyond ``until_s``; seconds of the monotonic clock."""
        self.until_s = min(now_s + random.uniform(0, self._longest_s), until_s)
        self._longest_s = min(2 * self._longest_s, _LONGEST_S)

    def end(self) -> None:
        """No pause is under way, and the next one is a first one."""
        self.until_s, self._longest_s = -math.inf, _FIRST_S
