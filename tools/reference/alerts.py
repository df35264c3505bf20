"""``etc/prometheus/alerts.yaml``, from the alerts of the events."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from scheduler_worker.events import EVENTS, WORKER_DOWN, Alert, Event
from scheduler_worker.events.promql import resolved

PATH = Path("etc/prometheus/alerts.yaml")
RUNBOOK = Path(__file__).resolve().parents[2] / "docs/runbook.md"
HEAD = """\
# Alerts of scheduler_worker, written by `make reference` from scheduler_worker/events;
# docs/runbook.md says what each means and how to fix it. Workers are scraped as job
# "scheduler_worker". A counter that is not there yet does not increase when it appears with its
# first event, so the alerts on rare events also ask whether the counter is new.
"""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes expressions of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else '"' if "{{" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def rules() -> dict[Path, str]:
    """The file of alerts, in the order of the sections of the runbook.

    Raises ValueError: a section is missing, or there is one about no alert.
    """
    found = {
        alert.name: _rule(alert, event) for alert, event in ((WORKER_DOWN, None), *_of_events())
    }
    sections = re.findall(r"^## (Scheduler\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    if wrong := found.keys() ^ set(sections):
        raise ValueError(f"{RUNBOOK.name}: a section is missing, or has no alert: {sorted(wrong)}")
    ordered = [found[name] for name in sections]
    document = {"groups": [{"name": "scheduler_worker", "rules": ordered}]}
    return {PATH: HEAD + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000)}


def _of_events() -> Iterator[tuple[Alert, Event]]:
    return ((alert, event) for event in EVENTS for alert in event.alerts)


def _rule(alert: Alert, event: Event | None) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": resolved(alert.expression, event) if event else alert.expression,
        **({"for": alert.lasts} if alert.lasts else {}),
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.text,
            "runbook": f"docs/runbook.md#{alert.name.lower()}",
        },
    }
