"""What is counted and measured, in a registry of its own: several workers can live in one process.

``docs/monitoring.md`` says what each of it means.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scheduler_worker import __version__
from scheduler_worker.monitoring.health import Load
from scheduler_worker.monitoring.series import OTHER, Counts, Durations
from scheduler_worker.ports import Observer, Outcome

LOG = logging.getLogger(__name__)

MAX_CLUSTERS = 200
_MAX_REQUESTS = 400
_NOT_SERVED = {"NoSuchMethod", "UnsupportedVersion"}
"""With these results the method's name is the caller's invention."""
_CLUSTER = ("cluster",)

_SERVICE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LOCK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics(Observer):
    """Counts what it is told; ``load`` is asked when the metrics are read."""

    def __init__(self, load: Callable[[], Load]) -> None:
        self._registry = CollectorRegistry()
        self._is_connected = False
        self._requests = self._counts(
            "requests_total", "Requests served", "method", "result", limit=_MAX_REQUESTS
        )
        self._request_s = self._service("request_duration", "From getting a slot to the answer")
        self._queue_s = self._service("queue_wait", "From leaving the bus to getting a slot")
        self._pending_s = self._service("pending_wait", "Waiting for promises to be given back")
        self._lock_wait_s = self._lock("lock_wait", "From asking for a lock to its grant")
        self._lock_hold_s = self._lock("lock_hold", "From a lock's grant to commit or release")
        self._timeouts = self._per_cluster("lock_timeouts_total", "Turns that came too late")
        self._overheld = self._per_cluster("hold_expired_total", "Holds that lasted too long")
        self._fenced = self._per_cluster("fenced_commits_total", "Commits after the hold's end")
        self._conflicts = self._per_cluster(
            "commit_conflicts_total", "Claims refused because the host had changed"
        )
        self._expired = self._counts("reservations_expired_total", "Promises that ran out")
        self._ended = self._counts("reservations_ended_total", "Other ends of promises", "how")
        self._rejections = self._counts("filter_rejections_total", "Hosts rejected", "filter")
        self._no_host = self._counts(
            "no_valid_host_total", "Requests that no host could take", "reason"
        )
        self._redelivered = self._counts("redelivered_total", "Messages delivered again")
        self._duplicates = self._counts(
            "duplicates_total", "Messages that were in hand or just answered"
        )
        self._dropped = self._counts("dropped_total", "Messages not served", "why")
        self._reconnects = self._counts("amqp_reconnects_total", "Connections made again")
        self._state_errors = self._counts("redis_errors_total", "Failed uses of the shared state")
        self._tuning_s = self._tuning()
        self._tuning_failures = self._per_cluster(
            "tuning_failures_total", "Evaluations of a cluster's policies that failed"
        )
        self._tuning_faults = self._counts(
            "tuning_faults_total", "Rules left out for an entity", "policy", "kind", limit=400
        )
        self._tuning_casts = self._counts("tuning_casts_total", "Agents told", "result")
        self._registry.register(_AtScrape(load, lambda: self._is_connected))
        ProcessCollector(registry=self._registry)

    def exposition(self, accept: str = "") -> tuple[str, bytes]:
        """All metrics as a scraper that sends this ``Accept`` header wants them: type and text."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def _counts(self, name: str, told: str, *labels: str, limit: int = 100) -> Counts:
        made = Counts(f"scheduler_{name}", told, labels, limit=limit)
        self._registry.register(made)
        return made

    def _per_cluster(self, name: str, told: str) -> Counts:
        return self._counts(name, told, *_CLUSTER, limit=MAX_CLUSTERS)

    def _service(self, name: str, told: str) -> Durations:
        made = Durations(f"scheduler_{name}_seconds", told, bounds_s=_SERVICE_S)
        self._registry.register(made)
        return made

    def _lock(self, name: str, told: str) -> Durations:
        name = f"scheduler_{name}_seconds"
        made = Durations(name, told, _CLUSTER, bounds_s=_LOCK_S, limit=MAX_CLUSTERS)
        self._registry.register(made)
        return made

    def _tuning(self) -> Durations:
        name, told = "scheduler_tuning_cycle_seconds", "Tuning a cluster once"
        made = Durations(name, told, _CLUSTER, bounds_s=_SERVICE_S, limit=MAX_CLUSTERS)
        self._registry.register(made)
        return made

    # What happens

    def request_taken(self, method: str, waited_s: float) -> None:
        self._queue_s.observe(waited_s)

    def request_served(self, method: str, result: str, duration_s: float) -> None:
        self._requests.add((OTHER if result in _NOT_SERVED else method, result))
        self._request_s.observe(duration_s)

    def decided(self, outcome: Outcome) -> None:
        for name, count in outcome.rejections:
            if count:
                self._rejections.add((name,), count)
        if outcome.waited_for_pending_s:
            self._pending_s.observe(outcome.waited_for_pending_s)
        if outcome.result == "NoValidHost":
            self._no_host.add((why_no_host(outcome),))

    def lock_granted(self, scope: str, waited_s: float) -> None:
        self._lock_wait_s.observe(waited_s, (scope,))

    def lock_timed_out(self, scope: str) -> None:
        self._timeouts.add((scope,))

    def lock_ended(self, scope: str, held_s: float) -> None:
        self._lock_hold_s.observe(held_s, (scope,))

    def hold_expired(self, scope: str) -> None:
        self._overheld.add((scope,))

    def commit_fenced(self, scope: str) -> None:
        self._fenced.add((scope,))

    def commit_conflicted(self, scope: str) -> None:
        self._conflicts.add((scope,))

    def promises_ended(self, scope: str, how: str, count: int) -> None:
        if how == "expired":
            self._expired.add(count=count)
        else:
            self._ended.add((how,), count)

    def state_failed(self) -> None:
        self._state_errors.add()

    def message_redelivered(self) -> None:
        self._redelivered.add()

    def message_repeated(self) -> None:
        self._duplicates.add()

    def message_dropped(self, why: str) -> None:
        self._dropped.add((why,))

    def bus_connected(self, *, again: bool) -> None:
        self._is_connected = True
        if again:
            self._reconnects.add()

    def bus_lost(self) -> None:
        self._is_connected = False

    def tuning_cycled(self, scope: str, duration_s: float) -> None:
        self._tuning_s.observe(duration_s, (scope,))

    def tuning_failed(self, scope: str) -> None:
        self._tuning_failures.add((scope,))

    def tuning_told(self, result: str, count: int = 1) -> None:
        self._tuning_casts.add((result,), count)

    def tuning_faulted(self, policy: str, kind: str, count: int) -> None:
        self._tuning_faults.add((policy, kind), count)


