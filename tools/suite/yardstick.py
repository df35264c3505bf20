"""How many CPU seconds a piece of work takes now, against what it takes on idle cores.

Other load on shared cores inflates CPU seconds up to two times, and another machine has other
cores. So while lanes run, a fixed piece of work is timed every few seconds. What a lane took,
divided by how much longer that work took, is what it costs on idle cores.
"""

import threading
import time
from statistics import fmean
from typing import Self

STANDARD_S = 0.019
"""What the work takes on the idle core by which the budgets are counted."""
EVERY_S = 10.0


class Yardstick:
    """Times the work while it is entered."""

    def __init__(self) -> None:
        self._taken_s: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep_timing, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def inflation(self) -> float:
        """How much longer the work took than on the idle core; at least 1.

        A core that is faster at this work, which fits into its caches, need not be at all work.
        """
        return max(1.0, fmean(self._taken_s) / STANDARD_S) if self._taken_s else 1.0

    def _keep_timing(self) -> None:
        while True:
            self._taken_s.append(_time_work())
            if self._is_over.wait(EVERY_S):
                return


def _time_work() -> float:
    began = time.thread_time()
    texts: dict[int, str] = {}
    for number in range(150_000):
        texts[number & 1023] = str(number)
    return time.thread_time() - began
