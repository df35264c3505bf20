"""The worker's Prometheus metrics, and what happened in the last five minutes, for its report.

``docs/monitoring.md`` explains each metric. What happened lately is counted in steps of ten
seconds, durations by their length: an event costs a lookup and an addition, and nothing is kept of
it but a number.
"""

import logging
import platform
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import prometheus_client
from msgspec import structs
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scheduler_worker import __version__, events
from scheduler_worker.events import MAX_CLUSTERS, OTHER, Count, Duration, Event, Gauge, Level
from scheduler_worker.model.worker_reports import Lately, LockTimes, Spread, bucket_of
from scheduler_worker.monitoring.health import Load
from scheduler_worker.observer import Observer, Outcome

LOG = logging.getLogger(__name__)
Labels = tuple[str, ...]

_STEP_S = 10.0
_STEPS = 30
_MAX_KEYS = 10_000
_TIMED: Mapping[Event, str] = {events.LOCK_WAIT: "wait", events.LOCK_HOLD: "hold"}
_RESULTS = {"placed": "placed", "NoValidHost": "refused"}

Key = tuple[str, str, int]
"""A kind of event, a label of it, and for durations their bucket."""

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # they would double the series, and nobody reads them


class Series(Observer):
    """The metrics of events, in a registry; other events are ignored."""

    def __init__(self, known: Iterable[Event]) -> None:
        self._registry = CollectorRegistry()
        self._metrics = {event: _metric(event, self._registry) for event in known}
        self._guard = threading.Lock()
        self._values: dict[tuple[Event, Labels], Any] = {}
        self._spare = {metric: metric.limit for metric in self._metrics}
        """How many combinations of labels there may still be."""
        ProcessCollector(registry=self._registry)

    def exposition(self, accept: str = "") -> tuple[str, bytes]:
        """Content type and text of all metrics, in a format that the ``Accept`` header permits."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def collect(self) -> Iterable[Metric]:
        """All metrics, as the library has them."""
        return self._registry.collect()

    def count(self, event: Count, *labels: str, by: float = 1) -> None:
        value = self._values.get((event, labels)) or self._value(event, labels)
        if value is not None:
            value.inc(by)

    def time(self, event: Duration, seconds: float, *labels: str) -> None:
        value = self._values.get((event, labels)) or self._value(event, labels)
        if value is not None:
            value.observe(seconds)

    def level(self, event: Level, value: float, *labels: str) -> None:
        if (metric := self._value(event, labels)) is not None:
            metric.set(value)

    def _value(self, event: Event, labels: Labels) -> Any:
        """The library's value; beyond the event's limit that of labels that are all ``other``."""
        value = self._values.get((event, labels))
        if value is not None or (metric := self._metrics.get(event)) is None:
            return value
        with self._guard:
            if not self._spare[event]:
                return metric.labels(*(OTHER for _ in labels))
            value = self._values.get((event, labels))  # another thread may have been faster
            if value is None:
                self._spare[event] -= 1
                value = metric.labels(*labels) if labels else metric
                self._values[event, labels] = value
            return value


def _metric(event: Event, registry: CollectorRegistry) -> Any:
    about = event.metric, event.text, event.labels
    if isinstance(event, Duration):
        return prometheus_client.Histogram(*about, buckets=event.bounds_s, registry=registry)
    if isinstance(event, Level):
        return prometheus_client.Gauge(*about, registry=registry)
    return prometheus_client.Counter(*about, registry=registry)


class Window:
    """Counts of events in the last 290 to 300 seconds."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._began_s = monotonic_s()
        self._guard = threading.Lock()
        self._steps: deque[tuple[int, dict[Key, int]]] = deque(maxlen=_STEPS)
        """Those with events, the last one last: its number since the clock's zero, and counts."""
        self._current: dict[Key, int] = {}
        self._ends_s = float("-inf")
        """When the current step does."""

    def add(self, key: Key, count: int = 1) -> None:
        """Count an event; beyond 10,000 different ones in ten seconds it is left out."""
        with self._guard:
            now_s = self._monotonic_s()
            if now_s >= self._ends_s:
                number = int(now_s // _STEP_S)
                self._current = {}
                self._ends_s = (number + 1) * _STEP_S
                self._steps.append((number, self._current))
            current = self._current
            if key in current:
                current[key] += count
            elif len(current) < _MAX_KEYS:
                current[key] = count

    def counts(self) -> Counter[Key]:
        """How often each happened."""
        oldest = int(self._monotonic_s() // _STEP_S) - _STEPS
        counts: Counter[Key] = Counter()
        with self._guard:
            for number, step in self._steps:
                if number > oldest:
                    counts.update(step)
        return counts

    @property
    def over_s(self) -> float:
        """For how many seconds it counts, up to now."""
        now_s = self._monotonic_s()
        return min(now_s - self._began_s, (_STEPS - 1) * _STEP_S + now_s % _STEP_S)


class Metrics(Series):
    """The worker's; calls ``load`` when the metrics are scraped."""

    def __init__(
        self, load: Callable[[], Load], monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(events.OF_WORKER)
        self._is_connected = False
        self._registry.register(AtScrape(lambda: _gauges(load(), is_connected=self._is_connected)))
        self._window = Window(monotonic_s)

    def lately(self) -> Lately:
        """What happened in the last minutes."""
        counts = self._window.counts()
        results = ("placed", "refused", "failed")
        placed, refused, failed = (_spread(counts, result, "") for result in results)
        return Lately(
            over_s=round(self._window.over_s, 1),
            placed=placed.total,
            refused=refused.total,
            failed=failed.total,
            durations=Spread.summed((placed, refused, failed)),
            errors={label: count for (kind, label, _), count in counts.items() if kind == "error"},
        )

    def lock_times(self) -> dict[str, LockTimes]:
        """For each cluster whose lock was used in these minutes."""
        counts = self._window.counts()
        by_scope: dict[str, Counter[Key]] = {}
        for key, count in counts.items():
            if key[0] in {"wait", "hold"}:
                by_scope.setdefault(key[1], Counter())[key] = count
        return {
            scope: LockTimes(_spread(events, "wait", scope), _spread(events, "hold", scope))
            for scope, events in by_scope.items()
        }

    # Events

    def count(self, event: Count, *labels: str, by: float = 1) -> None:
        super().count(event, *labels, by=by)
        if event.troubles and (trouble := event.trouble(labels)) is not None:
            self._window.add(("error", trouble.text, 0), int(by))
        elif event is events.REQUESTS and labels[1] not in {"ok", "NoValidHost"}:
            self._window.add(("error", ": ".join(labels), 0))

    def time(self, event: Duration, seconds: float, *labels: str) -> None:
        super().time(event, seconds, *labels)
        if (kind := _TIMED.get(event)) is not None:
            self._window.add((kind, labels[0], bucket_of(seconds)))

    def decided(self, outcome: Outcome) -> None:
        for name, count in outcome.rejections:
            if count:
                self.count(events.REJECTIONS, name, by=count)
        if outcome.waits.pending_s:
            self.time(events.PENDING_WAIT, outcome.waits.pending_s)
        if outcome.waits.claim_s:
            self.time(events.CLAIM_WAIT, outcome.waits.claim_s)
        if outcome.result == "NoValidHost":
            self.count(events.NO_VALID_HOST, why_no_host(outcome))
        result = _RESULTS.get(outcome.result, "failed")
        self._window.add((result, "", bucket_of(outcome.duration_s)))

    def bus_connected(self, *, again: bool) -> None:
        self._is_connected = True
        if again:
            self.count(events.RECONNECTS)

    def bus_lost(self) -> None:
        self._is_connected = False
        self._window.add(("error", events.BUS_LOST.text, 0))


def _spread(counts: Counter[Key], kind: str, label: str) -> Spread:
    return Spread({key[2]: count for key, count in counts.items() if key[:2] == (kind, label)})


class AtScrape(Collector):
    """Gauges that are read at each scrape."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        try:
            return list(self._read())
        except Exception:
            LOG.exception("The worker's gauges cannot be read")
            return ()


_READ: Mapping[Gauge, Callable[[Load], float]] = {
    events.INFLIGHT: lambda load: load.running,
    events.BACKLOG: lambda load: load.waiting,
    events.WAITING: lambda load: load.waiting_for_pending,
    events.DRAINED: lambda load: load.is_drained,
    events.WAITING_FOR_FEED: lambda load: load.waiting_for_feed,
    events.UNWRITTEN: lambda load: load.unwritten_decisions,
    events.TUNING_ALARMS: lambda load: load.tuning_alarms,
    events.UNIT_ALARMS: lambda load: load.unit_alarms,
}


def _gauges(load: Load, *, is_connected: bool) -> Iterator[Metric]:
    for gauge, read in _READ.items():
        yield gauge_of(gauge, [((), read(load))])
    yield gauge_of(events.BUS_CONNECTED, [((), is_connected)])
    ranked = sorted(load.reservations.items(), key=lambda item: item[1], reverse=True)
    known = [((cluster,), count) for cluster, count in ranked[:MAX_CLUSTERS]]
    if rest := ranked[MAX_CLUSTERS:]:
        known.append(((OTHER,), sum(count for _, count in rest)))
    yield gauge_of(events.RESERVATIONS, known)
    hosts = load.most_down(MAX_CLUSTERS).items()
    by_state = ((cluster, structs.asdict(counts)) for cluster, counts in hosts)
    rows = [((name, state), count) for name, counts in by_state for state, count in counts.items()]
    yield gauge_of(events.HOSTS, rows)
    feed = sorted(load.feed.items())
    lags = [((cell,), part.lag_s) for cell, part in feed if part.lag_s is not None]
    yield gauge_of(events.FEED_LAG, lags)
    yield gauge_of(events.CELL_UP, [((cell,), part.is_up) for cell, part in feed])
    yield gauge_of(events.FEED_HOSTS, [((cell,), part.hosts) for cell, part in feed])
    yield gauge_of(events.BUILD, [((__version__, platform.python_version()), 1)])


def gauge_of(gauge: Gauge, values: Iterable[tuple[Labels, float]]) -> Metric:
    """The family of a gauge that is read at each scrape."""
    family = GaugeMetricFamily(gauge.metric, gauge.text, labels=gauge.labels)
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def why_no_host(outcome: Outcome) -> str:
    """The filter that left no host, or ``no hosts``, ``not enough hosts`` or ``other``."""
    if not outcome.candidates:
        return "no hosts"
    if outcome.passed:
        return "not enough hosts"
    last = [name for name, count in outcome.rejections if count]
    return last[-1] if last else OTHER
