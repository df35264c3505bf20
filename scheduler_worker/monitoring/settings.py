"""Settings of metrics, health checks, log lines and dumps."""

from __future__ import annotations

import msgspec

from scheduler_worker.errors import ConfigError

_MAX_PORT = 65535


class MonitoringSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[monitoring]``; times in seconds."""

    address: str = "127.0.0.1"
    port: int = 0
    """0: no HTTP server."""
    api_port: int = 0
    """Of an API process without a worker."""
    stalled_after_s: float = 30.0
    max_log_line: int = 2000
    """Characters."""
    dump_dir: str | None = None

    def port_of(self, instance: int) -> int:
        """The HTTP port of one of several workers: ``port`` plus its number; 0: none.

        Raises:
            ConfigError: the port would be out of range.
        """
        port = self.port and self.port + instance
        if port > _MAX_PORT:
            raise ConfigError(
                f"[monitoring] port: {port} is no port; with --instance {instance} choose one up "
                f"to {_MAX_PORT - instance}"
            )
        return port


class TracingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[tracing]``."""

    endpoint: str = "http://127.0.0.1:4318/v1/traces"
    """Of a collector for OTLP over HTTP."""
    ratio: float = 1.0
    """The share of requests that are traced."""
