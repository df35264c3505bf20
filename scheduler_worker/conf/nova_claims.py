"""``[nova_claims]``: claims in Nova's Placement, with the account of ``[placement]``."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scheduler_worker.service.placement.claim_pool import ClaimSettings

GROUP = "nova_claims"
OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Whether every chosen host is claimed in Placement before the caller is answered, as "
        "nova-scheduler does. Needs the extra `nova` and the group [placement] of nova.conf, whose "
        "options (auth_type, auth_url, region_name, valid_interfaces, endpoint_override, cafile, "
        "timeout, ...) are those of keystoneauth. The same in all workers; docs/nova-cloud.md.",
    ),
    cfg.IntOpt(
        "batch",
        default=50,
        min=1,
        max=500,
        help="Requests whose claims are written to Placement together, at most. Those that wait "
        "while all writers are busy are the next batch.",
    ),
    cfg.IntOpt(
        "workers",
        default=2,
        min=1,
        max=64,
        help="Requests to Placement that a worker has under way at a time, each over a kept "
        "connection. Few make large batches, which cost Placement less.",
    ),
    cfg.FloatOpt(
        "timeout",
        default=60.0,
        min=1.0,
        max=600.0,
        help="Seconds that a request waits for Placement while that is away or slow, or others "
        "write faster, if its caller does not say how long it waits itself; also for its "
        "allocation candidates.",
    ),
]


def settings(conf: Any) -> ClaimSettings | None:
    """How claims are written; None: there are none."""
    group = conf.nova_claims
    if not group.enabled:
        return None
    return ClaimSettings(batch=group.batch, workers=group.workers, timeout_s=group.timeout)
