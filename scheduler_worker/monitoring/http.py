"""A small HTTP server for monitoring: one page for each path."""

from __future__ import annotations

import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from scheduler_worker.deadlines import DeadlineReader
from scheduler_worker.errors import ConfigError

LOG = logging.getLogger(__name__)

_TEXT = "text/plain; charset=utf-8"
_READ_S = 5.0
"""Timeout for a client's request, and for its reading the response."""
_MAX_CLIENTS = 16


class HttpPage(NamedTuple):
    """The response for a path."""

    body: bytes
    status: int = 200
    content_type: str = _TEXT


Pages = Mapping[str, Callable[[str], HttpPage]]
"""Path -> a function from the client's ``Accept`` header to the page."""


class HttpServer:
    """Serves pages from ``start`` until ``stop``; its constructor binds the port.

    Raises ConfigError where the address and port cannot be bound.
    """

    def __init__(self, address: str, port: int, pages: Pages) -> None:
        try:
            self._server = _Server(address, port, pages)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"[monitoring] port: cannot listen on {address} port {port}: {error}; "
                "choose another port, or 0 for none"
            ) from None
        self.port: int = self._server.server_address[1]

    def start(self) -> None:
        """Serve, in daemon threads."""
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=[0.1], name="http", daemon=True).start()

    def stop(self) -> None:
        """Close the port. Only after ``start``."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, port: int, pages: Pages) -> None:
        self.pages = pages
        self._free = threading.BoundedSemaphore(_MAX_CLIENTS)
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        # The base class asks the name service for the host's name here, which may take long.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        address, *_ = self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = address, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug("A client of the monitoring port went away")


class _Handler(BaseHTTPRequestHandler):
    timeout = _READ_S
    server: _Server

    def setup(self) -> None:
        super().setup()
        raw = DeadlineReader(self.connection)
        raw.until_s = time.monotonic() + _READ_S
        self.rfile = io.BufferedReader(raw)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        make = self.server.pages.get(path)
        if make is None:
            known = ", ".join(self.server.pages)
            self._send(HttpPage(f"No such page; there are {known}\n".encode(), 404))
            return
        try:
            page = make(self.headers.get("Accept", ""))
        except Exception:
            LOG.exception("The page %s cannot be made", path)
            page = HttpPage(b"The page cannot be made; the worker's log has the reason\n", 500)
        self._send(page)

    do_HEAD = do_GET  # noqa: N815 - names of the base class

    def _refuse(self) -> None:
        self._send(HttpPage(b"Only GET and HEAD are served\n", 405))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _send(self, page: HttpPage) -> None:
        self.send_response_only(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        if page.status == 405:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def log_message(self, format: str, *args: Any) -> None:
        LOG.debug(format, *args)
