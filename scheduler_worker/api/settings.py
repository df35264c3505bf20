"""Settings of the REST API and its HTTP server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from scheduler_worker.operations.callers import Role


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[api]``; times in seconds."""

    address: str = "127.0.0.1"
    port: int = 8780
    threads: int = 10
    max_body: int = 1024 * 1024
    """Bytes."""
    auth: Literal["local", "keystone", "both"] = "local"
    keystone_roles: Mapping[str, Role] = {}
    """Role of Keystone -> ours."""
    users_file: str = "/etc/scheduler_worker/users.yaml"
    policy_file: str | None = None
    token_ttl_s: float = 28800.0
    certificate_file: str | None = None
    key_file: str | None = None
    chain_file: str | None = None
    proxies: int = 0
    """Reverse proxies in front of the server whose X-Forwarded headers are believed."""
    reuse_port: bool = False
    read_timeout_s: float = 10.0
    requests_per_second: float = 0.0
    """Of one user, and of one address; 0: any number."""
    burst: int = 20
    console: bool = True
    console_idle_timeout_s: float = 1800.0
    console_session_ttl_s: float = 43200.0
