"""Settings of the RPC server."""

from __future__ import annotations

import msgspec

from scheduler_worker.operations.callers import Role
from scheduler_worker.rpc.serving.settings import DeliveryLimits


class RpcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[rpc]``: what is consumed, and by how many slots."""

    topic: str = "scheduler"
    exchange: str = "nova"
    slots: int = 16
    """Requests that are processed at the same time."""
    caller_role: Role | None = "administrator"
    """That of callers whose context names no roles; None: they may ask for nothing."""
    deliveries: DeliveryLimits = DeliveryLimits()