class _AtScrape(Collector):
    """What is not counted but looked at when somebody reads the metrics."""

    def __init__(self, load: Callable[[], Load], is_connected: Callable[[], bool]) -> None:
        self._load = load
        self._is_connected = is_connected

    def describe(self) -> Iterable[Metric]:
        return _gauges(Load(), is_connected=False)

    def collect(self) -> Iterable[Metric]:
        try:
            load = self._load()
        except Exception:
            LOG.exception("The worker cannot tell its load")
            return ()
        return _gauges(load, is_connected=self._is_connected())


def _gauges(load: Load, *, is_connected: bool) -> Iterator[Metric]:
    for name, told, value in (
        ("inflight", "Requests being served", load.running),
        ("backlog", "Requests taken by this process and not begun", load.backlog),
        (
            "waiting_requests",
            "Requests waiting for promises to be given back",
            load.waiting_for_pending,
        ),
        ("bus_connected", "Whether the bus is connected", is_connected),
        ("tuning_alarms", "What is wrong with tuning policies", load.tuning_alarms),
    ):
        yield GaugeMetricFamily(f"scheduler_{name}", told, value=value)
    promises = GaugeMetricFamily("scheduler_pending_reservations", "Live promises", labels=_CLUSTER)
    ranked = sorted(load.promises.items(), key=lambda each: each[1], reverse=True)
    for cluster, count in ranked[:MAX_CLUSTERS]:
        promises.add_metric([cluster], count)
    if rest := ranked[MAX_CLUSTERS:]:
        promises.add_metric([OTHER], sum(count for _, count in rest))
    yield promises
    build = GaugeMetricFamily("scheduler_build_info", "Always 1", labels=["version", "python"])
    build.add_metric([__version__, platform.python_version()], 1)
    yield build


def why_no_host(outcome: Outcome) -> str:
    """The filter that left no host, or ``no hosts``, ``not enough hosts`` or ``other``."""
    if not outcome.candidates:
        return "no hosts"
    if outcome.passed:
        return "not enough hosts"
    last = [name for name, count in outcome.rejections if count]
    return last[-1] if last else OTHER
