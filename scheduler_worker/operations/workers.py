"""Workers as they reported last, and what is wrong with how to fix it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, structs

from scheduler_worker import remedies
from scheduler_worker.conversion import convert
from scheduler_worker.errors import RequestError, StateUnavailable
from scheduler_worker.model.findings import Finding, Status, failed, warning
from scheduler_worker.model.worker_reports import (
    ClusterLine,
    ClusterReport,
    Holds,
    PartReport,
    Spread,
    WorkerFacts,
    WorkerLoad,
    WorkerReport,
    WorkerState,
)
from scheduler_worker.operations.callers import Right
from scheduler_worker.operations.operation import Call, Nothing, Page, PageQuery, operation, page_of
from scheduler_worker.redaction import redacted

if TYPE_CHECKING:
    from scheduler_worker.service.state.presence import WorkerHealth

STATE, ARCHIVE = "state", "archive of policies"
"""What an API process needs, by name."""


class Times(msgspec.Struct, frozen=True):
    """Durations of the last minutes, in seconds: at most 26 % above the real ones, never below.

    Null: there were none.
    """

    count: int
    median_s: float | None
    p99_s: float | None

    @classmethod
    def of(cls, spread: Spread) -> Times:
        """What most of them do not exceed."""
        return cls(spread.total, spread.reached(0.5), spread.reached(0.99))


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """Requests for destinations of the last minutes, waits for clusters' locks, and errors."""

    over_s: float
    """For how many seconds they are counted."""
    placed: int
    refused: int
    failed: int
    duration: Times
    lock_wait: Times
    lock_hold: Times
    errors: dict[str, int]


class LoadReport(WorkerLoad, frozen=True, kw_only=True):
    """What a worker does and holds, and what happened lately."""

    requests: Requests


class WorkerView(WorkerFacts, frozen=True, kw_only=True):
    """A worker, and what it reported last."""

    state: WorkerState
    age_s: float | None
    """How old the report is; null: there is none."""
    report: LoadReport | None


class ClusterQueueReport(ClusterLine, frozen=True, kw_only=True):
    """A cluster's queue and lock, of all workers together."""

    cluster: str
    holder: str | None
    """The worker that had the lock when it reported."""
    lock_wait: Times
    lock_hold: Times


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """How the workers and this process are."""

    status: Status
    """The worst of the findings, else ok."""
    findings: list[Finding]
    """What is wrong, the worst first."""
    workers: int | None
    """Lost ones included; null: the shared state cannot be read."""
    serving: int | None
    requests: Requests | None
    clusters: list[ClusterQueueReport]
    """The busiest of each worker, by name."""
    feed: dict[str, PartReport]
    """Cells by name; empty where hosts do not come from Nova's databases."""


