"""``[trusted_computing]``: the attestation service that TrustedFilter asks."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scheduler_worker.service.policies.trust import AttestationService

GROUP = "trusted_computing"
OPTS = [
    cfg.HostAddressOpt(
        "attestation_server",
        help="Name or address of the attestation service; without one TrustedFilter trusts no "
        "host.",
    ),
    cfg.PortOpt(
        "attestation_port", default=8443, help="Port of the attestation service, which speaks TLS."
    ),
    cfg.StrOpt(
        "attestation_api_url",
        default="/OpenAttestationWebServices/V1.0",
        help="The path of the service's API, before /PollHosts.",
    ),
    cfg.StrOpt(
        "attestation_auth_blob", secret=True, help="Sent to the service in the header x-auth-blob."
    ),
    cfg.StrOpt(
        "attestation_server_ca_file",
        help="File with the CA certificates that the service's certificate is verified against; "
        "the system's if unset.",
    ),
    cfg.IntOpt(
        "attestation_auth_timeout",
        default=60,
        min=2,
        help="Seconds for which an answer is valid; the service is asked twice in this time.",
    ),
    cfg.BoolOpt(
        "attestation_insecure_ssl",
        default=False,
        help="Whether the service's certificate is not verified. A man in the middle can then make "
        "hosts trusted.",
    ),
]


def settings(conf: Any) -> AttestationService | None:
    """How to reach the service; None if none is configured."""
    group = conf.trusted_computing
    if not group.attestation_server:
        return None
    return AttestationService(
        server=group.attestation_server,
        port=group.attestation_port,
        api_url=group.attestation_api_url,
        auth_blob=group.attestation_auth_blob,
        ca_file=group.attestation_server_ca_file,
        insecure=group.attestation_insecure_ssl,
        lasts_s=group.attestation_auth_timeout,
    )
