"""What a worker says of itself, to the monitor, to operators and to other workers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scheduler_worker import remedies
from scheduler_worker.compose.parts import worker_facts
from scheduler_worker.errors import StateUnavailable
from scheduler_worker.model.worker_reports import PartReport, WorkerFacts, WorkerReport
from scheduler_worker.monitoring import Load, Monitor, stalled
from scheduler_worker.monitoring.reports import report_of
from scheduler_worker.service.state.presence import Presence

if TYPE_CHECKING:
    from scheduler_worker.compose.parts import Parts
    from scheduler_worker.rpc.serving.server import QueueServer


class WorkerVitals:
    """The facts, gauges, problems and description of one worker; implements ``Health``.

    Made last of all that a worker has. Any thread may ask; only :meth:`missing` and :meth:`report`
    wait for the state, and none takes a lock that requests may hold.
    """

    def __init__(self, parts: Parts, monitor: Monitor, server: QueueServer) -> None:
        self._parts = parts
        self._monitor = monitor
        self._server = server
        self._built_s = time.monotonic()
        self.presence = Presence(parts.state, worker_facts(parts.settings), self.report)
        """Tells other workers and operators of this one."""

    @property
    def facts(self) -> WorkerFacts:
        """What this worker says of itself to others."""
        return self.presence.facts

    def status(self) -> Mapping[str, Any]:
        """Uptime, what is missing as known last, what it holds, the bus, clusters and the feed."""
        clusters = self._describe_clusters()
        leases = [name for name, cluster in clusters.items() if cluster["token"] is not None]
        # What was missing when it was looked at last, up to a drain or resume since.
        missing = [text for text in self._monitor.last_missing() if text != remedies.DRAINED]
        feeder = self._parts.feeder
        return {
            "uptime_s": round(time.monotonic() - self._built_s, 1),
            "missing": [*missing, remedies.DRAINED] if self.facts.is_drained else missing,
            "holds": {
                "leases": leases,
                "feed": feeder is not None and feeder.is_leader(),
                "tuning": self._parts.tuner.led(),
                "balancing": self._parts.balancer.led(),
            },
            "bus": self._server.describe(),
            "clusters": clusters,
            "feed_lag_s": {name: part.lag_s for name, part in self.load().feed.items()},
        }

    def report(self) -> WorkerReport:
        """How this worker is, for operators; waits up to two seconds for the state."""
        self._monitor.missing()  # so that what is known last is of now
        parts, known_clusters = self._parts, None
        with contextlib.suppress(StateUnavailable):
            known_clusters = len(parts.fleet.read_names())
        return report_of(
            self.status(),
            self.load(),
            tuning_alarms=[str(alarm) for alarm in parts.tuning.alarms],
            unit_alarms=self._unit_alarms(),
            contests=parts.balancer.contests(),
            known_clusters=known_clusters,
            lately=self._monitor.lately(),
            lock_times=self._monitor.lock_times(),
        )

    def _unit_alarms(self) -> list[str]:
        return self._parts.sandboxes.alarms if self._parts.sandboxes else []

    def is_alive(self) -> str | None:
        """Why the process hangs; None if it does not."""
        return stalled(self._server.tick_age_s(), self._parts.settings.monitoring.stalled_after_s)

    def missing(self) -> list[str]:
        """What keeps the worker from serving; asks the state."""
        problem = self._server.problem()
        readiness = self._parts.readiness
        problems = (
            problem and f"{remedies.ABOUT_THE_BUS}{problem}",
            remedies.DRAINED if self.facts.is_drained else None,
            self._parts.state.problem() or (readiness.unready() if readiness else None),
        )
        return [problem for problem in problems if problem]

    def load(self) -> Load:
        """Requests in hand, and reservations by cluster."""
        server, parts = self._server.describe(), self._parts
        return Load(
            running=server["running"],
            waiting=server["waiting"],
            is_drained=self.facts.is_drained,
            waiting_for_pending=parts.scheduler.waiting,
            waiting_for_feed=parts.scheduler.waiting_for_feed,
            unwritten_decisions=parts.recorder.waiting if parts.recorder else 0,
            reservations={
                cluster.scope: len(cluster.reservations) for cluster in parts.fleet.clusters()
            },
            tuning_alarms=len(parts.tuning.alarms),
            unit_alarms=len(self._unit_alarms()),
            hosts=parts.balancer.hosts(),
            feed={
                part.name: PartReport(lag_s=lag_s, is_up=not part.problem, hosts=part.hosts)
                for part, lag_s in (parts.readiness.parts() if parts.readiness else ())
            },
        )

    def describe(self) -> Mapping[str, Any]:
        """The worker's state for an operator, without secrets; takes no lock that work may hold."""
        parts = self._parts
        return {
            "bus": self._server.describe(),
            "clusters": self._describe_clusters(),
            "tuning": parts.tuner.describe(),
            "balancing": parts.balancer.describe(),
            **({"feed": parts.feeder.describe()} if parts.feeder else {}),
        }

    def _describe_clusters(self) -> Mapping[str, Mapping[str, Any]]:
        return {
            cluster.scope: {
                "version": cluster.seen.version,
                "promises": len(cluster.reservations),
                **self._parts.scheduler.describe(cluster.scope),
            }
            for cluster in self._parts.fleet.clusters()
        }
