"""Observability: metrics, health checks, a log line for each decision, dumps, redacted logs.

``compose`` passes a :class:`Monitor` to the use cases and servers of a worker as their observer,
and starts and stops it; ``cli`` asks it for dumps. In a process of the API it is an
:class:`ApiMonitor`. No other package imports this one.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from oslo_config import cfg
from prometheus_client.metrics_core import Metric

from scheduler_worker.events import API_DEPENDENCY, OF_API, TRACES
from scheduler_worker.monitoring import dump
from scheduler_worker.monitoring.health import Dependencies, Health, Load, Readiness
from scheduler_worker.monitoring.journal import Journal
from scheduler_worker.monitoring.logs import protect
from scheduler_worker.monitoring.metrics import AtScrape, Metrics, Series, gauge_of
from scheduler_worker.monitoring.pages import MonitoringPages
from scheduler_worker.monitoring.settings import MonitoringSettings
from scheduler_worker.observer import Outcome

if TYPE_CHECKING:
    from scheduler_worker.monitoring.tracing import Tracing

__all__ = ["ApiMonitor", "Health", "Load", "Monitor", "protect", "stalled"]


class Monitor(Metrics, MonitoringPages):
    """The worker's observer, and its HTTP server for metrics and health.

    A worker that it observes is made of much that has an observer: what it asks of the worker comes
    later, by :meth:`watch`. With port 0 there is no HTTP server.
    """

    def __init__(
        self,
        settings: MonitoringSettings | None = None,
        open_tracing: "Callable[[Callable[[str, int], None]], Tracing] | None" = None,
    ) -> None:
        """``open_tracing`` makes what traces requests, which is told how to count them."""
        settings = settings or MonitoringSettings()
        super().__init__(self._load)
        MonitoringPages.__init__(self, settings.address, settings.port)
        self._tracing = open_tracing(self._traced) if open_tracing else None
        self._health: Health
        self._readiness = Readiness(self._asked)
        self._journal = Journal()

    def watch(self, health: Health) -> None:
        """Ask this worker from now on; once, before :meth:`start`."""
        self._health = health

    def _load(self) -> Load:
        return self._health.load()

    def _asked(self) -> list[str]:
        return self._health.missing()

    def start(self) -> None:
        """Start the journal, and serve ``/metrics``, ``/livez``, ``/readyz`` if a port is
        configured.

        Raises ConfigError where the address and port cannot be bound.
        """
        super().start()
        self._journal.start()
        if self._tracing is not None:
            self._tracing.start()

    def stop(self) -> None:
        """Close the port and the journal, and send what is left of traces. Idempotent."""
        if self._tracing is not None:
            self._tracing.stop()
        self._journal.stop()
        super().stop()

    def decided(self, outcome: Outcome) -> None:
        super().decided(outcome)
        self._journal.record(outcome)
        if self._tracing is not None:
            self._tracing.record(outcome)

    def _traced(self, result: str, count: int) -> None:
        self.count(TRACES, result, by=count)

    def call_answered(self, request_id: str) -> None:
        if self._tracing is not None:
            self._tracing.answered(request_id)

    def is_alive(self) -> str | None:
        return self._health.is_alive()

    def missing(self) -> list[str]:
        """What keeps the worker from serving; returns within two seconds, at most a second old."""
        return self._readiness.missing()

    def last_missing(self) -> list[str]:
        """The last result of :meth:`missing`, without waiting for a new one."""
        return self._readiness.last()

    def dump(self, options: cfg.ConfigOpts, directory: str | None = None) -> None:
        """Write the process's state into the log, and into a file in the directory."""
        dump.write(dump.lines(self._health.describe, options), directory)


class ApiMonitor(Series, MonitoringPages):
    """The observer of an API process without a worker, and its HTTP server; else the worker's."""

    def __init__(
        self,
        dependencies: Dependencies,
        failure: Callable[[], str | None],
        settings: MonitoringSettings,
    ) -> None:
        """``failure`` says why the process cannot go on, and does not block."""
        super().__init__(OF_API)
        MonitoringPages.__init__(self, settings.address, settings.api_port)
        self._dependencies = dependencies
        self._failure = failure
        self._registry.register(AtScrape(self._gauges))

    def is_alive(self) -> str | None:
        return self._failure()

    def missing(self) -> list[str]:
        """What keeps the API from serving; asks what it depends on, all at a time."""
        failure = self._failure()
        missing = self._dependencies.missing()
        return [failure, *missing] if failure else missing

    def _gauges(self) -> Iterator[Metric]:
        problems = self._dependencies.problems().items()
        yield gauge_of(API_DEPENDENCY, [((name,), not why) for name, why in problems])


def stalled(tick_age_s: float, stalled_after_s: float) -> str | None:
    """Why a thread counts as hung that last ticked ``tick_age_s`` ago; None if it does not."""
    if tick_age_s <= stalled_after_s:
        return None
    return f"no heartbeat of the thread that moves messages for {tick_age_s:.1f} s"
