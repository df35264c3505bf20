"""Metrics and health of an API process without a worker.

``docs/monitoring.md`` explains each metric. A worker inside the process has the worker's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scheduler_worker.monitoring.health import Dependencies
from scheduler_worker.monitoring.pages import MonitoringPages
from scheduler_worker.monitoring.series import OTHER, Counts, Durations
from scheduler_worker.monitoring.settings import MonitoringSettings
from scheduler_worker.observer import Observer

_MAX_ROUTES = 100
_MAX_ANSWERS = 1000
_ANSWER_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class ApiMonitor(Observer):
    """The observer of an API process, and its HTTP server for metrics and health."""

    def __init__(
        self,
        dependencies: Dependencies,
        *,
        failure: Callable[[], str | None],
        settings: MonitoringSettings,
    ) -> None:
        """``failure`` says why the process cannot go on, and does not block."""
        self._failure = failure
        self._problems = dependencies.problems
        self._registry = CollectorRegistry()
        self._answers = Counts(
            "scheduler_api_requests_total", "Requests to the REST API",
            ("route", "method", "status"), limit=_MAX_ANSWERS,
        )  # fmt: skip
        self._answer_s = Durations(
            "scheduler_api_request_duration_seconds", "From a request to its answer",
            ("route",), bounds_s=_ANSWER_S, limit=_MAX_ROUTES,
        )  # fmt: skip
        self._limited = Counts(
            "scheduler_api_rate_limited_total", "Requests refused by the limit of rates", ("by",)
        )
        for each in (self._answers, self._answer_s, self._limited):
            self._registry.register(each)
        self._registry.register(_Dependencies(dependencies))
        ProcessCollector(registry=self._registry)
        self._pages = MonitoringPages(
            settings.address,
            settings.api_port,
            exposition=self.exposition,
            is_alive=failure,
            missing=self.missing,
        )

    @property
    def port(self) -> int:
        """The port of the HTTP server; 0 while it does not listen."""
        return self._pages.port

    def start(self) -> None:
        """Serve the pages. Raises ConfigError where the address and port cannot be bound."""
        self._pages.start()

    def stop(self) -> None:
        """Close the port. Idempotent."""
        self._pages.stop()

    def exposition(self, accept: str = "") -> tuple[str, bytes]:
        """Content type and text of all metrics, in a format that the ``Accept`` header permits."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def missing(self) -> list[str]:
        """What keeps the API from serving; asks what it depends on, all at a time."""
        failure = self._failure()
        found = [failure] if failure else []
        return found + [each for problems in self._problems().values() for each in problems]

    def rest_served(self, route: str, method: str, status: int, duration_s: float) -> None:
        name = route or OTHER
        self._answers.add((name, method if route else OTHER, str(status)))
        self._answer_s.observe(duration_s, (name,))

    def rest_limited(self, by: str) -> None:
        self._limited.add((by,))


class _Dependencies(Collector):
    """Whether each dependency can be used, asked at each scrape."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def describe(self) -> Iterable[Metric]:
        return [self._family({})]

    def collect(self) -> Iterable[Metric]:
        return [self._family(self._dependencies.problems())]

    def _family(self, problems: Mapping[str, list[str]]) -> Metric:
        family = GaugeMetricFamily(
            "scheduler_api_dependency_up",
            "Whether what every request needs can be used",
            labels=["dependency"],
        )
        for name in self._dependencies.names:
            family.add_metric([name], not problems.get(name))
        return family
