"""Signals, blocked in all threads and received by one with ``sigtimedwait``.

No handler interrupts anything; that thread receives them one by one when it is ready.
"""

import signal

WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_ENDING = (signal.SIGTERM, signal.SIGINT)


def block() -> None:
    """Block the watched signals in this thread and in threads that it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)


def wait(timeout_s: float) -> int | None:
    """Wait for a watched signal; None when none came in time."""
    info = signal.sigtimedwait(WATCHED, timeout_s)
    return info.si_signo if info else None


def ends(number: int | None) -> bool:
    """Whether a signal asks the process to stop."""
    return number in _ENDING
