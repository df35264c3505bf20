"""OpenTelemetry traces: a span for each request, with one inside for each part of its way.

Spans are made and sent behind the answer, by a thread of their own: a request only leaves its
outcome. While the collector is away they wait; what there is no room for is dropped, and counted.
"""

import logging
import random
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from scheduler_worker import __version__
from scheduler_worker.components import Periodic
from scheduler_worker.errors import NoValidHost
from scheduler_worker.observer import Outcome, Phase

LOG = logging.getLogger(__name__)

INTERVAL_S = 1.0
"""For how long outcomes are collected before they are sent."""
BATCH = 200
"""Requests whose spans are sent at once."""
MAX_WAITING = 10_000
_SAY_AGAIN_S = 60.0
_SCOPE = InstrumentationScope("scheduler_worker", __version__)
_TRACEPARENT = re.compile(
    r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII
)
_NS = 1e9


@dataclass(slots=True, eq=False)
class _Request:
    """What a request leaves."""

    outcome: Outcome
    parent: SpanContext | None
    ahead_s: float
    """Of the time of day to the monotonic clock."""
    answered_s: float | None = None
    """When its answer went to the broker, by the monotonic clock."""


class Tracing(Periodic):
    """Sends the spans of requests from :meth:`start` until :meth:`stop`."""

    def __init__(
        self,
        exporter: SpanExporter,
        count: Callable[[str, int], None],
        *,
        worker: str,
        ratio: float,
    ) -> None:
        """``ratio`` of the requests without a trace of their caller's are traced; others as it
        says. ``count`` is told how many requests were ``exported`` or ``dropped``.
        """
        super().__init__("traces", self.run_due, INTERVAL_S, first_s=INTERVAL_S, finishes=True)
        self._exporter = exporter
        service = {"service.name": "scheduler_worker", "service.instance.id": worker}
        self._resource = Resource.create(service)
        self._ratio = ratio
        self._count = count
        self._waiting: deque[_Request] = deque()
        self._unanswered: dict[str, _Request] = {}
        """The waiting requests, by their ids."""
        self._said_at_s = -_SAY_AGAIN_S

    def stop(self) -> None:
        """Send what waits, if that is possible in a few seconds, and end."""
        if not self.is_stopping:
            super().stop()
            self._exporter.shutdown()

    def record(self, outcome: Outcome) -> None:
        """Leave how a request ended. Does not block."""
        parent = parent_of(outcome.traceparent)
        is_traced = parent.trace_flags.sampled if parent else random.random() < self._ratio
        if not is_traced:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._dropped(1, "too many wait")
            return
        request = _Request(outcome, parent, time.time() - time.monotonic())
        self._unanswered[outcome.request_id] = request
        self._waiting.append(request)

    def answered(self, request_id: str) -> None:
        """Add to what a request left that it is answered now. Does not block."""
        request = self._unanswered.pop(request_id, None)
        if request is not None:
            request.answered_s = time.monotonic()

    def run_due(self) -> float:
        """Send what is complete; returns the seconds until the next time."""
        while requests := list(islice(self._complete(), BATCH)):
            try:
                spans = [span for request in requests for span in spans_of(request, self._resource)]
                is_sent = self._exporter.export(spans) is SpanExportResult.SUCCESS
            except Exception as error:  # whatever an exporter raises; requests go on without traces
                LOG.debug("Traces cannot be sent", exc_info=error)
                is_sent = False
            if is_sent:
                self._count("exported", len(requests))
            else:
                self._dropped(len(requests), "the collector does not take them")
        return INTERVAL_S

    def _complete(self) -> Iterator[_Request]:
        """Take what waits, in order, up to the first whose answer is not known and may come yet."""
        until_s = time.monotonic() - INTERVAL_S
        while self._waiting:
            first = self._waiting[0]
            may_come = first.answered_s is None and first.outcome.ended_s > until_s
            if may_come and not self.is_stopping:
                return
            self._unanswered.pop(first.outcome.request_id, None)
            yield self._waiting.popleft()

    def _dropped(self, requests: int, why: str) -> None:
        self._count("dropped", requests)
        now_s = time.monotonic()
        if now_s - self._said_at_s >= _SAY_AGAIN_S:
            self._said_at_s = now_s
            LOG.warning("Traces of requests are dropped: %s", why)


def parent_of(traceparent: str | None) -> SpanContext | None:
    """The caller's span; None where there is none, or what was sent is none."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    if match is None:
        return None
    trace_id, span_id, flags = (int(match[at], 16) for at in (1, 2, 3))
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None


def spans_of(request: _Request, resource: Resource) -> Iterator[ReadableSpan]:
    """The request's span, and those inside it."""
    outcome, parent = request.outcome, request.parent
    began_s, ended_s = outcome.ended_s - outcome.duration_s, request.answered_s or outcome.ended_s
    phases = [*outcome.phases]
    if request.answered_s is not None:
        phases.append(Phase("answer", outcome.ended_s, request.answered_s))
    trace_id = parent.trace_id if parent else random.getrandbits(128)
    root = _context(trace_id)

    def at_ns(monotonic_s: float) -> int:
        return int((monotonic_s + request.ahead_s) * _NS)

    yield ReadableSpan(
        "select_destinations",
        context=root,
        parent=parent,
        resource=resource,
        attributes=_attributes(outcome),
        kind=SpanKind.SERVER,
        status=_status(outcome),
        start_time=at_ns(min([began_s, *(phase.began_s for phase in phases)])),
        end_time=at_ns(ended_s),
        instrumentation_scope=_SCOPE,
    )
    for phase in phases:
        yield ReadableSpan(
            phase.name,
            context=_context(trace_id),
            parent=root,
            resource=resource,
            start_time=at_ns(phase.began_s),
            end_time=at_ns(phase.ended_s),
            instrumentation_scope=_SCOPE,
        )


def _context(trace_id: int) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(trace_id, random.getrandbits(64) or 1, is_remote=False, trace_flags=flags)


def _attributes(outcome: Outcome) -> dict[str, str | int | Sequence[str]]:
    attributes: dict[str, str | int | Sequence[str] | None] = {
        "openstack.request_id": outcome.request_id,
        "openstack.global_request_id": outcome.global_request_id,
        "openstack.project_id": outcome.project_id,
        "scheduler.result": outcome.result,
        "scheduler.cluster": outcome.cluster,
        "scheduler.policy": outcome.policy,
        "scheduler.instances": outcome.instance_uuids,
        "scheduler.hosts": outcome.hosts,
        "scheduler.candidates": outcome.candidates,
        "scheduler.passed": outcome.passed,
        "scheduler.attempts": outcome.attempts,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _status(outcome: Outcome) -> Status:
    """A refusal is an answer; an error is one."""
    if outcome.result in {"placed", NoValidHost.__name__}:
        return Status(StatusCode.UNSET)
    return Status(StatusCode.ERROR, outcome.reason or outcome.result)
