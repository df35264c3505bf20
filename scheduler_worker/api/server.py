"""The HTTP server of the REST API: cheroot, with TLS where it is configured."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any
from wsgiref.types import WSGIApplication

from cheroot import server as cheroot_server
from cheroot import wsgi
from cheroot.ssl.builtin import BuiltinSSLAdapter
from werkzeug.middleware.proxy_fix import ProxyFix

from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.errors import ConfigError

LOG = logging.getLogger(__name__)

_MAX_HEADERS = 64 * 1024
"""Upper bound of a request's headers, in bytes."""
_BACKLOG = 128


class _Request(cheroot_server.HTTPRequest):  # type: ignore[misc]
    """Closes the connection after an answer that says so, without reading the rest of the body.

    cheroot would read all that is left of a body at once, however large it is.
    """

    def send_headers(self) -> None:
        if (b"Connection", b"close") in self.outheaders:
            self.close_connection = True
        super().send_headers()


class _Connection(cheroot_server.HTTPConnection):  # type: ignore[misc]
    RequestHandlerClass = _Request


class _Gateway(wsgi.Gateway_10):  # type: ignore[misc]
    def get_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environ()
        environ["wsgi.input_terminated"] = True  # cheroot ends it, also for a chunked body
        return environ


class _Server(wsgi.Server):  # type: ignore[misc]
    ConnectionClass = _Connection

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        LOG.log(level, "%s", msg, exc_info=traceback)


class ApiServer:
    """Serves an application from ``start`` until ``stop``."""

    def __init__(self, settings: ApiSettings, application: WSGIApplication) -> None:
        """Binds the port. Raises ConfigError where that or the certificate fails."""
        if settings.proxies:
            n = settings.proxies
            application = ProxyFix(application, x_for=n, x_proto=n, x_host=n)
        self._server = _Server(
            (settings.address, settings.port),
            application,
            numthreads=settings.threads,
            request_queue_size=_BACKLOG,
            timeout=settings.read_timeout_s,
            reuse_port=settings.reuse_port,
        )
        self._server.gateway = _Gateway
        self._server.max_request_header_size = _MAX_HEADERS
        self._server.software = "scheduler_worker"
        self._server.ssl_adapter = _tls(settings)
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)
        self._failure: BaseException | None = None
        # Without it cheroot would take a socket that systemd passed to another program for its own.
        os.environ.pop("LISTEN_PID", None)
        try:
            self._server.prepare()
        except (OSError, ValueError) as error:  # the latter for reuse_port without a port
            raise ConfigError(
                f"[api] port: cannot listen on {settings.address} port {settings.port}: {error}; "
                "choose another port"
            ) from None
        scheme = "https" if settings.certificate_file else "http"
        address = f"[{settings.address}]" if ":" in settings.address else settings.address
        self.port: int = self._server.bind_addr[1]
        self.url = f"{scheme}://{address}:{self.port}"

    def start(self) -> None:
        """Serve, in threads."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Accept no more connections, and finish the requests in hand within the timeout."""
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


def _tls(settings: ApiSettings) -> BuiltinSSLAdapter | None:
    certificate = settings.certificate_file
    if certificate is None:
        if settings.key_file or settings.chain_file:
            raise ConfigError("[api] key_file, chain_file: certificate_file is not set; set it too")
        return None
    try:
        return BuiltinSSLAdapter(certificate, settings.key_file or certificate, settings.chain_file)
    except OSError as error:  # also what OpenSSL says of files that hold something else
        raise ConfigError(
            f"[api] certificate_file, key_file, chain_file: {certificate}: "
            f"{error.strerror or error}"
        ) from None
