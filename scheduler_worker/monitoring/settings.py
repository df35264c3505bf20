"""Settings of metrics, health checks, log lines and dumps."""

from typing import Annotated

import msgspec

from scheduler_worker.errors import ConfigError
from scheduler_worker.options import Opt

_MAX_PORT = 65535


class MonitoringSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[monitoring]``; times in seconds."""

    port: Annotated[int, Opt(form="port")] = 0
    """Port of the HTTP server with /metrics, /livez and /readyz; 0: none. One of several workers
    (--instance N, --workers) uses port + N."""
    api_port: Annotated[int, Opt(form="port")] = 0
    """The same of scheduler-worker-api without a worker inside; 0: none. A port of its own, so that
    both programs of a host may read one file."""
    address: Annotated[str, Opt(form="host")] = "127.0.0.1"
    """Address that the HTTP server listens on; `::` is every address of IPv4 and IPv6. It has no
    access control. Its pages contain names of clusters and filters, and no secrets."""
    stalled_after_s: Annotated[float, Opt(min=1)] = 30.0
    """Seconds without a heartbeat of the thread that moves messages after which the worker counts
    as hung: /livez fails, and systemd's watchdog gets no more heartbeats."""
    max_log_line: Annotated[int, Opt(min=200)] = 2000
    """Characters of a log message, and of a line of a traceback; longer ones are cut."""
    dump_dir: Annotated[str | None, Opt()] = None
    """Directory for the dumps that SIGUSR1 triggers, which go into the log in any case."""

    def port_of(self, instance: int) -> int:
        """The HTTP port of one of several workers: ``port`` plus its number; 0: none.

        Raises ConfigError: the port would be out of range.
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

    enabled: Annotated[bool, Opt()] = False
    """Whether requests are traced with OpenTelemetry: how long each waited, was decided, reserved
    and claimed. Needs: pip install 'scheduler_worker[tracing]'."""
    endpoint: Annotated[str, Opt()] = "http://127.0.0.1:4318/v1/traces"
    """URL of a collector that takes OTLP over HTTP. Headers and certificates come from
    OpenTelemetry's variables, such as OTEL_EXPORTER_OTLP_HEADERS."""
    ratio: Annotated[float, Opt(min=0, max=1)] = 1.0
    """Share of the requests that are traced. One whose caller sends its trace along (a field
    traceparent of the context, or a header of the message) is traced if that is."""
