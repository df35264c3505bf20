"""A worker that is killed at a claim: ``python -m tests.nova.mortal``, arguments as of the worker.

``DIES=before:3`` in the environment: before its third write to Placement, which is between decision
and claim; ``after:3``: after it, which is between claim and answer.
"""

import itertools
import os
import signal
import sys
from collections.abc import Sequence

from scheduler_worker.backends.placement.claiming import PlacementAllocations
from scheduler_worker.cli.worker import main
from scheduler_worker.model.providers import Consumer
from scheduler_worker.placement import ClaimRefusal

VARIABLE = "DIES"

_write = PlacementAllocations.write
_writes = itertools.count(1)


def write(
    self: PlacementAllocations, consumers: Sequence[Consumer], *, timeout_s: float
) -> ClaimRefusal | None:
    when, _, number = os.environ[VARIABLE].partition(":")
    is_last = next(_writes) == int(number)
    if is_last and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    answer = _write(self, consumers, timeout_s=timeout_s)
    if is_last:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer


if __name__ == "__main__":
    PlacementAllocations.write = write
    sys.exit(main())
