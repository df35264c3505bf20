"""The client of an OpenAttestation service, behind the ``Attestation`` port."""

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from scheduler_worker.certificates import File, tls_context
from scheduler_worker.conversion import json_reader
from scheduler_worker.errors import BackendError
from scheduler_worker.scheduling.filters.compute import UNKNOWN
from scheduler_worker.service.policies.trust import AttestationService

MAX_ANSWER_BYTES = 64 * 2**20
_CTIME = "%a %b %d %H:%M:%S %Y"


class _Host(msgspec.Struct):
    host_name: str
    trust_lvl: str
    vtime: str = ""


class _Answer(msgspec.Struct):
    hosts: list[_Host]


class HttpAttestation:
    """Asks about all nodes in one request over TLS, and verifies the service's certificate."""

    def __init__(self, service: AttestationService) -> None:
        self._service = service
        file = File("[trusted_computing] attestation_server_ca_file", service.ca_file)
        self._tls = tls_context(file)
        if service.insecure:
            self._tls.check_hostname = False
            self._tls.verify_mode = ssl.CERT_NONE

    def levels(self, nodenames: Sequence[str]) -> Mapping[str, str]:
        try:
            answer = json_reader(_Answer)(self._ask(nodenames))
        except (OSError, http.client.HTTPException, msgspec.DecodeError, UnicodeError) as error:
            raise BackendError(
                f"The attestation service {self._service.server} gives no trust levels: {error}"
            ) from None
        return {
            host.host_name: host.trust_lvl if _is_time(host.vtime) else UNKNOWN
            for host in answer.hosts
        }

    def _ask(self, nodenames: Sequence[str]) -> bytes:
        service = self._service
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if service.auth_blob:
            headers["x-auth-blob"] = service.auth_blob
        question: dict[str, Any] = {"count": len(nodenames), "hosts": list(nodenames)}
        connection = http.client.HTTPSConnection(
            service.server, service.port, timeout=service.timeout_s, context=self._tls
        )
        try:
            path = f"{service.api_url.rstrip('/')}/PollHosts"
            connection.request("POST", path, json.dumps(question), headers)
            response = connection.getresponse()
            if response.status >= http.client.MULTIPLE_CHOICES:
                raise http.client.HTTPException(f"status {response.status} {response.reason}")
            body = response.read(MAX_ANSWER_BYTES + 1)
        finally:
            connection.close()
        if len(body) > MAX_ANSWER_BYTES:
            raise http.client.HTTPException(f"more than {MAX_ANSWER_BYTES} bytes")
        return body


def _is_time(text: str) -> bool:
    """Whether the text is a time, in ISO 8601 or the format of C's ``ctime``."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        try:
            datetime.strptime(text, _CTIME).replace(tzinfo=UTC)
        except ValueError:
            return False
    return True
