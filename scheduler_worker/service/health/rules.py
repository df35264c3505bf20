"""Reads what workers reported of themselves, and judges it: what is wrong, how to fix it."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from scheduler_worker import events, remedies
from scheduler_worker.events import Alert
from scheduler_worker.model.findings import Finding, failed, warning
from scheduler_worker.model.host_records import HostCounts
from scheduler_worker.model.worker_reports import (
    PartReport,
    Spread,
    WorkerFacts,
    WorkerReport,
)
from scheduler_worker.service.state.presence import WorkerHealth
from scheduler_worker.wording import duration, listed

WORKERS = "the workers"
LAG_S = 5.0
"""Requests that wait longer in the topic's queue are too many for the workers."""
REFUSED_LEAST = 20
"""A share of fewer requests says nothing."""


def findings(workers: Sequence[WorkerHealth]) -> Iterator[Finding]:
    """What is wrong with these workers; nothing where all is well."""
    yield from _serving(workers)
    for worker in workers:
        if worker.is_lost:
            message = f"it has reported nothing for {duration(worker.age_s)}"
            yield warning(f"worker {worker.name}", message, remedies.lost(worker.name))
    # What a lost worker said last need not be so any more.
    heard = [worker for worker in workers if not worker.is_lost]
    yield from _missing(heard)
    facts = [worker.facts for worker in heard]
    yield from drained(WORKERS, facts)
    yield from versions(WORKERS, facts)
    yield from configuration(WORKERS, facts)
    reports = {worker.name: worker.report for worker in heard if worker.report is not None}
    yield from _feed(reports)
    yield from _hosts(reports)
    yield from contests(workers)
    yield from _load(reports)
    yield from _alarms(reports)
    yield from unit_alarms(workers)
    yield from _troubles(reports)


def versions(check: str, workers: Sequence[WorkerFacts]) -> Iterator[Finding]:
    """Whether several versions are in use."""
    known = sorted({worker.version for worker in workers})
    if len(known) > 1:
        message = f"versions {listed(known)} are in use at the same time"
        yield warning(check, message, remedies.UPGRADE)


def drained(check: str, workers: Sequence[WorkerFacts]) -> Iterator[Finding]:
    """Whether workers are drained."""
    names = sorted(worker.name for worker in workers if worker.is_drained)
    if names:
        yield warning(
            check,
            f"drained workers take no requests: {listed(names)}",
            f"scheduler-workerctl worker resume {names[0]}",
        )


def _serving(workers: Sequence[WorkerHealth]) -> Iterator[Finding]:
    ours = [worker for worker in workers if not (worker.facts.is_dry_run or worker.is_lost)]
    if not ours:
        yield failed(WORKERS, "there is none: no request is served", remedies.START)
    elif not any(our.state in {"serving", "no report"} for our in ours):
        yield failed(
            WORKERS,
            f"none of {len(ours)} serves: requests wait in the queue until their callers give up",
            "Resume one that is drained, or see below what is missing",
        )


def _missing(workers: Sequence[WorkerHealth]) -> Iterator[Finding]:
    by_text: dict[str, list[WorkerHealth]] = {}
    for worker in workers:
        for text in worker.missing:
            by_text.setdefault(text, []).append(worker)
    for text, having in by_text.items():
        is_feeding = any(worker.facts.is_feeding for worker in having)
        yield failed(_of(worker.name for worker in having), text, _remedy_of(text, is_feeding))


def _remedy_of(missing: str, is_feeding: bool) -> str:
    if missing.startswith(remedies.ABOUT_THE_BUS):
        return remedies.BUS
    if is_feeding and remedies.REFUSED not in missing:
        return f"{remedies.NOVA_DATABASES}. {remedies.ALL_OF_IT}"
    return remedies.of_state(missing)


def configuration(check: str, workers: Sequence[WorkerFacts]) -> Iterator[Finding]:
    """Whether the workers of each topic agree on where hosts come from and are claimed."""
    serving = [worker for worker in workers if not worker.is_dry_run]
    options: dict[str, Callable[[WorkerFacts], bool]] = {
        "[nova_claims] enabled": lambda worker: worker.is_claiming,
        "[nova_feed] enabled": lambda worker: worker.is_feeding,
    }
    for topic in sorted({worker.topic for worker in serving}):
        of_topic = [worker for worker in serving if worker.topic == topic]
        for option, is_on in options.items():
            on = sorted(worker.name for worker in of_topic if is_on(worker))
            off = sorted(worker.name for worker in of_topic if not is_on(worker))
            if on and off:
                message = f"{option} is on for {listed(on)}, and off for {listed(off)}"
                yield failed(check, message, remedies.SAME_CONFIGURATION)


def parts_of(reports: Iterable[WorkerReport]) -> dict[str, PartReport]:
    """The parts of the source of hosts, by name.

    All workers read the same record: who has read it last knows of the least lag.
    """
    parts: dict[str, PartReport] = {}
    for report in reports:
        for name, part in report.feed.items():
            if name not in parts or _lag_s(part) < _lag_s(parts[name]):
                parts[name] = part
    return dict(sorted(parts.items()))


def _feed(reports: Mapping[str, WorkerReport]) -> Iterator[Finding]:
    fix = _see(events.FEED_LAGS, remedies.NOVA_DATABASES)
    for name, part in parts_of(reports.values()).items():
        if not part.is_up:
            yield failed(f"the cell {name}", "its database cannot be read", fix)
        elif events.FEED_LAG_S < _lag_s(part) < math.inf:
            message = f"not all of its {part.hosts} hosts have been known for {part.lag_s:.0f} s"
            yield failed(f"the cell {name}", message, fix)


