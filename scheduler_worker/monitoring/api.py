"""Metrics and health of an API process without a worker.

``docs/monitoring.md`` explains each metric. A worker inside the process has the worker's.
"""

from collections.abc import Callable, Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scheduler_worker.events import API_DEPENDENCY, OF_API
from scheduler_worker.monitoring.health import Dependencies
from scheduler_worker.monitoring.metrics import Series, gauge_of
from scheduler_worker.monitoring.pages import MonitoringPages
from scheduler_worker.monitoring.settings import MonitoringSettings


class ApiMonitor(Series, MonitoringPages):
    """The observer of an API process, and its HTTP server for metrics and health."""

    def __init__(
        self,
        dependencies: Dependencies,
        failure: Callable[[], str | None],
        settings: MonitoringSettings,
    ) -> None:
        """``failure`` says why the process cannot go on, and does not block."""
        self._failure = failure
        self._problems = dependencies.problems
        super().__init__(OF_API)
        MonitoringPages.__init__(self, settings.address, settings.api_port)
        self._registry.register(_Dependencies(dependencies))

    def is_alive(self) -> str | None:
        return self._failure()

    def missing(self) -> list[str]:
        """What keeps the API from serving; asks what it depends on, all at a time."""
        failure = self._failure()
        problems = [problem for texts in self._problems().values() for problem in texts]
        return [failure, *problems] if failure else problems


class _Dependencies(Collector):
    """Whether each dependency can be used, asked at each scrape."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def collect(self) -> Iterable[Metric]:
        problems = self._dependencies.problems()
        yield gauge_of(API_DEPENDENCY, [((name,), not why) for name, why in problems.items()])
