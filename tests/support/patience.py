"""How tests wait: for signals, with timeouts that only a failing test reaches.

No test passes or fails by speed. :data:`SOON_S` is the timeout for events that happen at once, and
:data:`PROCESS_S` for the start and the end of a process; an event that a test must not wait for is
put further away. Where a real timeout is part of a test, it is :func:`growing`.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SOON_S = 60.0
"""The timeout for events that happen at once; only a failing test reaches it."""
PROCESS_S = 600.0
"""The timeout for a process to be ready or to end; only a broken one reaches it."""
NEVER_S = 10 * SOON_S
"""For events that a test must not wait for, such as the end of a lease."""


class TooSoon(Exception):
    """Raised where a timeout was over before the scene was set."""


def eventually(is_so: Callable[[], bool], timeout_s: float = SOON_S) -> None:
    """Poll the condition, where there is no signal to wait for."""
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline_s, "it never came to be so"
        threading.Event().wait(0.005)


def growing(scene: Callable[[float], T], *too_soon: type[BaseException]) -> T:
    """Play a scene with a timeout of half a second, and with longer ones while it comes too soon.

    A machine that is busy gets the longer ones; a defect fails with each of them.
    """
    for timeout_s in (0.5, 2.0, 8.0):
        try:
            return scene(timeout_s)
        except too_soon:
            continue
    return scene(32.0)
