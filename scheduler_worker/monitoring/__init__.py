"""Seeing the worker: metrics, health, the line for each decision, dumps, and a log without secrets.

``app`` gives a :class:`Monitor` to the rooms that have something to tell, as their observer, and
starts it with itself; ``cli`` asks it for dumps. Nobody else names this room.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from scheduler_worker.monitoring import dump
from scheduler_worker.monitoring.health import Health, Load, Readiness
from scheduler_worker.monitoring.http import HttpServer, Page
from scheduler_worker.monitoring.journal import Journal
from scheduler_worker.monitoring.logs import protect
from scheduler_worker.monitoring.metrics import Metrics
from scheduler_worker.ports import Outcome

__all__ = ["Health", "Load", "Monitor", "protect", "stalled"]


class Monitor(Metrics):
    """The worker's observer, and who answers when somebody asks how it is.

    ``health`` is asked only after :meth:`start`. With ``port`` 0 nobody listens.
    """

    def __init__(self, health: Health, *, address: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(health.load)
        self._health = health
        self._address = address
        self._port = port
        self._readiness = Readiness(health.missing)
        self._http: HttpServer | None = None
        self._journal = Journal()

    @property
    def port(self) -> int:
        """Where the HTTP server listens; 0 while it does not."""
        return self._http.port if self._http else 0

    def start(self) -> None:
        """Write the journal, and serve ``/metrics``, ``/livez``, ``/readyz`` where there is a port.

        Raises ConfigError where nobody can listen there.
        """
        if self._port and self._http is None:
            pages = {"/metrics": self._metrics, "/livez": self._livez, "/readyz": self._readyz}
            self._http = HttpServer(self._address, self._port, pages)
            self._http.start()
        self._journal.start()

    def stop(self) -> None:
        """Close the port and the journal. Harmless when repeated."""
        self._journal.stop()
        if self._http is not None:
            self._http.stop()
            self._http = None

    def decided(self, outcome: Outcome) -> None:
        super().decided(outcome)
        self._journal.tell(outcome)

    def missing(self) -> list[str]:
        """What keeps the worker from serving; answers within two seconds, at most a second old."""
        return self._readiness.missing()

    def last_missing(self) -> list[str]:
        """As :meth:`missing`, without waiting: what the last answer said."""
        return self._readiness.last()

    def dump(self, options: dump.Options, directory: str | None = None) -> None:
        """Write what the process is doing into the log, and into a file of the directory."""
        dump.write(dump.lines(self._health.describe, options), directory)

    def _metrics(self, accept: str) -> Page:
        content_type, text = self.exposition(accept)
        return Page(text, content_type=content_type)

    def _livez(self, accept: str) -> Page:
        problem = self._health.is_alive()
        return _page("alive", [problem] if problem else [], accept)

    def _readyz(self, accept: str) -> Page:
        return _page("ready", self.missing(), accept)


def stalled(tick_age_s: float, stalled_after_s: float) -> str | None:
    """Why a thread that last ticked so long ago counts as hung, if it does."""
    if tick_age_s <= stalled_after_s:
        return None
    return f"no sign of life of the thread that moves messages for {tick_age_s:.1f} s"


def _page(what: str, missing: list[str], accept: str) -> Page:
    status = 503 if missing else 200
    if "application/json" in accept:
        told: Mapping[str, Any] = {what: not missing, "missing": missing}
        return Page(json.dumps(told).encode() + b"\n", status, "application/json")
    text = "".join(f"{each}\n" for each in missing) or f"{what}\n"
    return Page(text.encode(), status)
