"""Expressions of PromQL about events, as texts.

:data:`ITS` stands in them for the metric of the event that has the alert or the curve. Times are
Prometheus's, such as ``5m``. The value of a label may begin with ``!`` (any other one), with ``~``
(a pattern), or be as it is.
"""

from typing import Final

from scheduler_worker.events.kinds import Curve, Event, Panel

ITS: Final = "<metric>"
BOARD: Final = "$__rate_interval"
"""The time over which the board takes rates: some scrapes."""
CLUSTERS: Final = "~$cluster"
"""The clusters that are chosen on the board."""
_OPERATORS = {"!": "!=", "~": "=~"}


def resolved(expression: str, event: Event) -> str:
    """The expression of an alert or a curve of this event."""
    return expression.replace(ITS, event.metric)


def series(of: Event | None = None, suffix: str = "", **labels: str) -> str:
    """The series of an event, its own by default, with these labels."""
    terms = [
        f'{label}{_OPERATORS.get(value[0], "=")}"{value.lstrip("!~")}"'
        for label, value in labels.items()
    ]
    name = (of.metric if of else ITS) + suffix
    return name + (f"{{{', '.join(terms)}}}" if terms else "")


def of_all(function: str, by: str, expression: str) -> str:
    """``sum`` or another function, for each value of these labels if there are some."""
    return f"{function} by ({by}) ({expression})" if by else f"{function}({expression})"


def rate(over: str, by: str = "", of: Event | None = None, **labels: str) -> str:
    """How often it happens each second."""
    return of_all("sum", by, f"rate({series(of, **labels)}[{over}])")


def increase(over: str, by: str = "", of: Event | None = None, **labels: str) -> str:
    """How often it has happened in this time."""
    return of_all("sum", by, f"increase({series(of, **labels)}[{over}])")


def rare(over: str, by: str, **labels: str) -> str:
    """It has happened at all in this time, maybe for the first time."""
    name = series(None, **labels)
    is_new = f"{name} unless {name} offset {over}"
    return f"{increase(over, by, None, **labels)} > 0\nor\n{of_all('sum', by, is_new)} > 0"


def quantile(share: float, over: str, by: str = "", **labels: str) -> str:
    """So large a share of a duration's events took at most so many seconds."""
    buckets = f"rate({series(None, '_bucket', **labels)}[{over}])"
    return f"histogram_quantile({share:g}, {of_all('sum', f'le, {by}' if by else 'le', buckets)})"


def per_second(panel: Panel, legend: str, by: str = "", **labels: str) -> Curve:
    """How often it happens, on the board."""
    return Curve(panel, rate(BOARD, by, None, **labels), legend)


def per_cluster(panel: Panel, legend: str = "{{cluster}}", by: str = "cluster") -> Curve:
    """The same, in the clusters that are chosen there."""
    return per_second(panel, legend, by, cluster=CLUSTERS)


def percentiles(panel: Panel, *legends: str, by: str = "", **labels: str) -> tuple[Curve, ...]:
    """The median and the 99th percentile of a duration, or the latter alone."""
    shares = (0.5, 0.99)[-len(legends) :]
    return tuple(
        Curve(panel, quantile(share, BOARD, by, **labels), legend)
        for share, legend in zip(shares, legends, strict=True)
    )
