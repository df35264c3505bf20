"""Prints progress: a line rewritten in place on a terminal, else a line every few seconds."""

import time
from typing import TextIO

from replay.driver import Outcome

PRINT_EVERY_S = 5.0


class Progress:
    """Called a few times a second with the outcome so far."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._tty = out.isatty()
        self._began_s = self._printed_s = time.monotonic()

    def __call__(self, outcome: Outcome) -> None:
        now_s = time.monotonic()
        if self._tty:
            self._out.write(f"\r\x1b[K{self._line(outcome, now_s)}")
            self._out.flush()
        elif now_s - self._printed_s >= PRINT_EVERY_S:
            self._printed_s = now_s
            print(self._line(outcome, now_s), file=self._out, flush=True)

    def close(self) -> None:
        """Clear the line."""
        if self._tty:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def _line(self, outcome: Outcome, now_s: float) -> str:
        rate = outcome.decided / max(now_s - self._began_s, 0.001)
        return (
            f"{outcome.decided:,} of {outcome.length:,}: placed {outcome.placed:,}, "
            f"refused {outcome.refused:,}, {rate:,.0f}/s"
        )
