"""The table of the metrics that workers and API processes export."""

from __future__ import annotations

from scheduler_worker.events import EVENTS


def metrics() -> str:
    """Each with its type, its labels and what it means."""
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for each in EVENTS:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        lines.append(f"| `scheduler_{each.name}` | {each.kind} | {labels} | {each.text} |")
    return "\n".join(lines)
