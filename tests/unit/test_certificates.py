"""An unusable TLS file is named in the error, with its option."""

import ssl

import pytest

from scheduler_worker.certificates import File, tls_context
from scheduler_worker.errors import ConfigError


def test_certificates_are_verified(pem):
    for context in (tls_context(File("ca", None)), tls_context(File("ca", pem))):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname


@pytest.mark.parametrize("missing", ["ca", "certificate", "key"])
def test_a_file_that_is_not_there_is_named(pem, missing):
    files = [File(name, "/no/such" if name == missing else pem) for name in
             ("ca", "certificate", "key")]  # fmt: skip
    with pytest.raises(ConfigError) as refused:
        tls_context(*files)
    assert str(refused.value) == f"{missing}: /no/such: No such file or directory"


def test_a_file_of_another_kind_is_named(pem):
    with pytest.raises(ConfigError, match=f"ca: {__file__} does not hold certificates: "):
        tls_context(File("ca", __file__))
    with pytest.raises(ConfigError, match=f"cert: {pem} does not hold a certificate that goes"):
        tls_context(File("ca", None), File("cert", pem), File("key", pem))
