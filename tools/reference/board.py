"""The board for Grafana, from the curves of the events."""

import json
import typing
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from scheduler_worker.events import EVENTS, LOCK_WAIT, Panel, Row
from scheduler_worker.events.promql import resolved

PATH = Path("etc/grafana/scheduler_worker.json")
WIDTH, HEIGHT = 12, 8
"""Of a panel, two of which fill a row of Grafana's."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def board() -> dict[Path, str]:
    """The file of the board."""
    document = {
        "uid": "scheduler-worker",
        "title": "VM scheduling workers",
        "description": "Decisions, locks, queues, reservations, errors and tuning of "
        "scheduler_worker; docs/monitoring.md explains each metric.",
        "tags": ["scheduler_worker"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }
    return {PATH: json.dumps(document, indent=2) + "\n"}


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }
    yield {
        "name": "cluster",
        "label": "Cluster",
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values({LOCK_WAIT.metric}_count, cluster)",
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
    }
    yield {"name": "topic", "label": "[rpc] topic", "type": "textbox", "query": "scheduler"}


def _panels() -> Iterator[dict[str, Any]]:
    """All rows with their panels, from the top to the bottom."""
    shown: dict[Panel, list[tuple[str, str]]] = {}
    for event in EVENTS:
        for curve in event.curves:
            expression = resolved(curve.expression, event)
            shown.setdefault(curve.panel, []).append((expression, curve.legend))
    ids, y = count(1), 0
    for row in typing.get_args(Row):
        yield {"id": next(ids), **_row(row), "gridPos": _place(0, y, 2 * WIDTH, 1)}
        y += 1
        of_row = [panel for panel in shown if panel.row == row]
        for number, panel in enumerate(of_row):
            down, right = divmod(number, 2)
            place = _place(right * WIDTH, y + down * HEIGHT, WIDTH, HEIGHT)
            yield {"id": next(ids), **_panel(panel, shown[panel]), "gridPos": place}
        y += -(-len(of_row) // 2) * HEIGHT


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _row(title: str) -> dict[str, Any]:
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def _panel(panel: Panel, curves: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                **({} if panel.most is None else {"max": panel.most}),
                "custom": {"fillOpacity": 10, "showPoints": "never"},
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": letter, "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for letter, (expression, legend) in zip(ascii_uppercase, curves, strict=False)
        ],
    }
