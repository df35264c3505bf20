"""The worker on a Redis whose clock a test can set.

    python -m tests.integration.faults.skewed --config-file FILE

runs ``scheduler-worker`` with scripts that add the offset of :func:`set_skew` to the server's time.
"""

from __future__ import annotations

import sys

import redis

from scheduler_worker.cli import worker
from tests.integration.faults.broken import replace

KEY = "the-skew-of-the-test"


def set_skew(client: redis.Redis, seconds: float) -> None:
    """The server's clock is ahead by so much from now on."""
    client.set(KEY, seconds)


if __name__ == "__main__":
    read = r"local clock = redis\.call\('TIME'\)"
    skewed = f"\nclock[1] = string.format('%d', clock[1] + (redis.call('GET', '{KEY}') or 0))"
    replace("common", read, r"\g<0>" + skewed)
    sys.exit(worker.main(sys.argv[1:]))
