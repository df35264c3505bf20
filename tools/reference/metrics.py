"""The table of the metrics that workers and API processes export."""

from __future__ import annotations

from scheduler_worker.monitoring.api import ApiMonitor
from scheduler_worker.monitoring.health import Dependencies, Load
from scheduler_worker.monitoring.metrics import Metrics
from scheduler_worker.monitoring.settings import MonitoringSettings


def metrics() -> str:
    """Each with its type, its labels and what it means."""
    api = ApiMonitor(
        Dependencies({"state": lambda: None}), failure=lambda: None, settings=MonitoringSettings()
    )
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for each in (*Metrics(Load).collect(), *api.collect()):
        if each.name.startswith("scheduler_"):
            name = each.name + ("_total" if each.type == "counter" else "")
            labels = ", ".join(f"`{label}`" for label in each._labelnames)  # type: ignore[attr-defined]
            lines.append(f"| `{name}` | {each.type} | {labels} | {each.documentation} |")
    return "\n".join(lines)
