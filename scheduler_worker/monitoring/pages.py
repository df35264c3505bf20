"""``/metrics``, ``/livez`` and ``/readyz`` of a process, whichever program it runs."""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler_worker.events import HTTP_ENDED
from scheduler_worker.observer import Observer

if TYPE_CHECKING:
    from scheduler_worker.http_server import HttpServer

LOG = logging.getLogger(__name__)

_METHODS = ("GET", "HEAD")
_AT_ONCE = 8
"""Pages that are made at a time: ``/livez`` does not wait for ``/readyz``, which asks others."""
_CONNECTIONS, _OF_ADDRESS = 100, 20
_READ_S = 5.0
"""Timeout for a client's request, and for its reading the response."""
_STOP_S = 1.0


class _Page(NamedTuple):
    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


_ONLY_GET = _Page(b"Only GET and HEAD are served\n", HTTPStatus.METHOD_NOT_ALLOWED)


class MonitoringPages(Observer, ABC):
    """Serves the pages from ``start`` until ``stop``, where there is a port for them."""

    def __init__(self, address: str, port: int) -> None:
        """``port`` 0: there is no HTTP server."""
        self._address = address
        self._port = port
        self._http: HttpServer | None = None

    @abstractmethod
    def exposition(self, accept: str) -> tuple[str, bytes]:
        """Content type and text of the metrics for an ``Accept`` header."""

    @abstractmethod
    def is_alive(self) -> str | None:
        """Why the process hangs."""

    @abstractmethod
    def missing(self) -> list[str]:
        """What keeps the process from serving."""

    @property
    def port(self) -> int:
        """The port of the HTTP server; 0 while it does not listen."""
        return self._http.port if self._http else 0

    def start(self) -> None:
        """Listen. Idempotent. Raises ConfigError where the address and port cannot be bound."""
        if self._port and self._http is None:
            from scheduler_worker.http_server import HttpServer  # not needed without a port

            self._http = HttpServer(
                self,
                self._address,
                self._port,
                option="[monitoring] port",
                threads=_AT_ONCE,
                read_timeout_s=_READ_S,
                connections=_CONNECTIONS,
                connections_per_address=_OF_ADDRESS,
                ended=partial(self.count, HTTP_ENDED),
            )
            self._http.start()

    def stop(self) -> None:
        """Close the port. Idempotent."""
        if self._http is not None:
            self._http.stop(_STOP_S)
            self._http = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Serve a request, as a WSGI application."""
        method = environ["REQUEST_METHOD"]
        page = self._page(environ) if method in _METHODS else _ONLY_GET
        headers = {
            "Content-Type": page.content_type,
            "Content-Length": str(len(page.body)),
            "Cache-Control": "no-store",
            **({} if method in _METHODS else {"Allow": ", ".join(_METHODS)}),
        }
        start_response(f"{page.status:d} {page.status.phrase}", [*headers.items()])
        return [] if method == "HEAD" else [page.body]

    def _page(self, environ: dict[str, Any]) -> _Page:
        pages = {"/metrics": self._exposed, "/livez": self._livez, "/readyz": self._readyz}
        make = pages.get(environ["PATH_INFO"])
        if make is None:
            text = f"No such page; there are {', '.join(pages)}\n"
            return _Page(text.encode(), HTTPStatus.NOT_FOUND)
        try:
            return make(environ.get("HTTP_ACCEPT", ""))
        except Exception:
            LOG.exception("The page %s cannot be made", environ["PATH_INFO"])
            text = "The page cannot be made; the log has the reason\n"
            return _Page(text.encode(), HTTPStatus.INTERNAL_SERVER_ERROR)

    def _exposed(self, accept: str) -> _Page:
        content_type, text = self.exposition(accept)
        return _Page(text, content_type=content_type)

    def _livez(self, accept: str) -> _Page:
        problem = self.is_alive()
        return _state("alive", [problem] if problem else [], accept)

    def _readyz(self, accept: str) -> _Page:
        return _state("ready", self.missing(), accept)


def _state(what: str, missing: list[str], accept: str) -> _Page:
    from scheduler_worker.http_server.negotiation import preferred  # not needed without a port

    status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
    if preferred(accept, ["text/plain", "application/json"]) == "application/json":
        state: Mapping[str, Any] = {what: not missing, "missing": missing}
        return _Page(json.dumps(state).encode() + b"\n", status, "application/json")
    text = "".join(f"{problem}\n" for problem in missing) or f"{what}\n"
    return _Page(text.encode(), status)
