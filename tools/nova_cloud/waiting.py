"""Waiting for what only asking shows: no service says of itself that a server is active."""

import time
from collections.abc import Callable
from typing import TypeVar

from nova_cloud.errors import CloudFailed

T = TypeVar("T")

WAIT_S = 180.0
"""Only a failure reaches it, even on a machine that is busy with something else."""
POLL_S = 0.2


def until(ask: Callable[[], T | None], what: str, timeout_s: float = WAIT_S) -> T:
    """The first answer that is neither None nor False. Raises CloudFailed after ``timeout_s``."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = ask()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() > deadline_s:
            raise CloudFailed(f"not so after {timeout_s:.0f} s: {what}")
        time.sleep(POLL_S)
