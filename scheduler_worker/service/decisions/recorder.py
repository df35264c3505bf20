"""Keeps a record of every decision, behind the answer: a request only leaves what it knows.

A thread of its own makes records out of that and writes them, many at a time. While the log cannot
be written they wait; what there is no room for is dropped, and counted. A worker that is killed
loses what it had not written yet, half a second of decisions. Why a request ended as it did is said
in one sentence, when the record is made or read.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from math import inf
from typing import Annotated, NamedTuple

import msgspec

from scheduler_worker import events
from scheduler_worker.components import Periodic
from scheduler_worker.decision_log import Bounds, DecisionLog, LogRecord
from scheduler_worker.errors import NoValidHost, StateUnavailable
from scheduler_worker.model.decision_history import (
    ComputeNode,
    DecisionDetails,
    DecisionSummary,
    Margin,
    Result,
    to_keep,
)
from scheduler_worker.model.decisions import Decision, Ranked
from scheduler_worker.observer import Observer, Outcome
from scheduler_worker.options import Opt
from scheduler_worker.ports import GLOBAL, Clock
from scheduler_worker.scheduling import sentence
from scheduler_worker.scheduling.pipeline import NOT_ENOUGH_HOSTS, Pipeline, Request
from scheduler_worker.unique import unique_hex

LOG = logging.getLogger(__name__)

INTERVAL_S = 0.5
"""For how long records are collected before a write."""
BATCH = 500
"""How many make a write at once, and how many one write has at most."""
_SAY_AGAIN_S = 60.0
"""The shortest time between two lines of the log about records that were dropped."""


class DecisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How many records are kept."""

    enabled: Annotated[bool, Opt()] = True
    """Whether a record of each decision is kept in the shared state: what was asked, how many hosts
    each filter left, why the chosen host came first. list_decisions and get_decision show them."""
    bounds: Bounds = Bounds()
    """Of each cluster."""
    max_waiting: Annotated[int, Opt(min=1, max=1_000_000)] = 10_000
    """Records of one worker that wait to be written, at most. While the shared state is away
    further ones are dropped and counted; no request waits for them."""


class _Left(NamedTuple):
    """What a request leaves."""

    decided_at_s: float
    request: Request
    outcome: Outcome
    decision: Decision | None


class _Batch(NamedTuple):
    """Records of one scope, which are written in one call that may be repeated."""

    scope: str
    once: str
    records: list[LogRecord]


class Recorder(Periodic):
    """The records of one worker, written while it runs."""

    def __init__(
        self,
        log: DecisionLog,
        clock: Clock,
        *,
        worker: str,
        clusters: Callable[[], Collection[str]],
        pipeline_of: Callable[[str | None], Pipeline],
        max_waiting: int,
        observer: Observer,
    ) -> None:
        """``clusters`` returns the known ones: what is of none is kept in the scope ``@global``.
        ``pipeline_of`` returns that of a cluster, or of none.
        """
        super().__init__("decisions", self.write, INTERVAL_S, finishes=True)
        self._log = log
        self._clock = clock
        self._worker = worker
        self._clusters = clusters
        self._pipeline_of = pipeline_of
        self._max_waiting = max_waiting
        self._observer = observer
        self._waiting: deque[_Left] = deque()
        self._unwritten: deque[_Batch] = deque()
        """Batches that were begun."""
        self._writing = threading.Lock()
        self._is_failing = False
        self._dropped = 0
        """Since the last line about it."""
        self._said_at_s = -_SAY_AGAIN_S

    @property
    def waiting(self) -> int:
        """How many records wait to be written."""
        return len(self._waiting) + sum(len(batch.records) for batch in list(self._unwritten))

    def keep(self, request: Request, outcome: Outcome, decision: Decision | None) -> None:
        """Keep a record of a request that ended, as it was asked. Does not block."""
        waiting = self._waiting
        if len(waiting) >= self._max_waiting:
            self._dropped += 1
            self._observer.count(events.DECISION_RECORDS, "dropped")
            return
        waiting.append(_Left(self._clock.time_s(), request, outcome, decision))
        if len(waiting) == BATCH:
            self.wake()

    def write(self) -> float:
        """Write what waits; returns the seconds until the next time. Raises nothing."""
        with self._writing:
            self._write_all()
            now_s = self._clock.monotonic_s()
            if self._dropped and now_s - self._said_at_s >= _SAY_AGAIN_S:
                dropped, self._dropped, self._said_at_s = self._dropped, 0, now_s
                LOG.warning("Records of decisions that were dropped, as too many wait: %d", dropped)
        return INTERVAL_S

    def stop(self) -> None:
        """End the thread; what waits is written if that is possible now."""
        super().stop()
        if left := self.waiting:
            LOG.warning("Records of decisions that could not be written before the end: %d", left)
        self._log.close()

    def _write_all(self) -> None:
        try:
            while self._unwritten or self._waiting:
                if not self._unwritten:
                    self._unwritten.extend(self._next_batches())
                self._write(self._unwritten[0])
                self._unwritten.popleft()
        except StateUnavailable as error:
            if not self._is_failing:
                LOG.warning("Records of decisions wait until they can be written: %s", error)
            self._is_failing = True
        else:
            self._is_failing = False

    def _write(self, batch: _Batch) -> None:
        """Raises StateUnavailable. A batch that fails otherwise would fail again: it is dropped."""
        result = "written"
        try:
            scopes = len(self._clusters())
            self._log.append(batch.scope, batch.records, once=batch.once, scopes=scopes)
        except StateUnavailable:
            raise
        except Exception:
            LOG.exception("Records of decisions cannot be written and are dropped")
            result = "dropped"
        self._observer.count(events.DECISION_RECORDS, result, by=len(batch.records))

    def _next_batches(self) -> Iterator[_Batch]:
        batches: dict[str, _Batch] = {}
        known = self._clusters()
        for _ in range(min(len(self._waiting), BATCH)):
            ended = self._waiting.popleft()
            cluster = ended.outcome.cluster
            scope = cluster if cluster is not None and cluster in known else GLOBAL
            batch = batches.get(scope)
            if batch is None:
                batch = batches[scope] = _Batch(scope, unique_hex(), [])
            try:
                details, why = _details(ended), ""
                if ended.decision is None:
                    why = why_refused(ended.outcome, details, self._pipeline_of)
                outline = _JSON.encode(_outline(ended, self._worker, why))
                record = LogRecord(ended.outcome.instance_uuids, outline, details.encoded())
                batch.records.append(record)
            except Exception:
                LOG.exception("No record can be made of request %s", ended.outcome.request_id)
                self._observer.count(events.DECISION_RECORDS, "dropped")
        return iter(batches.values())


