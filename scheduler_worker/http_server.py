"""The HTTP server of the REST API and of monitoring: cheroot, with bounds on slow clients."""

import contextlib
import io
import logging
import math
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from typing import Any
from wsgiref.types import WSGIApplication

from cheroot import errors, wsgi
from cheroot import server as cheroot_server
from cheroot.makefile import StreamReader
from cheroot.ssl.builtin import BuiltinSSLAdapter

from scheduler_worker.errors import ConfigError

LOG = logging.getLogger(__name__)

_MAX_HEADERS = 64 * 1024
"""Upper bound of a request's headers, in bytes."""
_BACKLOG = 128
_READERS, _MOST_READERS = 8, 512
"""Threads for each request that is served at a time, and in all: most of them wait for clients."""
_SLOWEST = 16 * 1024
"""Bytes of a body that have to come in a second, beyond ``read_timeout``."""
_MOST_DISCARDED = 64 * 1024 * 1024
_PLAIN = b"This port speaks HTTPS alone.\n"


class _Request(cheroot_server.HTTPRequest):  # type: ignore[misc]
    """Closes the connection after an answer that says so, without reading the rest of the body.

    cheroot would read all that is left of a body at once, however large it is.
    """

    def send_headers(self) -> None:
        if (b"Connection", b"close") in self.outheaders:
            self.close_connection = True
        super().send_headers()

    def parse_request(self) -> None:
        self.conn.allow(self.server.timeout)
        super().parse_request()

    def read_request_headers(self) -> bool:
        if not super().read_request_headers():
            return False
        length = self.inheaders.get(b"Content-Length", b"0")
        if length.isdigit():
            return True
        self.simple_response("400 Bad Request", "Malformed Content-Length Header.")
        return False


class _Connection(cheroot_server.HTTPConnection):  # type: ignore[misc]
    """One whose reads have a deadline: for the headers of a request, and for its body."""

    RequestHandlerClass = _Request

    def __init__(self, server: Any, sock: socket.socket, makefile: Any) -> None:
        super().__init__(server, sock, makefile)
        self.rfile = _Stream(sock)

    def allow(self, seconds: float) -> None:
        """From now on reading may take so long."""
        self.rfile.raw.until_s = time.monotonic() + seconds


class _Reader(socket.SocketIO):
    """The raw reader of a socket; raises TimeoutError at ``until_s`` of the monotonic clock.

    A socket's own timeout begins again with each byte. A client that speaks plain HTTP to a port
    with TLS is told so.
    """

    until_s = math.inf

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, "rb")
        self._socket = sock

    def readinto(self, buffer: Any) -> int | None:
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        before_s = self._socket.gettimeout()
        if left_s < math.inf:
            self._socket.settimeout(left_s if before_s is None else min(left_s, before_s))
        try:
            return super().readinto(buffer)
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                head = f"HTTP/1.1 400 Bad Request\r\nContent-Length: {len(_PLAIN)}\r\n\r\n"
                with contextlib.suppress(OSError):
                    os.write(self.fileno(), head.encode() + _PLAIN)
            raise errors.FatalSSLAlert(*error.args) from error
        finally:
            self._socket.settimeout(before_s)


class _Stream(StreamReader):  # type: ignore[misc]
    def __init__(self, sock: socket.socket) -> None:
        super(StreamReader, self).__init__(_Reader(sock))
        self.bytes_read = 0


class Tls(BuiltinSSLAdapter):  # type: ignore[misc]
    """Leaves the handshake to the thread that reads: the accepting thread must not wait for it."""

    def wrap(self, sock: socket.socket) -> tuple[socket.socket, dict[str, str]]:
        wrapped = self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return wrapped, {"wsgi.url_scheme": "https", "HTTPS": "on"}


class _Gateway(wsgi.Gateway_10):  # type: ignore[misc]
    """Reads a body before the application is called; of one that is too long only the begin."""

    def get_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environ()
        environ["wsgi.input_terminated"] = True  # cheroot ends it, also for a chunked body
        length, most = int(environ.get("CONTENT_LENGTH") or 0), self.req.server.max_body
        self.req.conn.allow(self.req.server.timeout + min(length or most, most) / _SLOWEST)
        source = environ["wsgi.input"]
        environ["wsgi.input"] = io.BytesIO(source.read(most + 1))
        # The rest is not kept: many clients read no answer before they have sent everything.
        remaining = _MOST_DISCARDED
        while remaining > 0 and (chunk := source.read(min(remaining, 64 * 1024))):
            remaining -= len(chunk)
        return environ


class _Server(wsgi.Server):  # type: ignore[misc]
    ConnectionClass = _Connection

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
        max_body: int = 0,
        reuse_port: bool = False,
        tls: Tls | None = None,
    ) -> None:
        """Binds the port; ``option`` sets it. ``::`` is every address, of IPv4, too.

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
            numthreads=min(_READERS * threads, _MOST_READERS),
            request_queue_size=_BACKLOG,
            timeout=read_timeout_s,
            reuse_port=reuse_port,
        )
        self._server.gateway = _Gateway
        self._server.max_request_header_size = _MAX_HEADERS
        self._server.max_body = max_body
        self._server.software = "scheduler_worker"
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
