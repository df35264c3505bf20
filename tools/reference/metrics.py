"""The table of the metrics that workers and API processes export."""

from scheduler_worker.events import EVENTS


def metrics() -> str:
    """Each with its type, its labels and what it means."""
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for event in EVENTS:
        labels = ", ".join(f"`{label}`" for label in event.labels)
        lines.append(f"| `scheduler_{event.name}` | {event.kind} | {labels} | {event.text} |")
    return "\n".join(lines)
