"""``[tracing]``: traces of requests."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scheduler_worker.monitoring.settings import TracingSettings

GROUP = "tracing"
OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Whether requests are traced with OpenTelemetry: how long each waited, was decided, "
        "reserved and claimed. Needs: pip install 'scheduler_worker[tracing]'.",
    ),
    cfg.StrOpt(
        "endpoint",
        default="http://127.0.0.1:4318/v1/traces",
        help="URL of a collector that takes OTLP over HTTP. Headers and certificates are those of "
        "OpenTelemetry's variables, such as OTEL_EXPORTER_OTLP_HEADERS.",
    ),
    cfg.FloatOpt(
        "ratio",
        default=1.0,
        min=0.0,
        max=1.0,
        help="Share of the requests that are traced. One whose caller sends its trace along (a "
        "field traceparent of the context, or a header of the message) is traced if that is.",
    ),
]


def settings(conf: Any) -> TracingSettings | None:
    """How requests are traced; None: they are not."""
    group = conf.tracing
    if not group.enabled:
        return None
    return TracingSettings(endpoint=group.endpoint, ratio=group.ratio)
