"""Where the processor's time of a process goes, all its threads together."""

import contextlib
import cProfile
import pstats
import threading
import time
from collections.abc import Iterator

SHOWN = 40


@contextlib.contextmanager
def profiled(wanted: bool) -> Iterator[None]:
    """Profile the threads that are started inside, if ``wanted``, and print functions by own time.

    The time is CPU time: waiting for a lock, the network or the interpreter lock does not count.
    """
    if not wanted:
        yield
        return
    profiles: list[_Profile] = []

    def begin(*_: object) -> None:
        """Is called with a thread's first event, and puts a profile into its own place."""
        profiles.append(_Profile(time.thread_time))
        profiles[-1].enable()

    threading.setprofile(begin)
    try:
        yield
    finally:
        threading.setprofile(None)
        found = [profile for profile in profiles if profile.has_calls()]
        if found:
            pstats.Stats(*found).sort_stats("tottime").print_stats(SHOWN)


class _Profile(cProfile.Profile):
    """Of a thread that may still run: calls that have not returned do not count."""

    def create_stats(self) -> None:
        self.snapshot_stats()

    def has_calls(self) -> bool:
        self.create_stats()
        return bool(self.stats)