def _outline(ended: _Left, worker: str, why: str) -> DecisionSummary:
    outcome, spec = ended.outcome, ended.request.spec
    is_placed = ended.decision is not None
    return DecisionSummary(
        decided_at_s=round(ended.decided_at_s, 3),
        worker=worker,
        result=_result(outcome),
        request_id=outcome.request_id,
        global_request_id=outcome.global_request_id,
        project_id=outcome.project_id,
        cluster=outcome.cluster,
        hosts=outcome.hosts,
        flavor=spec.flavor.name,
        availability_zone=spec.availability_zone,
        policy=outcome.policy,
        error=None if is_placed else outcome.result,
        reason=why,
        duration_s=outcome.duration_s,
        lead=lead(outcome, ended.decision.ranked) if ended.decision is not None else None,
    )


def _result(outcome: Outcome) -> Result:
    if outcome.result == "placed":
        return "placed"
    return "refused" if outcome.result == NoValidHost.__name__ else "failed"


def _details(ended: _Left) -> DecisionDetails:
    request, outcome, decision = ended.request, ended.outcome, ended.decision
    selections = [
        tuple([ComputeNode(chosen.service_host, chosen.nodename) for chosen in some])
        for some in (decision.selections if decision else ())
    ]
    return DecisionDetails(
        spec=to_keep(request.spec),
        num_alternates=request.num_alternates,
        priority=request.priority,
        candidates=outcome.candidates,
        rejections=outcome.rejections,
        ranked=decision.ranked if decision else Ranked(),
        selections=tuple(selections),
        repeated=outcome.repeated,
        attempts=outcome.attempts,
        token=outcome.token,
        waits=outcome.waits,
    )


_JSON = msgspec.json.Encoder()


def lead(outcome: Outcome, ranked: Ranked) -> Margin | None:
    """What :func:`why_placed` makes a sentence of; None: the instances had their hosts before."""
    if outcome.repeated and outcome.repeated == outcome.instances:
        return None
    best = ranked.names[0] if ranked.names else None
    if best is not None and best != outcome.hosts[-1]:
        return Margin(outcome.candidates, outcome.passed, best=best)
    shares = [
        (name, own, following)
        for name, share in zip(ranked.weighers, ranked.shares, strict=True)
        if len(share) > 1
        and (own := share[0]) is not None
        and (following := share[1]) is not None
        and own > following
    ]
    return Margin(outcome.candidates, outcome.passed, tuple(shares))


def why_placed(hosts: Sequence[str], lead: Margin | None) -> str:
    """Why the last of these hosts was chosen, in one sentence."""
    if lead is None:
        return "It had its hosts already, from an earlier delivery of the request."
    shares = [
        (name, inf if own is None else own, -inf if following is None else following)
        for name, own, following in lead.shares
    ]
    said = sentence.placement(hosts[-1], lead.candidates, lead.passed, shares, best=lead.best)
    return said if len(hosts) == 1 else f"The last of {len(hosts)} instances: {said}"


def why_refused(
    outcome: Outcome, details: DecisionDetails, pipeline_of: Callable[[str | None], Pipeline]
) -> str:
    """Why a request got no hosts, in one sentence.

    ``pipeline_of`` returns the pipeline of a cluster, whose filters say what they demand of hosts.
    """
    if outcome.reason is None:
        return "An unexpected error, whose details are in the worker's log."
    if outcome.result != NoValidHost.__name__:
        return outcome.reason
    if outcome.reason != NOT_ENOUGH_HOSTS or outcome.passed:
        return sentence.of_reason(outcome.reason)
    steps = list(details.filters)
    demands = pipeline_of(outcome.cluster).demands(details.spec, steps)
    said = sentence.refusal(outcome.candidates, steps, demands)
    if outcome.refusals > 1:
        said = sentence.of_clusters(outcome.cluster, outcome.refusals, outcome.refusing_hosts, said)
    return sentence.of_instances(outcome.instances, said)
