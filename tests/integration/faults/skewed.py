"""The worker on a Redis whose clock a test can set.

    python -m tests.integration.faults.skewed --config-file FILE

runs ``scheduler-worker`` with scripts that add the offset of :func:`set_skew` to the server's time.
"""

import sys
from pathlib import Path
from typing import Any

import redis

from scheduler_worker.cli import worker

KEY = "the-skew-of-the-test"
CLOCK = "local clock = redis.call('TIME')"
SKEWED = f"{CLOCK}\nclock[1] = string.format('%d', clock[1] + (redis.call('GET', '{KEY}') or 0))"


def set_skew(client: redis.Redis, seconds: float) -> None:
    """The server's clock is ahead by so much from now on."""
    client.set(KEY, seconds)


def skew() -> None:
    """Replace the clock in the common part of the scripts when it is read."""
    whole = Path.read_text

    def read_text(path: Path, *options: Any, **named: Any) -> str:
        text = whole(path, *options, **named)
        if path.name == "common.lua":
            assert text.count(CLOCK) == 1, path
            text = text.replace(CLOCK, SKEWED)
        return text

    Path.read_text = read_text  # type: ignore[assignment]


if __name__ == "__main__":
    skew()
    sys.exit(worker.main(sys.argv[1:]))
