"""``[trusted_computing]``: the attestation service that TrustedFilter believes."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scheduler_worker.service.trust import AttestationService

GROUP = "trusted_computing"
OPTS = [
    cfg.HostAddressOpt(
        "attestation_server",
        help="Name or address of the attestation service; without one TrustedFilter trusts no "
        "host.",
    ),
    cfg.PortOpt("attestation_port", default=8443, help="Its port; TLS is spoken there."),
    cfg.StrOpt(
        "attestation_api_url",
        default="/OpenAttestationWebServices/V1.0",
        help="The path before /PollHosts.",
    ),
    cfg.StrOpt("attestation_auth_blob", secret=True, help="What the service wants as x-auth-blob."),
    cfg.StrOpt(
        "attestation_server_ca_file",
        help="Certificates of the authorities that may sign the service's; the system's if unset.",
    ),
    cfg.IntOpt(
        "attestation_auth_timeout",
        default=60,
        min=2,
        help="Seconds for which an answer is believed; the service is asked twice in this time.",
    ),
    cfg.BoolOpt(
        "attestation_insecure_ssl",
        default=False,
        help="Whether any certificate will do; then whoever is on the way can make hosts trusted.",
    ),
]


def settings(conf: Any) -> AttestationService | None:
    """How to ask the service, if one is named."""
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