class NamedWorker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker."""

    worker: Annotated[str, Meta(description="Its [DEFAULT] host.")]


class DrainedWorker(NamedWorker, frozen=True, forbid_unknown_fields=True):
    """A worker to drain."""

    last: Annotated[
        bool, Meta(description="Also where no other worker takes requests: they wait then.")
    ] = False


class WorkerStatus(WorkerFacts, frozen=True, kw_only=True):
    """The state of a worker at this moment, as it says itself."""

    state: WorkerState
    uptime_s: float
    missing: list[str]
    holds: Holds
    bus: dict[str, Any]
    clusters: dict[str, Any]
    feed_lag_s: dict[str, float | None]


@operation(
    "GET",
    "/workers",
    command="worker list",
    columns={
        "Worker": "name",
        "State": "state",
        "Version": "version",
        "Uptime": "report.uptime_s",
        "WorkerHealth": "age_s",
        "Lag": "report.lag_s",
        "Slots": "report.slots",
        "Running": "report.running",
        "Waiting": "report.waiting",
        "Holds": "report.holds.names",
    },
)
def list_workers(call: Call, query: PageQuery) -> Page[WorkerView]:
    """List the workers by name, as each reported last.

    State: serving, drained, or draining while requests are in hand. Not ready: `worker show` says
    why. Lost: it reported nothing for 20 s, as it was killed, hangs or is cut off. It stays in view
    for a day, or until `worker dismiss`. Also dry run, and no report yet. Lag is how long requests
    wait in the topic's queue before this worker gets them; 0 while it has free slots. Holds: leases
    of clusters' locks, and the leadership of feed, tuning and balancing.
    """
    rows = ((worker.name, worker) for worker in call.services.workers.read())
    return page_of(rows, query, _worker)


@operation(
    "GET",
    None,
    home="worker",
    command="worker show",
    columns={
        "Worker": "name",
        "State": "state",
        "Version": "version",
        "Topic": "topic",
        "Uptime": "uptime_s",
        "Missing": "missing",
        "Lag": "bus.queue_delay_s",
        "Slots": "bus.slots",
        "Running": "bus.running",
        "Waiting": "bus.waiting",
        "Holds": "holds.names",
        "Claims in Placement": "is_claiming",
        "Hosts from Nova": "is_feeding",
        "Feed Lag": "feed_lag_s",
        "Bus": "bus",
        "Clusters": "clusters",
    },
)
def get_worker(call: Call, target: NamedWorker) -> WorkerStatus:
    """Show the state of a worker: what it is doing, what it holds, and what is missing.

    It answers however busy it is, and while it is drained.
    """
    _check_named(call, target)
    return _status(call)


@operation("POST", None, home="worker", right=Right.DRAIN)
def drain_worker(call: Call, target: DrainedWorker) -> WorkerStatus:
    """Have a worker take no more requests off the topic's queue; it finishes what it has."""
    _check_named(call, target)
    call.worker.drain(last=target.last)
    return _status(call, own=1)


@operation(
    "POST", None, home="worker", right=Right.DRAIN, command="worker resume", done="{}: {.state}"
)
def resume_worker(call: Call, target: NamedWorker) -> WorkerStatus:
    """Have a drained worker take requests again."""
    _check_named(call, target)
    call.worker.resume()
    return _status(call, own=1)


@operation(
    "DELETE",
    "/workers/{worker}",
    right=Right.DRAIN,
    command="worker dismiss",
    done="dismissed: {}",
)
def dismiss_worker(call: Call, target: NamedWorker) -> None:
    """Remove a lost worker from view, as it will not come back.

    One that comes back after all is in view again. A worker that stops in order needs none of this.
    """
    call.services.workers.check_lost(target.worker)
    with call.changing("worker.dismiss", target.worker):
        call.services.workers.forget(target.worker)


def _status(call: Call, *, own: int = 0) -> WorkerStatus:
    """``own`` is how many of the requests in hand end with this answer."""
    from scheduler_worker.service.state.presence import state_of

    facts, status = call.worker.facts, call.worker.status()
    in_hand = status["bus"]["running"] + status["bus"]["waiting"] - own
    state = state_of(facts, status["missing"], max(0, in_hand))
    return convert({**structs.asdict(facts), **status, "state": state}, WorkerStatus)


def _check_named(call: Call, target: NamedWorker) -> None:
    facts = call.worker.facts
    if target.worker != facts.name:
        other = f"{facts.topic}.{target.worker}"
        raise RequestError("worker", f"this is {facts.name}; send it to {other} instead")


