"""TLS contexts from configured files, with errors that name option and file."""

import ssl
from typing import NamedTuple

from scheduler_worker.errors import ConfigError


class File(NamedTuple):
    """A file, and the option that names it."""

    option: str
    path: str | None


_NONE = File("", None)


def tls_context(authorities: File, certificate: File = _NONE, key: File = _NONE) -> ssl.SSLContext:
    """A client's context, which verifies the server's certificate and host name.

    ``authorities`` is the file of CA certificates, the system's if it has no path. ``certificate``
    and ``key`` (in the certificate's file if it has no path) are the client's own.

    Raises ConfigError: a file cannot be read, or does not contain what it should.
    """
    for option, path in (authorities, certificate, key):
        try:
            if path:
                open(path, "rb").close()  # noqa: PTH123 - OpenSSL's own error names no file
        except OSError as error:
            raise ConfigError(f"{option}: {path}: {error.strerror}") from None
    try:
        context = ssl.create_default_context(cafile=authorities.path or None)
    except ssl.SSLError as error:
        raise _unusable(authorities, "certificates", error) from None
    if certificate.path:
        try:
            context.load_cert_chain(certificate.path, key.path or None)
        except ssl.SSLError as error:
            raise _unusable(certificate, "a certificate that goes with its key", error) from None
    return context


def _unusable(file: File, expected: str, error: ssl.SSLError) -> ConfigError:
    return ConfigError(f"{file.option}: {file.path} does not hold {expected}: {error.strerror}")
