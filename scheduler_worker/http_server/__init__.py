"""The HTTP server of the REST API and of monitoring: cheroot, with its own way to wait for clients.

A connection waits in a selector until a request has come whole; only then it gets a thread. So a
client that sends nothing, or a byte now and then, costs a socket and a buffer.
"""

import io
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final
from wsgiref.types import WSGIApplication

from cheroot import wsgi
from cheroot.ssl.builtin import BuiltinSSLAdapter

from scheduler_worker.errors import ConfigError
from scheduler_worker.http_server.connections import Reception
from scheduler_worker.http_server.requests import MAX_HEADERS

LOG = logging.getLogger(__name__)

_NAME: Final = "scheduler_worker"
"""What the header ``Server`` says: no version."""
_BACKLOG = 128
_SENDERS, _MOST_SENDERS = 8, 512
"""Threads for each request that is served at a time, and in all: most wait for clients to read."""


class Tls(BuiltinSSLAdapter):  # type: ignore[misc]
    """Leaves the handshake to the threads that receive: the accepting thread must not wait."""

    def wrap(self, sock: socket.socket) -> tuple[socket.socket, dict[str, str]]:
        wrapped = self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return wrapped, {"wsgi.url_scheme": "https", "HTTPS": "on"}


class _Gateway(wsgi.Gateway_10):  # type: ignore[misc]
    def get_environ(self) -> dict[str, Any]:
        self.req.rfile = io.BytesIO(self.req.body.content)
        return {**super().get_environ(), "wsgi.input_terminated": True}


class _Server(wsgi.Server):  # type: ignore[misc]
    _connections: Any

    def prepare(self) -> None:
        super().prepare()
        self._connections.close()
        self._connections = self.reception = Reception(self)

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        LOG.log(level, "%s", msg, exc_info=traceback)


class HttpServer:
    """Serves an application from ``start`` until ``stop``."""

    def __init__(
        self,
        application: WSGIApplication,
        address: str,
        port: int,
        *,
        option: str,
        threads: int,
        read_timeout_s: float,
        connections: int,
        connections_per_address: int,
        ended: Callable[[str], object] = lambda _: None,
        max_body: int = 0,
        reuse_port: bool = False,
        tls: Tls | None = None,
    ) -> None:
        """Binds the port; ``option`` sets it. ``::`` is every address, of IPv4, too.

        ``ended`` is told why a connection ends that its client has not: ``idle``, ``slow``,
        ``refused`` or ``crowded``; from any thread.

        Raises ConfigError.
        """
        if address == "::" and not socket.has_dualstack_ipv6():
            address = "0.0.0.0"  # noqa: S104 - a kernel without IPv6
        free = threading.BoundedSemaphore(threads)

        def in_turn(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            with free:
                return application(environ, start_response)

        self._server = _Server(
            (address, port),
            in_turn,
            numthreads=min(_SENDERS * threads, _MOST_SENDERS),
            server_name=_NAME,
            request_queue_size=_BACKLOG,
            timeout=read_timeout_s,
            reuse_port=reuse_port,
        )
        self._server.gateway = _Gateway
        self._server.max_request_header_size = MAX_HEADERS
        self._server.max_body = max_body
        self._server.most = connections
        self._server.most_of_address = connections_per_address
        self._server.ended = ended
        self._server.software = _NAME
        self._server.ssl_adapter = tls
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)
        self._failure: BaseException | None = None
        self._is_stopped = False
        # Without it cheroot would take a socket that systemd passed to another program for its own.
        os.environ.pop("LISTEN_PID", None)
        try:
            self._server.prepare()
        except (OSError, ValueError) as error:  # the latter for reuse_port without a port
            raise ConfigError(
                f"{option}: cannot listen on {address} port {port}: {error}; choose another port"
            ) from None
        self.port: int = self._server.bind_addr[1]
        host = f"[{address}]" if ":" in address else address
        self.url = f"{'https' if tls else 'http'}://{host}:{self.port}"

    def start(self) -> None:
        """Serve, in threads. Idempotent; nothing after a stop."""
        if self._thread.ident is None and not self._is_stopped:
            self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Accept no more connections, and finish the requests in hand within the timeout."""
        self._is_stopped = True
        self._server.shutdown_timeout = timeout_s
        self._server.stop()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def failure(self) -> str | None:
        """Why the server does not serve any more; None while it does."""
        return None if self._failure is None else f"the HTTP server: {self._failure}"

    def _serve(self) -> None:
        try:
            self._server.serve()
        except BaseException as error:
            LOG.exception("The HTTP server has failed")
            self._failure = error
