"""The REST API."""

from typing import Final

from scheduler_worker.events.kinds import SERVICE_S, Alert, Count, Curve, Duration, Gauge, Panel
from scheduler_worker.events.promql import BOARD, ITS, per_second, quantile

_REFUSED = Panel(
    "REST API",
    "Refused requests, ended connections",
    "Requests of users or addresses above [api] requests_per_second, and connections that the "
    "server ended.",
    "reqps",
)

API_REQUESTS: Final = Count(
    "api_requests_total",
    "requests to the REST API. `route` is the path with names for its arguments; `other` is a "
    "path that does not exist, or a request refused before its path was looked at: without a "
    "valid log-in, or above the rates",
    ("route", "method", "status"),
    curves=(
        per_second(
            Panel(
                "REST API",
                "Requests by route",
                "Requests to processes of the REST API, by route and status.",
                "reqps",
            ),
            "{{route}} {{status}}",
            "route, status",
        ),
    ),
)
API_TIME: Final = Duration(
    "api_request_duration_seconds",
    "from a request's headers to its answer",
    ("route",),
    curves=(
        Curve(
            Panel(
                "REST API",
                "Time to an answer of the API",
                "The 95th percentile of each route.",
                "s",
            ),
            quantile(0.95, BOARD, "route"),
            "{{route}}",
        ),
    ),
    bounds_s=SERVICE_S[:-1],
)
API_LIMITED: Final = Count(
    "api_rate_limited_total",
    "requests refused by `[api] requests_per_second`, by `user` or `address`",
    ("by",),
    curves=(per_second(_REFUSED, "{{by}}", "by"),),
)
HTTP_ENDED: Final = Count(
    "http_connections_ended_total",
    "connections to the HTTP server that it ended itself: `idle` ones that sent nothing for "
    "`[api] read_timeout`, `slow` ones that sent a part of a request, `refused` ones with a "
    "malformed request, and `crowded` ones above `[api] connections`",
    ("reason",),
    curves=(per_second(_REFUSED, "connection: {{reason}}", "reason"),),
)
API_DEPENDENCY: Final = Gauge(
    "api_dependency_up",
    "1 while the shared `state` accepts writes, and the `archive of policies` has a copy of them; "
    "asked at each scrape",
    ("dependency",),
    alerts=(
        Alert(
            name="SchedulerApiCannotServe",
            expression=f'min by (instance) ({ITS}{{dependency="state"}}) < 1',
            lasts="2m",
            severity="critical",
            summary="The API at {{ $labels.instance }} cannot use the shared state",
            text="It answers most requests with 503.",
        ),
        Alert(
            name="SchedulerArchiveBehind",
            expression=f'min by (instance) ({ITS}{{dependency="archive of policies"}}) < 1',
            lasts="10m",
            severity="warning",
            summary="The API at {{ $labels.instance }} cannot copy policies into their archive",
            text="Edits are in the shared state alone. Questions about history and audit are "
            "answered with 503.",
        ),
    ),
    curves=(
        Curve(
            Panel(
                "REST API",
                "What the API needs",
                "1 while the shared state and the archive of policies can be used by every process "
                "of the API.",
                "short",
                most=1,
            ),
            f"min by (dependency) ({ITS})",
            "{{dependency}}",
        ),
    ),
)
