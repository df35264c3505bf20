"""Signals as values: blocked everywhere, waited for in one place.

No handler interrupts anything; one thread takes signals one by one when it is ready for them.
"""

from __future__ import annotations

import signal

WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_ENDING = (signal.SIGTERM, signal.SIGINT)


def block() -> None:
    """Hold the watched signals back, in this thread and in those it will start."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)


def wait(timeout_s: float) -> int | None:
    """The next watched signal, or None when none came in time."""
    info = signal.sigtimedwait(WATCHED, timeout_s)
    return info.si_signo if info else None


def ends(number: int | None) -> bool:
    """Whether a signal asks to stop."""
    return number in _ENDING
