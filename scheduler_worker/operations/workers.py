"""Workers as they reported last, and what is wrong with how to fix it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from scheduler_worker.errors import RequestError, StateUnavailable
from scheduler_worker.model.findings import Finding, Status, failed
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
from scheduler_worker.operations.actions import Right
from scheduler_worker.operations.operation import (
    Call,
    Nothing,
    Page,
    PageQuery,
    operation,
    page_of,
)
from scheduler_worker.redaction import redacted

if TYPE_CHECKING:
    from scheduler_worker.service.health.rules import Reported

STATE, POLICY_STORE = "state", "policy store"
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
    workers: int
    serving: int
    requests: Requests
    clusters: list[ClusterQueueReport]
    """The busiest of each worker, by name."""
    feed: dict[str, PartReport]
    """Cells by name; empty where hosts do not come from Nova's databases."""


class NamedWorker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker."""

    worker: Annotated[str, Meta(description="Its [DEFAULT] host.")]


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
        "Reported": "age_s",
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
    why. Silent: killed less than 30 s ago, stuck or cut off. Also dry run, and no report yet. Lag
    is how long requests wait in the topic's queue before this worker gets them; 0 while it has free
    slots. Holds: leases of clusters' locks, and the leadership of feed, tuning and balancing.
    """
    found = ((each.name, each) for each in call.services.workers.read())
    return page_of(found, query, _worker)


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
def get_worker(call: Call, wanted: NamedWorker) -> WorkerStatus:
    """Show the state of a worker: what it is doing, what it holds, and what is missing.

    It answers however busy it is, and while it is drained.
    """
    return _status(call, wanted)


@operation("POST", None, home="worker", right=Right.DRAIN)
def drain_worker(call: Call, wanted: NamedWorker) -> WorkerStatus:
    """Have a worker take no more requests off the topic's queue; it finishes what it has."""
    _check_named(call, wanted)
    call.worker.drain()
    return _status(call, wanted)


@operation("POST", None, home="worker", right=Right.DRAIN)
def resume_worker(call: Call, wanted: NamedWorker) -> WorkerStatus:
    """Have a drained worker take requests again."""
    _check_named(call, wanted)
    call.worker.resume()
    return _status(call, wanted)


def _check_named(call: Call, wanted: NamedWorker) -> None:
    facts = call.worker.facts
    if wanted.worker != facts.name:
        raise RequestError(
            "worker",
            f"this is {facts.name}; send it to {facts.topic}.{wanted.worker} instead",
        )


def _status(call: Call, wanted: NamedWorker) -> WorkerStatus:
    _check_named(call, wanted)
    from scheduler_worker.service.health.rules import state_of

    facts, status = call.worker.facts, call.worker.status()
    in_hand = status["bus"]["running"] + status["bus"]["waiting"]
    return WorkerStatus(
        **msgspec.structs.asdict(facts),
        **{**status, "holds": msgspec.convert(status["holds"], Holds)},
        state=state_of(facts, status["missing"], in_hand),
    )


@operation("GET", "/health", home="store")
def get_health(call: Call, _: Nothing) -> HealthView:
    """Show what is wrong, and how to fix it."""
    from scheduler_worker.service.health import rules

    problems = call.store.problems()
    found = [
        failed(f"the {name}, from this API process", text, _remedy_of(name, text))
        for name, texts in problems.items()
        for text in texts
    ]
    workers: list[Reported] = []
    try:
        workers = call.services.workers.read()
        found += rules.findings(workers)
    except StateUnavailable as error:
        if not problems.get(STATE):
            text = str(error)
            found.append(
                failed(f"the {STATE}, from this API process", text, _remedy_of(STATE, text))
            )
    reports = [worker.report for worker in workers if worker.report is not None]
    found.sort(key=lambda each: each.status is not Status.FAILED)
    return HealthView(
        status=found[0].status if found else Status.OK,
        findings=[
            msgspec.structs.replace(each, message=redacted(each.message), fix=redacted(each.fix))
            for each in found
        ],
        workers=len(workers),
        serving=sum(worker.state == "serving" for worker in workers),
        requests=_requests(reports),
        clusters=list(_clusters(workers)),
        feed=rules.parts_of(reports),
    )


def _remedy_of(name: str, problem: str) -> str:
    from scheduler_worker import remedies

    return remedies.of_state(problem) if name == STATE else remedies.POLICY_STORE


def _worker(found: Reported) -> WorkerView:
    return WorkerView(
        **msgspec.structs.asdict(found.facts),
        state=found.state,
        age_s=None if found.report is None else round(found.age_s, 1),
        report=None if found.report is None else _report(found.report),
    )


def _report(found: WorkerReport) -> LoadReport:
    same = {name: getattr(found, name) for name in WorkerLoad.__struct_fields__}
    return LoadReport(**same, requests=_requests([found]))


def _requests(reports: Sequence[WorkerReport]) -> Requests:
    lately = [report.lately for report in reports]
    times = [cluster.times for report in reports for cluster in report.clusters]
    errors: Counter[str] = Counter()
    for each in lately:
        errors.update(each.errors)
    return Requests(
        over_s=max((each.over_s for each in lately), default=0.0),
        placed=sum(each.placed for each in lately),
        refused=sum(each.refused for each in lately),
        failed=sum(each.failed for each in lately),
        duration=Times.of(Spread.summed(each.durations for each in lately)),
        lock_wait=Times.of(Spread.summed(each.wait for each in times)),
        lock_hold=Times.of(Spread.summed(each.hold for each in times)),
        errors=dict(errors.most_common()),
    )


def _clusters(workers: Sequence[Reported]) -> Iterator[ClusterQueueReport]:
    by_name: dict[str, list[tuple[str, ClusterReport]]] = {}
    for each in workers:
        for cluster in each.report.clusters if each.report else ():
            by_name.setdefault(cluster.name, []).append((each.name, cluster))
    for name, found in sorted(by_name.items()):
        clusters = [cluster for _, cluster in found]
        held_s, holder = min(  # who has it since the shortest time: others have handed it on
            ((each.held_s, worker) for worker, each in found if each.held_s is not None),
            default=(None, None),
        )
        yield ClusterQueueReport(
            cluster=name,
            in_line=sum(each.in_line for each in clusters),
            oldest_s=max(each.oldest_s for each in clusters),
            waiting_for_pending=sum(each.waiting_for_pending for each in clusters),
            reservations=max(each.reservations for each in clusters),
            holder=holder,
            held_s=held_s,
            lock_wait=Times.of(Spread.summed(each.times.wait for each in clusters)),
            lock_hold=Times.of(Spread.summed(each.times.hold for each in clusters)),
        )
