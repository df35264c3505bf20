"""``scheduler-workerctl rehearse``: what recorded decisions would be under other conditions."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler_worker.cli.bind import PAGE, count, json_of, moment
from scheduler_worker.cli.commands import (
    PlainCommand,
    add_connection,
    complain,
    configuration_of,
    connected,
    say,
    seconds,
)
from scheduler_worker.cli.progress import doing
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
from scheduler_worker.operations.operation import when
from scheduler_worker.operations.rehearsals import RecordsQuery, list_records

if TYPE_CHECKING:
    from scheduler_worker.client import SchedulerClient
    from scheduler_worker.model.rehearsals import (
        Change,
        ChangedDecision,
        RecordsPage,
        RehearsalSummary,
    )
    from scheduler_worker.service.rehearsal.snapshots import Snapshot

MOST = 10_000
"""Decisions of one rehearsal, unless more are wanted."""
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

    It decides some hundred to a thousand decisions a second, and says on stderr how far it is. The
    newest 10,000 are taken; --most and --within set other bounds. Ctrl-C while it decides ends it
    with what was decided until then. --drain alone needs no decisions of other clusters.

    It does not say whether the instances that are on a host now fit elsewhere.
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
        span.add_argument(
            "--most", type=count, default=MOST, metavar="N",
            help="the newest N of these; default: %(default)d",
        )  # fmt: skip
        span.add_argument(
            "--within", type=seconds, metavar="SECONDS",
            help="decide no longer than this, the oldest first; default: until all are decided",
        )  # fmt: skip
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
        bound, summary = _rehearsed(parsed_args)
        if parsed_args.json:
            complain(*bound)
            sys.stdout.write(json_of(summary))
        else:
            say(*bound, *_lines(summary, parsed_args.limit))


def _rehearsed(arguments: argparse.Namespace) -> tuple[list[str], RehearsalSummary]:
    """What was not taken, in sentences, and the summary."""
    from scheduler_worker import codec, conf
    from scheduler_worker.cli.fleet import read_reports
    from scheduler_worker.cli.policies import read_one
    from scheduler_worker.compose.rehearsal import rehearse
    from scheduler_worker.service.rehearsal.replay import RehearsalOverrides

    settings = conf.settings(configuration_of(arguments, more=arguments.options))
    policy = read_one(arguments.policy, arguments.policy_name) if arguments.policy else None
    reports = read_reports(arguments.add_hosts) if arguments.add_hosts else []
    added = codec.decode_host_reports(reports) if reports else []
    tried = RehearsalOverrides(policy, arguments.cluster, arguments.drain, added)
    bound, snapshot, decisions = _copied(arguments)
    with (
        doing(f"rehearsing {len(decisions):,} decisions", at_once=True) as activity,
        _ends(arguments.within) as end,
    ):
        return bound, rehearse(settings, snapshot, decisions, tried, activity.far, end=end)


def _copied(
    arguments: argparse.Namespace,
) -> tuple[list[str], Snapshot, Sequence[KeptDecision]]:
    """What was not taken, in sentences; the hosts and the decisions, the newest first."""
    from scheduler_worker.service.rehearsal import snapshots

    if arguments.saved:
        with doing(f"reading {arguments.saved}", at_once=True):
            snapshot, decisions = snapshots.read(arguments.saved)
        number = f"{arguments.most:,} of {len(decisions):,}"
    else:
        snapshot, decisions = _asked(arguments)
        number = f"{arguments.most:,}"
    taken, bound = decisions[: arguments.most], []
    if len(decisions) > len(taken):
        since = f"{when(taken[-1].outline.decided_at_s):%Y-%m-%d %H:%M:%SZ}"
        bound = [f"The newest {number} decisions are taken, since {since}; --most takes more"]
    if arguments.save:
        snapshots.write(arguments.save, snapshot, taken)
    return bound, snapshot, taken


def _asked(arguments: argparse.Namespace) -> tuple[Snapshot, list[KeptDecision]]:
    """What the workers know, with one decision more than are taken if there are more."""
    most = arguments.most
    with connected(arguments) as client:
        snapshot = _snapshot(client)
        query = _query(arguments, snapshot)
        decisions = []
        with doing("reading decisions", at_once=True) as activity:
            for stored in islice(client.every(list_stored_decisions, query), most + 1):
                decisions.append(_decision(stored))
                activity.far(min(len(decisions), most), unit=f", {most:,} at most")
    return snapshot, decisions


def _snapshot(client: SchedulerClient) -> Snapshot:
    from scheduler_worker.service.rehearsal import snapshots

    def read(cluster: str | None, marker: str | None) -> RecordsPage:
        return client.call(list_records, RecordsQuery(cluster=cluster, marker=marker))

    with doing("reading the records of hosts", at_once=True) as activity:
        return snapshots.assembled(
            read,
            lambda done, total, number: activity.far(done, total, f" clusters, {number:,} records"),
        )


def _query(arguments: argparse.Namespace, snapshot: Snapshot) -> DecisionsQuery:
    """Which decisions are read: of the only cluster in which something is tried, or of all.

    Raises RequestError for a drained host that is not there.
    """
    from scheduler_worker.service.rehearsal.replay import found

    cluster = arguments.cluster
    drained = {cluster for cluster, _ in found(snapshot, arguments.drain)}
    others = arguments.policy, arguments.options, arguments.add_hosts
    if len(drained) == 1 and cluster is None and not any(others) and not arguments.save:
        [cluster] = drained
    names = ("project", "since", "until")
    limit = min(PAGE, arguments.most + 1)
    return DecisionsQuery(
        cluster=cluster, limit=limit, **{name: getattr(arguments, name) for name in names}
    )


@contextlib.contextmanager
def _ends(within_s: float | None) -> Iterator[Callable[[], str | None]]:
    """Says why to end before all is decided: the time is over, or Ctrl-C; a second one ends all."""
    due_s = None if within_s is None else time.monotonic() + within_s
    is_interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        signal.signal(signal.SIGINT, before)

    def end() -> str | None:
        if is_interrupted:
            return "Ctrl-C came before they were decided"
        is_over = due_s is not None and time.monotonic() >= due_s
        return "the time of --within was over before they were decided" if is_over else None

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield end
    finally:
        signal.signal(signal.SIGINT, before)


def _decision(stored: StoredDecision) -> KeptDecision:
    outline = convert(stored.outline, DecisionSummary)
    details = None if stored.details is None else DecisionDetails.decoded(stored.details.encode())
    return KeptDecision(DecisionId.parse(stored.id), outline, details)


def _lines(summary: RehearsalSummary, limit: int) -> Iterator[str]:
    yield f"{summary.rehearsed:,} decisions rehearsed"
    for why, number in summary.left_out.items():
        yield f"  {number:,} left out: {why}"
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
