"""``decision list``, ``decision show`` and ``decision tail``."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from cliff.columns import FormattableColumn

from scheduler_worker.cli.fleet.commands import (
    FleetCommand,
    FleetLister,
    FleetShow,
    Listed,
    Optional,
    Row,
    Seconds,
    Table,
    add_paging,
    pages,
)
from scheduler_worker.cli.fleet.hosts import shown
from scheduler_worker.client import SchedulerClient
from scheduler_worker.errors import NotFound
from scheduler_worker.model.kept_decisions import RESULTS, DecisionId, Position

MOST = 100
"""How many are listed if nobody says how many."""
LOOK_S = 1.0
"""How often ``tail`` asks for new ones."""
_LATE_S = 10.0
"""Two clusters' logs may be written by clocks that differ: so far back ``tail`` looks again."""
_NONE = DecisionId(Position(0, 0), "")
_LENGTHS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_FILTERS = ("cluster", "instance", "project", "result", "host")
_COLUMNS = ("Time", "Result", "Instances", "Hosts", "Cluster", "Flavor", "Duration", "Id")
_LONG = ("Project", "Request", "Zone", "Policy", "Worker", "Error", "Reason")


class ListDecisions(FleetLister):
    """List what was decided lately, the newest first.

    placed: all instances got a host. refused: no host passed. failed: any other error was answered.
    `decision show` says why.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_filters(parser)
        for name, help in (
            ("--since", "those from this time on: 30m, 2h, 7d ago, or such as 2026-01-31T12:00"),
            ("--until", "those before this time, written likewise"),
        ):
            parser.add_argument(name, type=moment, metavar="TIME", help=help)
        parser.add_argument("--long", action="store_true", help="more columns, such as the reason")
        add_paging(parser, "a decision's id")
        parser.set_defaults(limit=MOST)

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Table:
        found = pages(partial(_page, client, arguments), "decisions", arguments)
        if not arguments.long:
            return _COLUMNS, map(_row, found)
        return (*_COLUMNS, *_LONG), ((*_row(each), *_more(each)) for each in found)


class ShowDecision(FleetShow):
    """Show a decision: why in one sentence, what every filter left, and the first hosts' weights.

    For an instance it is the newest of its decisions; `decision list --instance` has all of them.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("decision", metavar="DECISION", help="its id, or an instance's uuid")

    def ask(self, client: SchedulerClient, arguments: argparse.Namespace) -> Table:
        name = arguments.decision
        if "@" not in name:
            found = client.list_decisions(instance=name, limit=1)["decisions"]
            if not found:
                raise NotFound("kept decision for instance", name)
            name = found[0]["id"]
        fields = dict(client.get_decision(name))
        fields = {"reason": fields.pop("reason"), **fields}
        as_columns = {"decided_at_s": Moment, "filters": Steps, "ranked": Ranking}
        return tuple(fields), tuple(
            as_columns.get(key, shown)(value) for key, value in fields.items()
        )


class TailDecisions(FleetCommand):
    """Print decisions as they are made, a line each, until Ctrl-C.

    --json prints an object on each line, with the fields of `list_decisions` (docs/rpc.md).
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_filters(parser)
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
        write = _write_json if arguments.json else _write_line
        for each in followed(client, arguments):
            write(each)
            sys.stdout.flush()
        return 0


def followed(client: SchedulerClient, arguments: argparse.Namespace) -> Iterator[Row]:
    """The last ones, the oldest first, and then those that are made."""
    arguments.since = arguments.until = None
    page = partial(_page, client, arguments)
    last = page(None, max(1, arguments.lines))["decisions"]
    yield from reversed(last[: max(0, arguments.lines)])
    if arguments.no_follow:
        return
    seen = {_id(each) for each in last}
    newest = begun = max(seen, default=_NONE)
    while True:
        arguments.since = max(begun.position.ms / 1000, newest.position.ms / 1000 - _LATE_S)
        everything = argparse.Namespace(marker=None, limit=None)
        found = {_id(each): each for each in pages(page, "decisions", everything)}
        yield from (found[id] for id in sorted(found) if id > begun and id not in seen)
        seen, newest = set(found), max(found, default=newest)
        time.sleep(LOOK_S)


def moment(text: str) -> float:
    """An argument that is a time: seconds since the epoch. Raises ArgumentTypeError."""
    ago = re.fullmatch(r"(\d{1,9})\s*(\w+)", text)
    if ago and ago[2] in _LENGTHS_S:
        return time.time() - int(ago[1]) * _LENGTHS_S[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r}: write how long ago, such as 30m, 2h or 7d, or a time, such as "
            "2026-01-31T12:00 (of this machine's zone) or 2026-01-31T12:00Z"
        ) from None


class Moment(FormattableColumn[float]):
    """Seconds since the epoch: for people a time in UTC."""

    def human_readable(self) -> str:
        return _time(self._value)


class Steps(FormattableColumn[list[Row]]):
    """What each filter left: a line each for people."""

    def human_readable(self) -> str:
        width = max((len(each["name"]) for each in self._value), default=0)
        lines = (
            f"{each['name']:<{width}} {each['hosts_in']:>7,} -> {each['hosts_out']:,}"
            for each in self._value
        )
        return "\n".join(lines) or "-"


class Ranking(FormattableColumn[list[Row]]):
    """The first hosts with their weights: a line each for people."""

    def human_readable(self) -> str:
        return "\n".join(map(_ranked, self._value)) or "-"


def _ranked(host: Row) -> str:
    shares = [f"{name} {_figure(share)}" for name, share in host["shares"].items()]
    parts = f" = {' + '.join(shares)}" if shares else ""
    return f"{host['host']}  {_figure(host['total'])}{parts}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _add_filters(parser: argparse.ArgumentParser) -> None:
    for name, help in (
        ("cluster", "only those of this cluster"),
        ("instance", "only those of this instance, by its uuid"),
        ("project", "only those of this project"),
        ("host", "only those that chose this host"),
    ):
        parser.add_argument(f"--{name}", help=help)
    parser.add_argument("--result", choices=RESULTS, help="only those that ended so")


def _page(
    client: SchedulerClient, arguments: argparse.Namespace, marker: str | None, limit: int
) -> Row:
    wanted = {name: getattr(arguments, name) for name in _FILTERS}
    times = {"since_s": arguments.since, "until_s": arguments.until}
    return client.list_decisions(**wanted, **times, marker=marker, limit=limit)


def _row(found: Row) -> tuple[Any, ...]:
    return (
        *(Moment(found["decided_at_s"]), found["result"], Listed(found["instances"])),
        *(Listed(found["hosts"]), Optional(found["cluster"]), Optional(found["flavor"])),
        *(Seconds(found["duration_s"]), found["id"]),
    )


def _more(found: Row) -> Iterator[Any]:
    keys = ("project_id", "request_id", "availability_zone", "policy", "worker", "error", "reason")
    yield from (Optional(found[key]) for key in keys)


def _write_line(found: Row) -> None:
    who = ", ".join(found["instances"]) or found["request_id"]
    where = found["cluster"] or "no cluster"
    sys.stdout.write(
        f"{_time(found['decided_at_s'])}  {found['result']:<7}  {who}  {where}: {found['reason']}\n"
    )


def _write_json(found: Row) -> None:
    sys.stdout.write(json.dumps(found) + "\n")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _id(found: Row) -> DecisionId:
    """The later of two is the larger."""
    return DecisionId.parse(found["id"])


COMMANDS: dict[str, type[FleetCommand]] = {
    "decision list": ListDecisions,
    "decision show": ShowDecision,
    "decision tail": TailDecisions,
}
