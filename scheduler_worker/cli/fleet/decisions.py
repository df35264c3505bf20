"""``decision tail``."""

import argparse
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from scheduler_worker.cli.bind import FleetCommand
from scheduler_worker.model.decision_history import RESULTS, DecisionId
from scheduler_worker.operations.decisions import DecisionOutline, DecisionsQuery, list_decisions

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient

LOOK_S = 1.0
"""How often ``tail`` asks for new ones."""
_LATE = timedelta(seconds=10)
"""Two clusters' logs may be written by clocks that differ: ``tail`` re-reads that far back."""
_FILTERS = ("cluster", "instance", "project", "result", "host")


class TailDecisions(FleetCommand):
    """Print decisions as they are made, a line each, until Ctrl-C.

    --json prints an object on each line, with the fields of `list_decisions` (docs/rpc.md).
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        for name, help in (
            ("cluster", "only those of this cluster"),
            ("instance", "only those of this instance, by its uuid"),
            ("project", "only those of this project"),
            ("host", "only those that chose this host"),
        ):
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

    def ask(self, client: "SchedulerClient", arguments: argparse.Namespace) -> int:
        for decision in followed(client, arguments):
            text = msgspec.json.encode(decision).decode() if arguments.json else _line(decision)
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
        return 0


def followed(client: "SchedulerClient", arguments: argparse.Namespace) -> Iterator[DecisionOutline]:
    """The last decisions, the oldest first, and then each new one."""
    filters = {name: getattr(arguments, name) for name in _FILTERS}
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
        time.sleep(LOOK_S)


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
