"""The table of the metrics that workers and API processes export."""

from scheduler_worker.events import EVENTS, Count, Duration

_KINDS = {Count: "counter", Duration: "histogram"}


def metrics() -> str:
    """Each with its type, its labels and what it means."""
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for event in EVENTS:
        labels = ", ".join(f"`{label}`" for label in event.labels)
        kind = _KINDS.get(type(event), "gauge")
        lines.append(f"| `{event.metric}` | {kind} | {labels} | {event.text} |")
    return "\n".join(lines)
