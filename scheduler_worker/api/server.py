"""The HTTP server of the REST API, with TLS where it is configured."""

from wsgiref.types import WSGIApplication

from werkzeug.middleware.proxy_fix import ProxyFix

from scheduler_worker.api.settings import ApiSettings
from scheduler_worker.errors import ConfigError
from scheduler_worker.http_server import HttpServer, Tls


class ApiServer(HttpServer):
    """Serves the API from ``start`` until ``stop``."""

    def __init__(self, settings: ApiSettings, application: WSGIApplication) -> None:
        """Binds the port. Raises ConfigError where that or the certificate fails."""
        if settings.proxies:
            n = settings.proxies
            application = ProxyFix(application, x_for=n, x_proto=n, x_host=n)
        super().__init__(
            application,
            settings.address,
            settings.port,
            option="[api] port",
            threads=settings.threads,
            read_timeout_s=settings.read_timeout_s,
            max_body=settings.max_body,
            reuse_port=settings.reuse_port,
            tls=tls_of(settings),
        )


def tls_of(settings: ApiSettings) -> Tls | None:
    """What encrypts; None for plain HTTP. Raises ConfigError where the files cannot be used."""
    certificate = settings.certificate_file
    if certificate is None:
        if settings.key_file or settings.chain_file:
            raise ConfigError("[api] key_file, chain_file: certificate_file is not set; set it too")
        return None
    try:
        return Tls(certificate, settings.key_file or certificate, settings.chain_file)
    except OSError as error:  # also what OpenSSL says of files that hold something else
        raise ConfigError(
            f"[api] certificate_file, key_file, chain_file: {certificate}: "
            f"{error.strerror or error}"
        ) from None
