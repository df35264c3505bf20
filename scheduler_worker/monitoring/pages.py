"""``/metrics``, ``/livez`` and ``/readyz`` of a process, whichever program it runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from scheduler_worker.monitoring.http import HttpPage, HttpServer


class MonitoringPages:
    """Serves the pages from ``start`` until ``stop``, where there is a port for them."""

    def __init__(
        self,
        address: str,
        port: int,
        *,
        exposition: Callable[[str], tuple[str, bytes]],
        is_alive: Callable[[], str | None],
        missing: Callable[[], list[str]],
    ) -> None:
        """``port`` 0: there is no HTTP server.

        ``exposition`` makes content type and text of the metrics for an ``Accept`` header,
        ``is_alive`` says why the process hangs, ``missing`` what keeps it from serving.
        """
        self._address = address
        self._port = port
        self._exposition = exposition
        self._is_alive = is_alive
        self._missing = missing
        self._http: HttpServer | None = None

    @property
    def port(self) -> int:
        """The port of the HTTP server; 0 while it does not listen."""
        return self._http.port if self._http else 0

    def start(self) -> None:
        """Listen. Idempotent. Raises ConfigError where the address and port cannot be bound."""
        if self._port and self._http is None:
            pages = {"/metrics": self._metrics, "/livez": self._livez, "/readyz": self._readyz}
            self._http = HttpServer(self._address, self._port, pages)
            self._http.start()

    def stop(self) -> None:
        """Close the port. Idempotent."""
        if self._http is not None:
            self._http.stop()
            self._http = None

    def _metrics(self, accept: str) -> HttpPage:
        content_type, text = self._exposition(accept)
        return HttpPage(text, content_type=content_type)

    def _livez(self, accept: str) -> HttpPage:
        problem = self._is_alive()
        return _page("alive", [problem] if problem else [], accept)

    def _readyz(self, accept: str) -> HttpPage:
        return _page("ready", self._missing(), accept)


def _page(what: str, missing: list[str], accept: str) -> HttpPage:
    status = 503 if missing else 200
    if "application/json" in accept:
        state: Mapping[str, Any] = {what: not missing, "missing": missing}
        return HttpPage(json.dumps(state).encode() + b"\n", status, "application/json")
    text = "".join(f"{each}\n" for each in missing) or f"{what}\n"
    return HttpPage(text.encode(), status)
