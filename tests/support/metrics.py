"""The metrics that workers and API processes export, as the code declares them."""

from scheduler_worker.monitoring.api import ApiMonitor
from scheduler_worker.monitoring.health import Dependencies, Load
from scheduler_worker.monitoring.metrics import Metrics
from scheduler_worker.monitoring.settings import MonitoringSettings


def metrics() -> dict[str, tuple[str, list[str]]]:
    """Name -> type and labels of each metric of ours."""
    api = ApiMonitor(
        Dependencies({"state": lambda: None}), failure=lambda: None, settings=MonitoringSettings()
    )
    return {
        each.name + ("_total" if each.type == "counter" else ""): (each.type, [*each._labelnames])  # type: ignore[attr-defined]
        for each in (*Metrics(Load).collect(), *api.collect())
        if each.name.startswith("scheduler_")
    }


def series() -> dict[str, set[str]]:
    """Name -> labels of each series; a histogram has three."""
    found = {}
    for name, (kind, labels) in metrics().items():
        if kind == "histogram":
            found[f"{name}_bucket"] = {*labels, "le"}
            found[f"{name}_count"] = found[f"{name}_sum"] = set(labels)
        else:
            found[name] = set(labels)
    return found
