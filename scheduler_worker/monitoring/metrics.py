"""The worker's Prometheus metrics, in a registry for each worker of a process.

``docs/monitoring.md`` explains each of them.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import structs
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scheduler_worker import __version__
from scheduler_worker.monitoring.health import FeedLoad, Load
from scheduler_worker.monitoring.series import OTHER, Counts, Durations
from scheduler_worker.observer import Observer, Outcome

LOG = logging.getLogger(__name__)

MAX_CLUSTERS = 200
_MAX_REQUESTS = 400
NOT_SERVED = {"NoSuchMethod", "UnsupportedVersion"}
"""Results with which the method's name is not a label, since a caller can make up any."""
_CLUSTER = ("cluster",)

_SERVICE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LOCK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics(Observer):
    """Counts observed events; calls ``load`` when the metrics are scraped."""

    def __init__(self, load: Callable[[], Load]) -> None:
        self._registry = CollectorRegistry()
        self._is_connected = False
        self._requests = self._counts(
            "requests_total", "Requests served", "method", "result", limit=_MAX_REQUESTS
        )
        self._request_s = self._service("request_duration", "From getting a slot to the answer")
        self._queue_s = self._service("queue_wait", "From receiving a request to getting a slot")
        self._pending_s = self._service("pending_wait", "Waiting for reserved resources")
        self._lock_wait_s = self._lock("lock_wait", "From asking for a lock to its grant")
        self._lock_hold_s = self._lock("lock_hold", "From a lock's grant to commit or release")
        self._timeouts = self._per_cluster(
            "lock_timeouts_total", "Requests that timed out in the cluster queue"
        )
        self._overheld = self._per_cluster(
            "hold_expired_total", "Leases that ended by their timeout"
        )
        self._fenced = self._per_cluster(
            "fenced_commits_total", "Commits refused after the lease ended"
        )
        self._conflicts = self._per_cluster(
            "commit_conflicts_total", "Claims refused because the host had changed"
        )
        self._expired = self._counts("reservations_expired_total", "Reservations that expired")
        self._ended = self._counts(
            "reservations_ended_total", "Reservations that ended in another way", "how"
        )
        self._rejections = self._counts("filter_rejections_total", "Hosts rejected", "filter")
        self._no_host = self._counts(
            "no_valid_host_total", "Requests that no host could take", "reason"
        )
        self._redelivered = self._counts("redelivered_total", "Messages that were redelivered")
        self._duplicates = self._counts(
            "duplicates_total", "Duplicates of messages in hand or just answered"
        )
        self._dropped = self._counts("dropped_total", "Messages not served", "why")
        self._reconnects = self._counts("amqp_reconnects_total", "Reconnections to the broker")
        self._state_errors = self._counts(
            "redis_errors_total", "Failed operations on the shared state"
        )
        self._add_tuning()
        self._add_external_units()
        self._add_balancing()
        self._add_claims()
        self._add_feed()
        self._kept = self._counts(
            "decision_records_total", "Records of decisions, written or dropped", "result"
        )
        self._traced = self._counts(
            "traces_total", "Requests whose traces were exported or dropped", "result"
        )
        self._registry.register(_AtScrape(load, lambda: self._is_connected))
        ProcessCollector(registry=self._registry)

    def _add_tuning(self) -> None:
        self._tuning_s = self._rounds(
            "tuning_cycle_seconds", "One evaluation of a cluster's tuning policies"
        )
        self._tuning_failures = self._per_cluster(
            "tuning_failures_total", "Evaluations of a cluster's policies that failed"
        )
        self._tuning_faults = self._counts(
            "tuning_faults_total", "Rules left out for an entity", "policy", "kind", limit=400
        )
        self._tuning_casts = self._counts("tuning_casts_total", "Values sent to agents", "result")

    def _add_external_units(self) -> None:
        self._external_calls = self._counts(
            "external_unit_calls_total", "Calls of units in cages", "unit", "result", limit=400
        )
        self._external_s = self._service("external_unit_call", "One call of a unit in a cage")
        self._external_files = self._counts(
            "external_unit_files_total", "Files loaded into cages", "file", "isolation"
        )

    def _add_balancing(self) -> None:
        self._balancing_s = self._rounds(
            "balancing_round_seconds", "One round of a cluster's balance"
        )
        self._balancing_failures = self._per_cluster(
            "balancing_failures_total", "Rounds of a cluster's balance that failed"
        )
        self._target_failures = self._per_cluster(
            "balancing_target_failures_total", "Whoever migrates VMs could not be asked"
        )
        self._busy_s = self._per_cluster(
            "balancing_busy_seconds_total", "For how long hosts had too much load, added up"
        )
        self._considered = self._counts(
            "balancing_proposals_total", "Proposed migrations", *_CLUSTER, "outcome", limit=400
        )
        self._migrations = self._counts(
            "balancing_migrations_total", "Migrations that ended", *_CLUSTER, "outcome", limit=400
        )
        self._power_actions = self._counts(
            "balancing_power_actions_total",
            "Power actions that were proposed, or ended",
            *(*_CLUSTER, "to", "outcome"),
            limit=1000,
        )
        self._unprotected = _PerCluster(
            "scheduler_balancing_unprotected_hosts",
            "Hosts whose highly available VMs would not find room on others",
        )
        self._registry.register(self._unprotected)

    def _add_claims(self) -> None:
        self._claims = self._counts(
            "claims_total", "Instances whose hosts were claimed in Placement, or not", "result"
        )
        self._claim_posts = self._counts(
            "claim_posts_total", "Requests that write claims to Placement", "answer"
        )
        self._claim_consumers = self._counts(
            "claim_consumers_total", "Consumers in these requests, in all", "answer"
        )
        self._claim_post_s = self._service("claim_post", "One such request")
        self._claim_s = self._service("claim_wait", "From a decision to its claim")
        self._candidates = self._counts(
            "candidates_total", "Questions to Placement for allocation candidates", "answer"
        )
        self._candidates_s = self._service("candidates", "One such question")

    def _add_feed(self) -> None:
        self._dry_run = self._counts(
            "dry_run_requests_total", "Instances of copied requests, as they compare", "result"
        )
        self._feed_s = self._durations(
            "feed_round_seconds", "Bringing a part of a source of hosts up to date", "cell"
        )
        self._feed_rows = self._counts(
            "feed_rows_total", "Rows read from a source of hosts", "cell", "what", limit=400
        )
        self._feed_writes = self._counts(
            "feed_reports_total", "Reports stored because they differed", "cell", limit=100
        )
        self._feed_failures = self._counts(
            "feed_failures_total", "Rounds that could not read or store", "cell", limit=100
        )
        self._look_s = self._durations(
            "feed_look_seconds", "Looking again for requests that no host passed"
        )
        self._verified = self._counts(
            "verified_decisions_total", "Decisions compared with the hosts' sources", "result"
        )
        self._looks = self._counts(
            "second_looks_total", "Requests for which hosts were looked at again", "result"
        )
        self._provider_reads = self._counts(
            "providers_reads_total", "Answers of Placement about resource providers", "what"
        )
        self._provider_failures = self._counts(
            "providers_failures_total", "Questions about them without a usable answer", "what"
        )

    def exposition(self, accept: str = "") -> tuple[str, bytes]:
        """Content type and text of all metrics, in a format that the ``Accept`` header permits."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def _counts(self, name: str, help_text: str, *labels: str, limit: int = 100) -> Counts:
        made = Counts(f"scheduler_{name}", help_text, labels, limit=limit)
        self._registry.register(made)
        return made

    def _per_cluster(self, name: str, help_text: str) -> Counts:
        return self._counts(name, help_text, *_CLUSTER, limit=MAX_CLUSTERS)

    def _service(self, name: str, help_text: str) -> Durations:
        made = Durations(f"scheduler_{name}_seconds", help_text, bounds_s=_SERVICE_S)
        self._registry.register(made)
        return made

    def _lock(self, name: str, help_text: str) -> Durations:
        name = f"scheduler_{name}_seconds"
        made = Durations(name, help_text, _CLUSTER, bounds_s=_LOCK_S, limit=MAX_CLUSTERS)
        self._registry.register(made)
        return made

    def _rounds(self, name: str, help_text: str) -> Durations:
        return self._durations(name, help_text, *_CLUSTER)

    def _durations(self, name: str, help_text: str, *labels: str) -> Durations:
        name = f"scheduler_{name}"
        made = Durations(name, help_text, labels, bounds_s=_SERVICE_S, limit=MAX_CLUSTERS)
        self._registry.register(made)
        return made

    # Events

    def request_taken(self, method: str, waited_s: float) -> None:
        self._queue_s.observe(waited_s)

    def request_served(self, method: str, result: str, duration_s: float) -> None:
        self._requests.add((OTHER if result in NOT_SERVED else method, result))
        self._request_s.observe(duration_s)

    def decided(self, outcome: Outcome) -> None:
        for name, count in outcome.rejections:
            if count:
                self._rejections.add((name,), count)
        if outcome.waited_for_pending_s:
            self._pending_s.observe(outcome.waited_for_pending_s)
        if outcome.claim_s:
            self._claim_s.observe(outcome.claim_s)
        if outcome.result == "NoValidHost":
            self._no_host.add((why_no_host(outcome),))

    def lock_granted(self, scope: str, waited_s: float) -> None:
        self._lock_wait_s.observe(waited_s, (scope,))

    def lock_timed_out(self, scope: str) -> None:
        self._timeouts.add((scope,))

    def lock_ended(self, scope: str, held_s: float) -> None:
        self._lock_hold_s.observe(held_s, (scope,))

    def lease_expired(self, scope: str) -> None:
        self._overheld.add((scope,))

    def commit_fenced(self, scope: str) -> None:
        self._fenced.add((scope,))

    def commit_conflicted(self, scope: str) -> None:
        self._conflicts.add((scope,))

    def reservations_ended(self, scope: str, how: str, count: int) -> None:
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

    def tuning_notified(self, result: str, count: int = 1) -> None:
        self._tuning_casts.add((result,), count)

    def tuning_faulted(self, policy: str, kind: str, count: int) -> None:
        self._tuning_faults.add((policy, kind), count)

    def external_called(self, unit: str, result: str, duration_s: float) -> None:
        self._external_calls.add((unit, result))
        self._external_s.observe(duration_s)

    def external_loaded(self, file: str, isolation: str) -> None:
        self._external_files.add((file, isolation))

    def claims_posted(self, answer: str, consumers: int, duration_s: float) -> None:
        self._claim_posts.add((answer,))
        self._claim_consumers.add((answer,), consumers)
        if duration_s:
            self._claim_post_s.observe(duration_s)

    def candidates_asked(self, answer: str, duration_s: float) -> None:
        self._candidates.add((answer,))
        self._candidates_s.observe(duration_s)

    def claimed(self, result: str, instances: int) -> None:
        self._claims.add((result,), instances)

    def balanced(self, scope: str, duration_s: float, busy_s: float) -> None:
        self._balancing_s.observe(duration_s, (scope,))
        self._busy_s.add((scope,), busy_s)

    def balancing_failed(self, scope: str) -> None:
        self._balancing_failures.add((scope,))

    def migration_target_failed(self, scope: str) -> None:
        self._target_failures.add((scope,))

    def feed_read(self, part: str, what: str, rows: int) -> None:
        self._feed_rows.add((part, what), rows)

    def feed_wrote(self, part: str, hosts: int) -> None:
        self._feed_writes.add((part,), hosts)

    def feed_round(self, part: str, duration_s: float) -> None:
        self._feed_s.observe(duration_s, (part,))

    def dry_run_compared(self, result: str) -> None:
        self._dry_run.add((result,))

    def decisions_kept(self, result: str, count: int) -> None:
        self._kept.add((result,), count)

    def traced(self, result: str, count: int) -> None:
        """Traces of so many requests were ``exported``, or ``dropped``."""
        self._traced.add((result,), count)

    def feed_failed(self, part: str) -> None:
        self._feed_failures.add((part,))

    def looked(self, duration_s: float) -> None:
        self._look_s.observe(duration_s, ())

    def verified(self, result: str) -> None:
        self._verified.add((result,))

    def looked_again(self, result: str) -> None:
        self._looks.add((result,))

    def providers_read(self, what: str, count: int) -> None:
        self._provider_reads.add((what,), count)

    def providers_failed(self, what: str) -> None:
        self._provider_failures.add((what,))

    def migration_considered(self, scope: str, outcome: str) -> None:
        self._considered.add((scope, outcome))

    def migration_ended(self, scope: str, outcome: str) -> None:
        self._migrations.add((scope, outcome))

    def power_action(self, scope: str, to: str, outcome: str) -> None:
        self._power_actions.add((scope, to, outcome))

    def unprotected_hosts(self, scope: str, count: int) -> None:
        self._unprotected.set(scope, count)


class _PerCluster(Collector):
    """A gauge for each cluster, of at most so many clusters."""

    def __init__(self, name: str, help_text: str) -> None:
        self._name, self._help_text = name, help_text
        self._values: dict[str, int] = {}

    def set(self, cluster: str, value: int) -> None:
        if cluster in self._values or len(self._values) < MAX_CLUSTERS:
            self._values[cluster] = value

    def describe(self) -> Iterable[Metric]:
        return [GaugeMetricFamily(self._name, self._help_text, labels=_CLUSTER)]

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(self._name, self._help_text, labels=_CLUSTER)
        for cluster, value in sorted(self._values.copy().items()):
            family.add_metric([cluster], value)
        return [family]


class _AtScrape(Collector):
    """Gauges that are read at each scrape."""

    def __init__(self, load: Callable[[], Load], is_connected: Callable[[], bool]) -> None:
        self._load = load
        self._is_connected = is_connected

    def describe(self) -> Iterable[Metric]:
        return _gauges(Load(), is_connected=False)

    def collect(self) -> Iterable[Metric]:
        try:
            load = self._load()
        except Exception:
            LOG.exception("The worker's gauges cannot be read")
            return ()
        return _gauges(load, is_connected=self._is_connected())


def _gauges(load: Load, *, is_connected: bool) -> Iterator[Metric]:
    for name, help_text, value in (
        ("inflight", "Requests being processed", load.running),
        ("backlog", "Requests received by this process and not begun", load.backlog),
        (
            "waiting_requests",
            "Requests waiting for reserved resources to be released",
            load.waiting_for_pending,
        ),
        ("bus_connected", "Whether the bus is connected", is_connected),
        ("drained", "Whether no more requests are taken, by a command", load.is_drained),
        ("waiting_for_feed", "Requests that wait for the feed", load.waiting_for_feed),
        (
            "unwritten_decisions",
            "Records of decisions that wait to be written",
            load.unwritten_decisions,
        ),
        ("tuning_alarms", "Problems with tuning policies", load.tuning_alarms),
    ):
        yield GaugeMetricFamily(f"scheduler_{name}", help_text, value=value)
    reservations = GaugeMetricFamily(
        "scheduler_pending_reservations", "Reservations", labels=_CLUSTER
    )
    ranked = sorted(load.reservations.items(), key=lambda each: each[1], reverse=True)
    for cluster, count in ranked[:MAX_CLUSTERS]:
        reservations.add_metric([cluster], count)
    if rest := ranked[MAX_CLUSTERS:]:
        reservations.add_metric([OTHER], sum(count for _, count in rest))
    yield reservations
    hosts = GaugeMetricFamily("scheduler_hosts", "Hosts in each state", labels=[*_CLUSTER, "state"])
    for cluster, counts in load.most_down(MAX_CLUSTERS).items():
        for state, number in structs.asdict(counts).items():
            hosts.add_metric([cluster, state], number)
    yield hosts
    yield from _of_feed(load.feed)
    build = GaugeMetricFamily("scheduler_build_info", "Always 1", labels=["version", "python"])
    build.add_metric([__version__, platform.python_version()], 1)
    yield build


def _of_feed(feed: Mapping[str, FeedLoad]) -> Iterator[Metric]:
    def gauge(name: str, help_text: str, of: Callable[[FeedLoad], float | None]) -> Metric:
        family = GaugeMetricFamily(f"scheduler_feed_{name}", help_text, labels=["cell"])
        for cell, load in sorted(feed.items()):
            if (value := of(load)) is not None:
                family.add_metric([cell], value)
        return family

    yield gauge("lag_seconds", "Since when not all of a cell is known", lambda each: each.lag_s)
    yield gauge("cell_up", "Whether a cell can be read", lambda each: float(each.is_up))
    yield gauge("hosts", "Hosts of a cell", lambda each: each.hosts)


def why_no_host(outcome: Outcome) -> str:
    """The filter that left no host, or ``no hosts``, ``not enough hosts`` or ``other``."""
    if not outcome.candidates:
        return "no hosts"
    if outcome.passed:
        return "not enough hosts"
    last = [name for name, count in outcome.rejections if count]
    return last[-1] if last else OTHER
