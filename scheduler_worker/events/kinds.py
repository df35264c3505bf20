"""What an event is declared with: its kind, its trouble, its alerts, its curves on the board."""

from collections.abc import Mapping
from typing import Literal

import msgspec

OTHER = "other"
"""The label of everything beyond the limit of labels."""
MAX_CLUSTERS = 200
_LIMITS = (1, MAX_CLUSTERS, 400, 1000)
SERVICE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

Row = Literal[
    "Decisions",
    "Locks of clusters",
    "Queues",
    "Reservations",
    "Errors and outages",
    "Tuning",
    "Balancing",
    "External units",
    "Workers",
    "REST API",
    "Claims in Placement",
    "Feed from Nova's databases",
    "Records of decisions",
]
"""A row of the board; the rows are in this order."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of ``etc/prometheus/alerts.yaml``, which a section of the runbook explains."""

    name: str
    expression: str
    """PromQL, see ``promql``; the alert belongs to the event whose metric it names."""
    lasts: str = ""
    """For how long the expression has to hold; empty: no time."""
    severity: Literal["critical", "warning"] = "warning"
    summary: str
    """A template of Prometheus."""
    text: str


class Trouble(msgspec.Struct, frozen=True):
    """What is wrong when an event happens: how reports call it, and how it is fixed."""

    text: str
    alert: Alert | None = None
    """The alert about it, of this event or of another one."""
    fix: str = ""
    """Empty: it is reported, and nothing is said of it."""
    is_failure: bool = False
    """Whether nothing works meanwhile; else it is a warning."""


class Panel(msgspec.Struct, frozen=True):
    """A panel of the board. Panels of a row are in the order of their first events."""

    row: Row
    title: str
    text: str
    unit: str
    """Grafana's name of it: ``s``, ``cps``, ``reqps``, ..."""
    most: int | None = None
    """The end of the scale; None: the largest value."""


class Curve(msgspec.Struct, frozen=True):
    """What a panel shows of an event."""

    panel: Panel
    expression: str
    """PromQL, see ``promql``."""
    legend: str
    """A template of Grafana."""


class Event(msgspec.Struct, frozen=True, eq=False):
    """Something that happens, with its metric ``scheduler_<name>``."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    troubles: Mapping[str, Trouble] = {}
    """By the last label, or by ``""`` for every other one; nothing is wrong with the rest."""
    alerts: tuple[Alert, ...] = ()
    curves: tuple[Curve, ...] = ()

    @property
    def metric(self) -> str:
        return f"scheduler_{self.name}"

    @property
    def limit(self) -> int:
        """How many combinations of labels are told apart."""
        return _LIMITS[len(self.labels)]

    def trouble(self, labels: tuple[str, ...]) -> Trouble | None:
        """What is wrong when it happens with these labels."""
        trouble = self.troubles.get(labels[-1]) if labels else None
        return trouble or self.troubles.get("")


class Count(Event, frozen=True, eq=False):
    """A counter, whose name ends in ``_total``."""


class Duration(Event, frozen=True, eq=False):
    """A histogram of seconds, whose name ends in ``_seconds``."""

    bounds_s: tuple[float, ...] = SERVICE_S


class Level(Event, frozen=True, eq=False):
    """A gauge that is set where its value changes."""


class Gauge(Event, frozen=True, eq=False):
    """A gauge that is read at each scrape."""
