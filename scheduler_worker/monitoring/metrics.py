"""The worker's Prometheus metrics, in a registry for each worker of a process.

``docs/monitoring.md`` explains each of them.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import structs
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scheduler_worker import __version__, events
from scheduler_worker.events import MAX_CLUSTERS, OTHER, Count, Duration, Event, Level
from scheduler_worker.monitoring.health import FeedLoad, Load
from scheduler_worker.monitoring.series import series_of
from scheduler_worker.observer import Observer, Outcome

LOG = logging.getLogger(__name__)
_CLUSTER = ("cluster",)


class Series(Observer):
    """The metrics of events, in a registry; others are ignored."""

    def __init__(self, known: Iterable[Event]) -> None:
        self._registry = CollectorRegistry()
        self._series: dict[Event, Any] = {}
        for each in known:
            made = self._series[each] = series_of(each)
            self._registry.register(made)
        ProcessCollector(registry=self._registry)

    def exposition(self, accept: str = "") -> tuple[str, bytes]:
        """Content type and text of all metrics, in a format that the ``Accept`` header permits."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def collect(self) -> Iterable[Metric]:
        """All metrics, as the library has them."""
        return self._registry.collect()

    def count(self, event: Count, *labels: str, by: float = 1) -> None:
        if event in self._series:
            self._series[event].add(labels, by)

    def time(self, event: Duration, seconds: float, *labels: str) -> None:
        if event in self._series:
            self._series[event].observe(seconds, labels)

    def level(self, event: Level, value: float, *labels: str) -> None:
        if event in self._series:
            self._series[event].set(value, labels)


class Metrics(Series):
    """The worker's; calls ``load`` when the metrics are scraped."""

    def __init__(self, load: Callable[[], Load]) -> None:
        super().__init__(each for each in events.EVENTS if each not in events.OF_API)
        self._is_connected = False
        self._registry.register(_AtScrape(load, lambda: self._is_connected))

    def decided(self, outcome: Outcome) -> None:
        for name, count in outcome.rejections:
            if count:
                self.count(events.REJECTIONS, name, by=count)
        if outcome.waited_for_pending_s:
            self.time(events.PENDING_WAIT, outcome.waited_for_pending_s)
        if outcome.claim_s:
            self.time(events.CLAIM_WAIT, outcome.claim_s)
        if outcome.result == "NoValidHost":
            self.count(events.NO_VALID_HOST, why_no_host(outcome))

    def bus_connected(self, *, again: bool) -> None:
        self._is_connected = True
        if again:
            self.count(events.RECONNECTS)

    def bus_lost(self) -> None:
        self._is_connected = False


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
        (
            "inflight",
            "requests being served, those that wait for pending resources included",
            load.running,
        ),
        (
            "backlog",
            "requests that this process has received and not begun; with our own server the "
            "real backlog is the queue in RabbitMQ",
            load.backlog,
        ),
        (
            "waiting_requests",
            "requests that wait for pending resources to be given back",
            load.waiting_for_pending,
        ),
        ("bus_connected", "1 while the bus is connected", is_connected),
        (
            "drained",
            "1 while the worker is drained (`docs/scheduler-workerctl.md`): it finishes what "
            "it has and takes no more requests",
            load.is_drained,
        ),
        (
            "waiting_for_feed",
            "requests that wait for such a look, or until all hosts are known",
            load.waiting_for_feed,
        ),
        (
            "unwritten_decisions",
            "records that wait to be written; up to some hundreds are normal",
            load.unwritten_decisions,
        ),
        (
            "tuning_alarms",
            "problems with tuning policies, because of which older ones stay in force; 0 is good",
            load.tuning_alarms,
        ),
    ):
        yield GaugeMetricFamily(f"scheduler_{name}", help_text, value=value)
    reservations = GaugeMetricFamily(
        "scheduler_pending_reservations",
        "live reservations, as far as this process has read; the same reservations in every worker",
        labels=_CLUSTER,
    )
    ranked = sorted(load.reservations.items(), key=lambda each: each[1], reverse=True)
    for cluster, count in ranked[:MAX_CLUSTERS]:
        reservations.add_metric([cluster], count)
    if rest := ranked[MAX_CLUSTERS:]:
        reservations.add_metric([OTHER], sum(count for _, count in rest))
    yield reservations
    hosts = GaugeMetricFamily(
        "scheduler_hosts",
        "hosts that are `up`, `disabled`, `asleep` (in maintenance or off) or `down` (silent "
        "for too long, or forced down), counted every `[balancing] interval` by the worker "
        "with the cluster's turn; absent on the others",
        labels=[*_CLUSTER, "state"],
    )
    for cluster, counts in load.most_down(MAX_CLUSTERS).items():
        for state, number in structs.asdict(counts).items():
            hosts.add_metric([cluster, state], number)
    yield hosts
    yield from _of_feed(load.feed)
    build = GaugeMetricFamily("scheduler_build_info", "always 1", labels=["version", "python"])
    build.add_metric([__version__, platform.python_version()], 1)
    yield build


def _of_feed(feed: Mapping[str, FeedLoad]) -> Iterator[Metric]:
    def gauge(name: str, help_text: str, of: Callable[[FeedLoad], float | None]) -> Metric:
        family = GaugeMetricFamily(f"scheduler_feed_{name}", help_text, labels=["cell"])
        for cell, load in sorted(feed.items()):
            if (value := of(load)) is not None:
                family.add_metric([cell], value)
        return family

    yield gauge(
        "lag_seconds",
        "since when not all of a cell's hosts are known, as every worker knows it; some "
        "seconds are normal. Absent until they are known for the first time",
        lambda each: each.lag_s,
    )
    yield gauge("cell_up", "1 while a cell's database can be read", lambda each: float(each.is_up))
    yield gauge("hosts", "hosts of a cell", lambda each: each.hosts)


def why_no_host(outcome: Outcome) -> str:
    """The filter that left no host, or ``no hosts``, ``not enough hosts`` or ``other``."""
    if not outcome.candidates:
        return "no hosts"
    if outcome.passed:
        return "not enough hosts"
    last = [name for name, count in outcome.rejections if count]
    return last[-1] if last else OTHER
