"""Certificates for tests, made by openssl; they last two days."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.support.servers import program

SOME = """\
-----BEGIN CERTIFICATE-----
MIIBdDCCARmgAwIBAgIUddgfG9HpXvkmA2RfPVKoQuePrkEwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAeFw0yNjExMjIwNDQ2MzhaFw0yNjExMjMwNDQ2Mzha
MA8xDTALBgNVBAMMBHRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATadcEi
WSF2q/MM1mVyVpKloVj30EOP7FAnmnlSFDT/kN4i2f3BrF3/z6MWMZyuu53sVd/h
+eT8KjZfW5X8Q0Ruo1MwUTAdBgNVHQ4EFgQUz/mxDDuxT/yYcbvO7/AFLQThcQAw
HwYDVR0jBBgwFoAUz/mxDDuxT/yYcbvO7/AFLQThcQAwDwYDVR0TAQH/BAUwAwEB
/zAKBggqhkjOPQQDAgNJADBGAiEAjp8sh4xkVNB2eFAN3f5tifanQj7kn0+VK/DD
g4tuXfsCIQDNW6wI3L/p04isOZpiE2vSw0WFYnYhHp8q0xwoVOqRdg==
-----END CERTIFICATE-----
"""
"""An expired certificate, for tests that need only its form."""


class Authority:
    """Signs certificates; its own is in ``path``."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        extensions = "basicConstraints=critical,CA:TRUE", "keyUsage=keyCertSign,cRLSign"
        self.path, self._key = self._make(name, extensions)

    def issue(self, name: str, alternatives: str = "DNS:localhost") -> tuple[Path, Path]:
        """A certificate and its key; ``alternatives`` as openssl writes ``subjectAltName``."""
        signed = ["-CA", str(self.path), "-CAkey", str(self._key)]
        extensions = "basicConstraints=critical,CA:FALSE", f"subjectAltName={alternatives}"
        return self._make(name, extensions, *signed)

    def _make(self, name: str, extensions: Iterable[str], *signed: str) -> tuple[Path, Path]:
        certificate, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        command = [program("openssl"), "req", "-x509", "-newkey", "ec", "-noenc", "-days", "2"]
        command += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", f"/CN={name}"]
        for extension in extensions:
            command += ["-addext", extension]
        command += [*signed, "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True)
        return certificate, key
