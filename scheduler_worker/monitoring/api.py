"""Metrics and health of an API process without a worker.

``docs/monitoring.md`` explains each metric. A worker inside the process has the worker's.
"""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scheduler_worker.events import API_DEPENDENCY, OF_API
from scheduler_worker.monitoring.health import Dependencies
from scheduler_worker.monitoring.metrics import Series, gauge_of
from scheduler_worker.monitoring.pages import MonitoringPages
from scheduler_worker.monitoring.settings import MonitoringSettings


class ApiMonitor(Series):
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
        super().__init__(OF_API)
        self._registry.register(_Dependencies(dependencies))
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

    def missing(self) -> list[str]:
        """What keeps the API from serving; asks what it depends on, all at a time."""
        failure = self._failure()
        problems = [problem for texts in self._problems().values() for problem in texts]
        return [failure, *problems] if failure else problems


class _Dependencies(Collector):
    """Whether each dependency can be used, asked at each scrape."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def describe(self) -> Iterable[Metric]:
        return [self._gauge({})]

    def collect(self) -> Iterable[Metric]:
        return [self._gauge(self._dependencies.problems())]

    def _gauge(self, problems: Mapping[str, list[str]]) -> Metric:
        names = self._dependencies.names
        return gauge_of(API_DEPENDENCY, [((name,), not problems.get(name)) for name in names])
