"""TLS contexts from configured files, with errors that name option and file."""

import ssl
from typing import NamedTuple

from scheduler_worker.errors import ConfigError


class File(NamedTuple):
    """A file, and the option that names it."""

    option: str
    path: str | None


def tls_context(
    authorities: File, certificate: File | None = None, key: File | None = None
) -> ssl.SSLContext:
    """A client's context, which verifies the server's certificate and host name.

    ``authorities`` is the file of CA certificates, the system's if it has no path. ``certificate``
    and ``key`` (in the certificate's file if it has no path) are the client's own.

    Raises ConfigError: a file cannot be read, or does not contain what it should.
    """
    for file in (authorities, certificate, key):
        _check_readable(file)
    try:
        context = ssl.create_default_context(cafile=authorities.path or None)
    except ssl.SSLError as error:
        raise _unusable(authorities, "certificates", error) from None
    if certificate is not None and certificate.path:
        try:
            context.load_cert_chain(certificate.path, (key and key.path) or None)
        except ssl.SSLError as error:
            raise _unusable(certificate, "a certificate that goes with its key", error) from None
    return context


def _check_readable(file: File | None) -> None:
    if file is None or not file.path:
        return
    try:
        with open(file.path, "rb"):  # noqa: PTH123 - OpenSSL's own error does not name the file
            pass
    except OSError as error:
        raise ConfigError(f"{file.option}: {file.path}: {error.strerror}") from None


def _unusable(file: File, expected: str, error: ssl.SSLError) -> ConfigError:
    return ConfigError(f"{file.option}: {file.path} does not hold {expected}: {error.strerror}")
