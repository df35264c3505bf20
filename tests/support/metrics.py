"""The series that workers and API processes export."""

from scheduler_worker.events import EVENTS


def series() -> dict[str, set[str]]:
    """Name -> labels of each series; a histogram has three."""
    found = {}
    for event in EVENTS:
        name, labels = f"scheduler_{event.name}", event.labels
        if event.kind == "histogram":
            found[f"{name}_bucket"] = {*labels, "le"}
            found[f"{name}_count"] = found[f"{name}_sum"] = set(labels)
        else:
            found[name] = set(labels)
    return found
