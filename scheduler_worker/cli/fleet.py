"""The commands of hosts, workers and decisions that are more than the call of an operation."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from scheduler_worker.cli.bind import FleetCommand, json_of
from scheduler_worker.cli.commands import say, seconds
from scheduler_worker.cli.files import read_yaml
from scheduler_worker.cli.progress import doing
from scheduler_worker.errors import ConfigError, NotFound, RequestError
from scheduler_worker.model.decision_history import RESULTS, DecisionId
from scheduler_worker.operations.decisions import DecisionOutline, DecisionsQuery, list_decisions
from scheduler_worker.operations.hosts import OneHost, get_host
from scheduler_worker.operations.workers import (
    DrainedWorker,
    NamedWorker,
    drain_worker,
    get_worker,
)

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient

_LOOK_S = 0.5
"""How often a worker that is drained is asked what it has in hand."""
_NEW_S = 1.0
"""How often ``decision tail`` asks for new ones."""
_LATE = timedelta(seconds=10)
"""Two clusters' logs may be written by clocks that differ: ``tail`` re-reads that far back."""
_FILTERS = {
    "cluster": "only those of this cluster",
    "instance": "only those of this instance, by its uuid",
    "project": "only those of this project",
    "host": "only those that chose this host",
}


class ReportHosts(FleetCommand):
    """Report hosts from a YAML file, as their agents would report them.

    This is for trying the workers, and for hosts without an agent. The file is a list of reports,
    or one of them; docs/rpc.md, section 4, has the fields:

      - host: compute-1
        uuid: 7d3f2c5e-5b8e-4c36-9f0e-2a8d1b6c4e01    # of its compute node; always the same
        vcpus: 16
        memory_mb: 65536
        local_gb: 500

    All of them are stored, or none; the error names the wrong fields. A host that is not reported
    again counts as down after [DEFAULT] service_down_time: --every 30 keeps it up until Ctrl-C.
    In a cloud whose hosts come from Nova ([nova_feed]) the feed removes hosts that Nova lacks.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="such as examples/hosts.yaml")
        parser.add_argument(
            "--every",
            type=seconds,
            metavar="SECONDS",
            help="report them again and again; the file is read again each time",
        )

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        while True:
            reports = read_reports(arguments.file)
            into = ", ".join(sorted(client.update_hosts(reports)))
            say(f"{len(reports)} hosts reported; changed: {into or 'nothing'}")
            if arguments.every is None:
                return 0
            sys.stdout.flush()
            time.sleep(arguments.every)


class RemoveHosts(FleetCommand):
    """Remove hosts with their instances and reservations.

    A host that still has an agent comes back with its next report.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("hosts", nargs="+", metavar="HOST", help="its name, node name or uuid")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        # All are found before one is removed: a mistyped name removes nothing.
        found = [client.call(get_host, OneHost(host)) for host in arguments.hosts]
        for host in found:
            if not client.remove_hosts([(host.name, host.nodename)]):
                raise NotFound("host", host.uuid)  # another removed it a moment ago
            node = f", node {host.nodename}" if host.nodename != host.name else ""
            say(f"removed: {host.name}{node}")
        return 0


def read_reports(path: Path) -> list[dict[str, Any]]:
    """The reports of a YAML file, unchecked: the workers check the fields.

    Raises ConfigError, which names the place, for what is no list of mappings.
    """
    plain = read_yaml(path)
    reports = [plain] if isinstance(plain, dict) else plain
    if not isinstance(reports, list) or not reports:
        raise ConfigError(f"{path}: expected a list of host reports, each with the field host")
    for number, report in enumerate(reports):
        if not isinstance(report, dict):
            kind = type(report).__name__
            raise ConfigError(f"{path}: report {number + 1}: expected fields, got {kind}")
    return reports


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
        for name in arguments.workers:
            status = client.call(drain_worker, DrainedWorker(name, last=arguments.last))
            say(f"{name}: {status.state}")
        if arguments.wait is not None:
            sys.stdout.flush()
            _await_idle(client, arguments.workers, arguments.wait)
        return 0


def _await_idle(client: SchedulerClient, names: Sequence[str], timeout_s: float) -> None:
    """Raises RequestError where a worker has something in hand after so many seconds."""
    deadline_s = time.monotonic() + timeout_s
    for name in names:
        with doing(f"waiting for {name} to finish") as activity:
            while running := _in_hand(client, name):
                activity.far(running, unit=" requests in hand")
                if time.monotonic() > deadline_s:
                    problem = f"{name} has {running} requests in hand after {timeout_s:g} s"
                    raise RequestError("worker", problem)
                time.sleep(_LOOK_S)
        say(f"{name}: drained")


def _in_hand(client: SchedulerClient, worker: str) -> int:
    bus = client.call(get_worker, NamedWorker(worker)).bus
    return int(bus["running"]) + int(bus["waiting"])


class TailDecisions(FleetCommand):
    """Print decisions as they are made, a line each, until Ctrl-C.

    --json prints an object on each line, with the fields of `list_decisions` (docs/rpc.md).
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        for name, help in _FILTERS.items():
            parser.add_argument(f"--{name}", help=help)
        parser.add_argument("--result", choices=RESULTS, help="only decisions that ended so")
        parser.add_argument(
            *("-n", "--lines"),
            type=int,
            default=10,
            metavar="N",
            help="begin with so many that were made before; default: 10",
        )
        parser.add_argument("--json", action="store_true", help="JSON, for programs")
        parser.add_argument("--no-follow", action="store_true", help="end after these")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> int:
        for decision in followed(client, arguments):
            if arguments.json:
                sys.stdout.write(json_of(decision, indent=None))
            else:
                say(_line(decision))
            sys.stdout.flush()
        return 0


def followed(client: SchedulerClient, arguments: argparse.Namespace) -> Iterator[DecisionOutline]:
    """The last decisions, the oldest first, and then each new one."""
    filters = {name: getattr(arguments, name) for name in (*_FILTERS, "result")}
    query = DecisionsQuery(**filters, limit=max(1, arguments.lines))
    last = client.call(list_decisions, query).items
    yield from reversed(last[: max(0, arguments.lines)])
    if arguments.no_follow:
        return
    seen = {_id(decision) for decision in last}
    newest = begun = max(seen, default=None)
    while True:
        since = None if newest is None else max(_time(begun), _time(newest) - _LATE)
        later = structs.replace(query, since=since, limit=1000)
        by_id = {_id(decision): decision for decision in client.every(list_decisions, later)}
        fresh = (id for id in sorted(by_id) if (begun is None or id > begun) and id not in seen)
        yield from (by_id[id] for id in fresh)
        seen, newest = set(by_id), max(by_id, default=newest)
        time.sleep(_NEW_S)


def _time(id: DecisionId | None) -> datetime:
    return datetime.fromtimestamp(id.position.ms / 1000 if id else 0, UTC)


def _line(decision: DecisionOutline) -> str:
    who = ", ".join(decision.instances) or decision.request_id
    where = decision.cluster or "no cluster"
    when = decision.decided_at.strftime("%Y-%m-%d %H:%M:%SZ")
    return f"{when}  {decision.result:<7}  {who}  {where}: {decision.reason}"


def _id(decision: DecisionOutline) -> DecisionId:
    """The later of two is the larger."""
    return DecisionId.parse(decision.id)
