"""Settings of the shared state's engine."""

from __future__ import annotations

import msgspec


class StateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[state]`` and the timeouts of ``[cluster_lock]`` that the engine enforces, in seconds."""

    url: str = "memory://"
    """May contain a password; messages name the server without it."""
    prefix: str = "scheduler_worker"
    wait_replicas: int = 0
    hold_timeout_s: float = 10.0
    offer_timeout_s: float = 0.5


class PolicyStoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[policy_store]``; times in seconds."""

    connection: str
    """A URL, which may contain a password; messages name the database without it."""
    pool_size: int = 5
    pool_timeout_s: float = 10.0
    connect_timeout_s: float = 5.0
    lock_timeout_s: float = 5.0
    statement_timeout_s: float = 30.0
    audit_retention_days: float = 0.0
    """0: entries are never deleted."""