def _lag_s(part: PartReport) -> float:
    return math.inf if part.lag_s is None else part.lag_s


def _hosts(reports: Mapping[str, WorkerReport]) -> Iterator[Finding]:
    counted = [report.hosts for report in reports.values() if report.hosts is not None]
    by_cluster = {name: counts for of_worker in counted for name, counts in of_worker.items()}
    hosts = {name: counts for name, counts in by_cluster.items() if counts != HostCounts()}
    # A cluster that no worker counts, such as one whose leader was lost, may have any number.
    known = [report.known_clusters for report in reports.values()]
    clusters = max((count for count in known if count is not None), default=None)
    if clusters is not None and len(by_cluster) >= clusters and not hosts:
        yield failed(
            "the hosts",
            "none is known: every request is refused",
            "Let hosts report (docs/rpc.md, update_hosts), or read Nova's: [nova_feed] enabled",
        )
    for name, counts in sorted(hosts.items()):
        awake = counts.up + counts.down
        if not counts.up:
            message = (
                f"none of its hosts is up: {counts.down} down, {counts.disabled} disabled, "
                f"{counts.asleep} asleep"
            )
            yield failed(f"cluster {name}", message, _see(events.NO_HOST_UP, remedies.HOSTS))
        elif counts.down > events.DOWN_SHARE * awake:
            message = f"{counts.down} of {awake} hosts are down ({counts.down / awake:.0%})"
            yield warning(f"cluster {name}", message, _see(events.HOSTS_DOWN, remedies.HOSTS))


def contests(workers: Iterable[WorkerHealth]) -> Iterator[Finding]:
    """Hosts of which several machines report as one."""
    heard = [worker.report for worker in workers if worker.report and not worker.is_lost]
    for text in dict.fromkeys(text for report in heard for text in report.contests):
        yield warning("the hosts", text, remedies.CONTESTED)


def _load(reports: Mapping[str, WorkerReport]) -> Iterator[Finding]:
    lag_s = max((report.lag_s or 0.0 for report in reports.values()), default=0.0)
    if lag_s > LAG_S:
        yield warning(
            "the topic's queue",
            f"requests wait for up to {lag_s:.0f} s until a worker gets them",
            _see(
                events.OVERLOADED,
                "Start more workers; where one cluster is busy, its lock is the limit",
            ),
        )
    lately = [report.lately for report in reports.values()]
    slowest_s = Spread.summed(recent.durations for recent in lately).reached(0.99)
    if slowest_s is not None and slowest_s > events.SLOW_S:
        yield warning(
            "requests",
            f"one of a hundred takes {slowest_s:.0f} s or longer; callers give up after 60 s",
            _see(events.SLOW, "See whether waiting for locks takes the time, or holding them"),
        )
    refused = sum(recent.refused for recent in lately)
    asked = refused + sum(recent.placed for recent in lately)
    if asked >= REFUSED_LEAST and refused > events.REFUSED_SHARE * asked:
        yield warning(
            "requests",
            f"{refused} of {asked} find no host",
            _see(events.REFUSED_OFTEN, "The records of decisions say why"),
        )


def _alarms(reports: Mapping[str, WorkerReport]) -> Iterator[Finding]:
    yield from _said(
        "tuning policies",
        {name: report.tuning_alarms for name, report in reports.items()},
        "Correct the file, it is read again by itself; scheduler-workerctl tuning check FILE "
        "shows all that is wrong with it",
    )


def unit_alarms(workers: Iterable[WorkerHealth]) -> Iterator[Finding]:
    """Files of external units that workers do not load."""
    heard = [worker for worker in workers if not worker.is_lost]
    said = {worker.name: worker.report.unit_alarms for worker in heard if worker.report}
    yield from _said("external units", said, UNIT_FILES)


def _said(check: str, said: Mapping[str, Sequence[str]], fix: str) -> Iterator[Finding]:
    """What workers say, once for all who say it."""
    by_text: dict[str, list[str]] = {}
    for name, texts in said.items():
        for text in texts:
            by_text.setdefault(text, []).append(name)
    for text, names in by_text.items():
        yield warning(f"{check}, {_of(names)}", text, fix)


def _see(alert: Alert, fix: str) -> str:
    return f"{fix} (docs/runbook.md, {alert.name})"


UNIT_FILES = _see(
    events.UNITS_LEFT_OUT,
    "Do what it says, or correct the file, which is read again when it changes",
)


def _troubles(reports: Mapping[str, WorkerReport]) -> Iterator[Finding]:
    by_text: dict[str, dict[str, int]] = {}
    for name, report in reports.items():
        for text, count in report.lately.errors.items():
            by_text.setdefault(text, {})[name] = count
    for text, counts in sorted(by_text.items()):
        trouble = events.INTERNAL if text.endswith(": InternalError") else events.TROUBLES.get(text)
        if trouble is not None and trouble.alert is not None:
            judge = failed if trouble.is_failure else warning
            message = f"{text}: {sum(counts.values())} in the last five minutes"
            yield judge(_of(counts), message, _see(trouble.alert, trouble.fix))


def _of(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return f"worker {ordered[0]}" if len(ordered) == 1 else f"workers {listed(ordered)}"
