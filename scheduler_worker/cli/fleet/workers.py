"""``worker drain``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scheduler_worker.cli.bind import FleetCommand
from scheduler_worker.cli.connection import seconds
from scheduler_worker.errors import RequestError
from scheduler_worker.operations.operation import PageQuery
from scheduler_worker.operations.workers import (
    NamedWorker,
    WorkerStatus,
    drain_worker,
    get_worker,
    list_workers,
)

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient

_LOOK_S = 0.5


class DrainWorkers(FleetCommand):
    """Have workers take no more requests off the topic's queue; they finish what they have.

    The requests go to the other workers. A drained worker stays up: it answers these commands,
    takes announcements, and stays leader; /readyz and the metric scheduler_drained say that it
    is drained. `worker resume` ends it, and so does a restart.

      scheduler-workerctl worker drain sched-1 --wait 60 && systemctl stop scheduler-worker@1
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("workers", nargs="+", metavar="WORKER", help="its [DEFAULT] host")
        parser.add_argument(
            "--wait",
            type=seconds,
            metavar="SECONDS",
            help="wait until nothing is in hand; status 1 where that takes longer",
        )
        parser.add_argument(
            "--last",
            action="store_true",
            help="also where no other worker is left: requests wait until one is resumed",
        )

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        if not arguments.last:
            _check_not_last(client, arguments.workers)
        for name in arguments.workers:
            status = client.call(drain_worker, NamedWorker(name))
            sys.stdout.write(f"{name}: {status.state}\n")
        if arguments.wait is not None:
            sys.stdout.flush()
            _await_idle(client, arguments.workers, arguments.wait)
        return 0


def _check_not_last(client: SchedulerClient, names: Sequence[str]) -> None:
    """Raises RequestError where nobody else would take requests."""
    serving = [
        worker
        for worker in client.every(list_workers, PageQuery())
        if worker.name not in names
        and worker.state not in {"draining", "drained", "dry run", "silent"}
    ]
    if not serving:
        raise RequestError(
            "worker",
            "no other worker would take requests: they would wait in the queue, and time out; "
            "start or resume another one first, or pass --last",
        )


def _await_idle(client: SchedulerClient, names: Sequence[str], timeout_s: float) -> None:
    """Raises RequestError where a worker has something in hand after so many seconds."""
    deadline_s = time.monotonic() + timeout_s
    for name in names:
        while (running := _in_hand(client.call(get_worker, NamedWorker(name)))) > 0:
            if time.monotonic() > deadline_s:
                raise RequestError(
                    "worker", f"{name} has {running} requests in hand after {timeout_s:g} s"
                )
            time.sleep(_LOOK_S)
        sys.stdout.write(f"{name}: drained\n")


def _in_hand(status: WorkerStatus) -> int:
    return int(status.bus["running"]) + int(status.bus["waiting"])
