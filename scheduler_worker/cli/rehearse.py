"""``scheduler-workerctl rehearse``: what recorded decisions would be under other conditions."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler_worker.cli.bind import json_of, moment
from scheduler_worker.cli.commands import (
    PlainCommand,
    add_connection,
    configuration_of,
    connected,
    say,
)
from scheduler_worker.conversion import convert
from scheduler_worker.model.decision_history import (
    DecisionDetails,
    DecisionId,
    DecisionSummary,
    KeptDecision,
)
from scheduler_worker.operations.decisions import (
    DecisionsQuery,
    StoredDecision,
    list_stored_decisions,
)
from scheduler_worker.operations.simulations import RecordsQuery, list_records

if TYPE_CHECKING:
    from scheduler_worker.model.simulations import Change, ChangedDecision, SimulationSummary
    from scheduler_worker.service.simulation.copies import Snapshot

_SAID: dict[Change, str] = {
    "refused": "would be refused",
    "placed": "would be placed",
    "moved": "would go elsewhere",
}


class RehearseDecisions(PlainCommand):
    """Decide the recorded decisions of a time span again under other conditions, and compare.

    What would be refused, placed or put elsewhere, and how full would the hosts be? It works on
    copies, in this program alone; nothing is reserved, and the workers serve on.

      scheduler-workerctl rehearse --config FILE --since 1d --policy strict.yaml --cluster east
      scheduler-workerctl rehearse --config FILE --since 2h --drain cmp7 --drain cmp8
      scheduler-workerctl rehearse --config FILE --since 7d --options packing.conf --json

    The options come from the workers' configuration, which --config names, and from --options
    files after it; the policies are those in force, but for --policy.

    Instances that came in the span and are still there are taken away first, and decided again in
    the order of their decisions. An instance that is gone counts only at the moment of its
    decision: nobody knows for how long it stayed. One that takes NUMA cells, devices or other
    providers of its host stays where it is. Resources that providers share are not known here, and
    no host is attested.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        span = parser.add_argument_group("which decisions")
        span.add_argument(
            "--since", type=moment, default="1d", metavar="TIME",
            help="from this time on: how long ago (30m, 2h, 7d), or a time; default: 1d",
        )  # fmt: skip
        span.add_argument("--until", type=moment, metavar="TIME", help="before this time")
        span.add_argument("--cluster", help="only decisions of this cluster, which --policy is for")
        span.add_argument("--project", help="only decisions of this project")
        tried = parser.add_argument_group("what is tried")
        tried.add_argument(
            "--policy", type=Path, metavar="FILE",
            help="as `policy export` prints it, for --cluster, or for all",
        )  # fmt: skip
        tried.add_argument("--policy-name", metavar="NAME", help="which of the file's policies")
        tried.add_argument(
            "--options", action="append", default=[], metavar="FILE",
            help="a configuration file whose options are tried; may be repeated",
        )  # fmt: skip
        tried.add_argument(
            "--drain", action="append", default=[], metavar="HOST",
            help="a host that takes no more instances; may be repeated",
        )  # fmt: skip
        tried.add_argument(
            "--add-hosts", type=Path, metavar="FILE", help="more hosts, as `host report` reads them"
        )
        copied = parser.add_argument_group("copies, to rehearse again without asking the workers")
        copied.add_argument("--save", type=Path, metavar="FILE", help="write what was copied")
        copied.add_argument(
            "--from", dest="saved", type=Path, metavar="FILE", help="use such a file"
        )
        parser.add_argument(
            "--limit", type=int, default=20, metavar="N", help="changes of each kind; default: 20"
        )
        parser.add_argument("--json", action="store_true", help="print every change, as JSON")
        add_connection(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        summary = _summary(parsed_args)
        if parsed_args.json:
            sys.stdout.write(json_of(summary))
        else:
            say(*_lines(summary, parsed_args.limit))


def _summary(arguments: argparse.Namespace) -> SimulationSummary:
    from scheduler_worker import codec, conf
    from scheduler_worker.cli.fleet import read_reports
    from scheduler_worker.cli.policies import read_one
    from scheduler_worker.service.simulation.deciding import Tried
    from scheduler_worker.simulation import rehearse

    settings = conf.settings(configuration_of(arguments, more=arguments.options))
    policy = read_one(arguments.policy, arguments.policy_name) if arguments.policy else None
    reports = read_reports(arguments.add_hosts) if arguments.add_hosts else []
    added = codec.decode_host_reports(reports) if reports else []
    tried = Tried(policy, arguments.cluster, arguments.drain, added)
    snapshot, decisions = _copied(arguments)
    with _changing_line() as write:

        def progress(done: int, total: int) -> None:
            if done:
                write(f"{done:,} of {total:,} decisions rehearsed")

        return rehearse(settings, snapshot, decisions, tried, progress)


def _copied(arguments: argparse.Namespace) -> tuple[Snapshot, list[KeptDecision]]:
    from scheduler_worker.service.simulation import copies
    from scheduler_worker.simulation import watched

    if arguments.saved:
        return copies.read(arguments.saved)
    names = ("cluster", "project", "since", "until")
    query = DecisionsQuery(limit=1000, **{name: getattr(arguments, name) for name in names})
    with connected(arguments) as client, _changing_line() as write:
        snapshot = copies.assembled(
            lambda cluster, marker: client.call(
                list_records, RecordsQuery(cluster=cluster, marker=marker)
            )
        )
        stored = client.every(list_stored_decisions, query)
        read = watched(stored, lambda number: write(f"{number:,} decisions read"))
        decisions = [_decision(decision) for decision in read]
    if arguments.save:
        copies.write(arguments.save, snapshot, decisions)
    return snapshot, decisions


def _decision(stored: StoredDecision) -> KeptDecision:
    outline = convert(stored.outline, DecisionSummary)
    details = None if stored.details is None else DecisionDetails.decoded(stored.details.encode())
    return KeptDecision(DecisionId.parse(stored.id), outline, details)


@contextlib.contextmanager
def _changing_line() -> Iterator[Callable[[str], None]]:
    """Writes a text over the one before, on a terminal, and in the end nothing."""
    width = 0

    def write(text: str) -> None:
        nonlocal width
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{text:<{width}}\r")
            sys.stderr.flush()
            width = len(text)

    try:
        yield write
    finally:
        if width:
            write("")


def _lines(summary: SimulationSummary, limit: int) -> Iterator[str]:
    yield f"{summary.rehearsed:,} decisions rehearsed"
    for why, count in summary.left_out.items():
        yield f"  {count:,} left out: {why}"
    yield f"placed:  {summary.placed.before:,} -> {summary.placed.after:,}"
    yield f"refused: {summary.refused.before:,} -> {summary.refused.after:,}"
    yield f"on the same hosts, or refused as before: {summary.counts['same']:,}"
    for change, said in _SAID.items():
        changed = [decision for decision in summary.changes if decision.change == change]
        yield f"{said}: {len(changed):,}"
        yield from (f"  {_line(decision)}" for decision in changed[:limit])
        if len(changed) > limit:
            yield f"  and {len(changed) - limit:,} more; see --limit"
    for was, now in zip(summary.packing.before, summary.packing.after, strict=False):
        unused = f"{was.unused:,} of them unused -> {now.unused:,}"
        yield f"cluster {was.cluster}: {was.hosts:,} hosts, {unused}"
        for amount, old in was.use.items():
            if new := now.use.get(amount):
                yield (
                    f"  {amount}: {old.mean:.1f} % used, deviation {old.deviation:.1f} -> "
                    f"{new.mean:.1f} %, {new.deviation:.1f}"
                )


def _line(decision: ChangedDecision) -> str:
    was = ", ".join(decision.hosts_before) or "refused"
    now = ", ".join(decision.hosts) or decision.reason
    return f"{', '.join(decision.instances)} ({decision.flavor or 'no flavor'}): {was} -> {now}"
