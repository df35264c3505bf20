"""``worker list``, ``worker show``, ``worker drain`` and ``worker resume``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from scheduler_worker.cli.connection import seconds
from scheduler_worker.cli.fleet.commands import (
    FleetCommand,
    FleetLister,
    FleetShow,
    Listed,
    Optional,
    Row,
    Seconds,
    Table,
    Texts,
)
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import BackendError, NotFound, RequestError, Undeliverable

_ASKED_AT_ONCE = 16
_LOOK_S = 0.5


class ListWorkers(FleetLister):
    """List the workers of the topic, each asked for its state.

    State: serving; drained, or draining while requests are in hand; not ready, `worker show` says
    why; dry run; no answer within --timeout: killed less than 30 s ago, stuck or cut off. Lag is
    how long requests wait in the topic's queue before this worker gets them; 0 while it has free
    slots. Holds: leases of clusters' locks, and the turns of feed, tuning and balancing.
    """

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Table:
        known = client.list_workers()
        columns = (
            *("Worker", "State", "Version", "Uptime", "Lag"),
            *("Slots", "Running", "Waiting", "Holds"),
        )
        with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
            return columns, list(pool.map(partial(_row, client), known))


class ShowWorker(FleetShow):
    """Show the state of a worker: what it is doing, what it holds, and what is missing.

    It answers however busy it is, and while it is drained.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("worker", metavar="WORKER", help="its [DEFAULT] host")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Table:
        found = _of_one(client.get_worker, arguments.worker)
        bus = found["bus"]
        fields: dict[str, Any] = {
            "Worker": found["name"],
            "State": _state(found, found),
            "Version": found["version"],
            "Topic": found["topic"],
            "Uptime": Seconds(found["uptime_s"]),
            "Missing": Listed(found["missing"]),
            "Lag": Seconds(bus.get("queue_delay_s")),
            "Slots": Optional(bus.get("slots")),
            "Running": bus["running"],
            "Waiting": bus["waiting"],
            "Holds": Listed(list(_holds(found))),
            "Claims in Placement": found["is_claiming"],
            "Hosts from Nova": found["is_feeding"],
            "Feed Lag": Texts(found["feed_lag_s"]),
            "Bus": Texts(bus),
            "Clusters": Texts(found["clusters"]),
        }
        return tuple(fields), tuple(fields.values())


class DrainWorkers(FleetCommand):
    """Have workers take no more requests off the topic's queue; they finish what they have.

    The requests go to the other workers. A drained worker stays up: it answers these commands,
    takes announcements, and keeps its turns; /readyz and the metric scheduler_drained say that it
    is drained. `worker resume` ends it, and so does a restart.

      scheduler-workerctl worker drain sched-1 --wait 60 && systemctl stop scheduler-worker@1
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_workers(parser)
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
            _check_others(client, arguments.workers)
        for name in arguments.workers:
            found = _of_one(client.drain_worker, name)
            sys.stdout.write(f"{name}: {_state(found, found)}\n")
        if arguments.wait is not None:
            sys.stdout.flush()
            _await_idle(client, arguments.workers, arguments.wait)
        return 0


class ResumeWorkers(FleetCommand):
    """Have drained workers take requests again."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_workers(parser)

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        for name in arguments.workers:
            found = _of_one(client.resume_worker, name)
            sys.stdout.write(f"{name}: {_state(found, found)}\n")
        return 0


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workers", nargs="+", metavar="WORKER", help="its [DEFAULT] host")


def _of_one(ask: Callable[[str], Row], name: str) -> Row:
    """The answer of one worker. Raises NotFound where there is none of this name."""
    try:
        return ask(name)
    except Undeliverable:
        raise NotFound("worker", name) from None


def _check_others(client: SchedulerClient, names: Sequence[str]) -> None:
    """Raises RequestError where nobody else would take requests."""
    others = [
        each
        for each in client.list_workers()
        if each["name"] not in names and not each["is_drained"] and not each["is_dry_run"]
    ]
    if not others:
        raise RequestError(
            "worker",
            "no other worker would take requests: they would wait in the queue, and time out; "
            "start or resume another one first, or pass --last",
        )


def _await_idle(client: SchedulerClient, names: Sequence[str], timeout_s: float) -> None:
    """Raises RequestError where a worker has something in hand after so many seconds."""
    deadline_s = time.monotonic() + timeout_s
    for name in names:
        while (running := _in_hand(_of_one(client.get_worker, name))) > 0:
            if time.monotonic() > deadline_s:
                raise RequestError(
                    "worker", f"{name} has {running} requests in hand after {timeout_s:g} s"
                )
            time.sleep(_LOOK_S)
        sys.stdout.write(f"{name}: drained\n")


def _row(client: SchedulerClient, facts: Row) -> Sequence[Any]:
    found: Row | None = None
    if not facts["is_dry_run"]:
        try:
            found = client.get_worker(facts["name"])
        except BackendError:
            found = None
    bus = found["bus"] if found else {}
    return (
        *(facts["name"], _state(facts, found), facts["version"]),
        Seconds(found["uptime_s"] if found else None),
        Seconds(bus.get("queue_delay_s")),
        *(Optional(bus.get(each)) for each in ("slots", "running", "waiting")),
        Listed(list(_holds(found)) if found else []),
    )


def _state(facts: Row, found: Row | None) -> str:
    if facts["is_dry_run"]:
        return "dry run"
    if found is None:
        return "no answer"
    if found["is_drained"]:
        return "draining" if _in_hand(found) else "drained"
    return "not ready" if found["missing"] else "serving"


def _in_hand(found: Row) -> int:
    return int(found["bus"]["running"]) + int(found["bus"]["waiting"])


def _holds(found: Row) -> Iterator[str]:
    holds = found["holds"]
    yield from (f"lease {each}" for each in holds["leases"])
    if holds["feed"]:
        yield "feed"
    for what in ("tuning", "balancing"):
        yield from (f"{what} {each}" for each in holds[what])


COMMANDS: dict[str, type[FleetCommand]] = {
    "worker list": ListWorkers,
    "worker show": ShowWorker,
    "worker drain": DrainWorkers,
    "worker resume": ResumeWorkers,
}