@operation("GET", "/health", home="api")
def get_health(call: Call, _: Nothing) -> HealthView:
    """Show what is wrong, and how to fix it."""
    from scheduler_worker.service.health import rules

    problems = call.api.problems()
    workers: list[WorkerHealth] | None = None
    findings: list[Finding] = []
    try:
        workers = call.services.workers.read()
        findings += rules.findings(workers)
        findings += _of_book(call)
    except StateUnavailable as error:
        if not problems.get(STATE):
            problems = {**problems, STATE: [str(error)]}
    findings[:0] = [
        failed(
            f"the {name}, from this API process",
            text,
            remedies.of_state(text) if name == STATE else remedies.ARCHIVE,
        )
        for name, texts in problems.items()
        for text in texts
    ]
    # What a lost worker said last is no news; nothing is known of any while the state is away.
    heard = [worker for worker in workers or () if not worker.is_lost]
    reports = [worker.report for worker in heard if worker.report is not None]
    findings.sort(key=lambda finding: finding.status is not Status.FAILED)
    return HealthView(
        status=findings[0].status if findings else Status.OK,
        findings=[
            structs.replace(finding, message=redacted(finding.message), fix=redacted(finding.fix))
            for finding in findings
        ],
        workers=None if workers is None else len(workers),
        serving=None if workers is None else sum(each.state == "serving" for each in workers),
        requests=None if workers is None else _requests(reports),
        clusters=list(_clusters(heard)),
        feed=rules.parts_of(reports),
    )


def _of_book(call: Call) -> Iterator[Finding]:
    """Whether a restart of the shared state may lose policies. Raises StateUnavailable."""
    store, is_archived = call.services.fleet.store, call.services.history.is_configured
    lost = store.loses()
    # A state of one process is lost by design; what matters is that its policies come back.
    if lost is None or (is_archived and not store.characteristics.survives_restart):
        return
    if not any(structs.astuple(call.services.administration.library().documents)):
        return
    refilled = "they are refilled from the archive then, but for edits that it has not yet"
    what = refilled if is_archived else "no archive has a copy of them"
    fix = remedies.BOOK
    yield warning("the book of policies", f"{lost}: a restart may lose all policies; {what}", fix)


def _worker(worker: WorkerHealth) -> WorkerView:
    load, report = None, worker.report
    if report is not None:
        requests = {"requests": _requests([report])}
        load = convert(structs.asdict(report) | requests, LoadReport)
    age_s = None if report is None else round(worker.age_s, 1)
    return WorkerView(**structs.asdict(worker.facts), state=worker.state, age_s=age_s, report=load)


def _requests(reports: Sequence[WorkerReport]) -> Requests:
    periods = [report.lately for report in reports]
    locks = [cluster.times for report in reports for cluster in report.clusters]
    errors: Counter[str] = Counter()
    for period in periods:
        errors.update(period.errors)
    return Requests(
        over_s=max((period.over_s for period in periods), default=0.0),
        placed=sum(period.placed for period in periods),
        refused=sum(period.refused for period in periods),
        failed=sum(period.failed for period in periods),
        duration=Times.of(Spread.summed(period.durations for period in periods)),
        lock_wait=Times.of(Spread.summed(lock.wait for lock in locks)),
        lock_hold=Times.of(Spread.summed(lock.hold for lock in locks)),
        errors=dict(errors.most_common()),
    )


def _clusters(workers: Sequence[WorkerHealth]) -> Iterator[ClusterQueueReport]:
    by_name: dict[str, list[tuple[str, ClusterReport]]] = {}
    for worker in workers:
        for cluster in worker.report.clusters if worker.report else ():
            by_name.setdefault(cluster.name, []).append((worker.name, cluster))
    for name, reported in sorted(by_name.items()):
        clusters = [cluster for _, cluster in reported]
        held_s, holder = min(  # who has it since the shortest time: others have handed it on
            ((line.held_s, worker) for worker, line in reported if line.held_s is not None),
            default=(None, None),
        )
        yield ClusterQueueReport(
            cluster=name,
            in_line=sum(cluster.in_line for cluster in clusters),
            oldest_s=max(cluster.oldest_s for cluster in clusters),
            waiting_for_pending=sum(cluster.waiting_for_pending for cluster in clusters),
            reservations=max(cluster.reservations for cluster in clusters),
            holder=holder,
            held_s=held_s,
            lock_wait=Times.of(Spread.summed(cluster.times.wait for cluster in clusters)),
            lock_hold=Times.of(Spread.summed(cluster.times.hold for cluster in clusters)),
        )
