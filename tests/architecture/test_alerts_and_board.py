"""The alerts and the board name metrics and labels that exist, and each alert has its runbook."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from scheduler_worker import errors
from scheduler_worker.events import EVENTS, Duration
from tests.support.servers import program

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "etc/prometheus/alerts.yaml"
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
BOARD = json.loads((ROOT / "etc/grafana/scheduler_worker.json").read_text())
PANELS = [each for each in BOARD["panels"] if each["type"] != "row"]
OF_OTHERS = {
    "up": set(),
    "process_resident_memory_bytes": set(),
    "rabbitmq_detailed_queue_messages_ready": {"queue", "vhost"},
}
OF_THE_SCRAPE = {"instance", "job"}
HISTOGRAM = {"bucket": {"le"}, "count": set(), "sum": set()}
"""The series of a histogram, and their own labels."""
SERIES: dict[str, set[str]] = OF_OTHERS | {
    f"{event.metric}{f'_{part}' if part else ''}": {*event.labels, *labels}
    for event in EVENTS
    for part, labels in (HISTOGRAM if isinstance(event, Duration) else {"": set()}).items()
}


def problems(expression: str) -> list[str]:
    """What is wrong with an expression of PromQL: syntax, metrics, labels, results."""
    try:
        parsed = promql.parse(re.sub(r"\$__(rate_)?interval", "5m", expression))
    except ValueError as error:
        return [str(error)]
    selectors = list(found(parsed, promql.VectorSelector))
    return [
        *(problem for each in selectors for problem in of_selector(each)),
        *(problem for each in found(parsed, promql.AggregateExpr) for problem in of_sum(each)),
    ]


def found(expression: Any, kind: type) -> Iterator[Any]:
    seen: list[Any] = []
    promql.walk(expression, seen.append)
    yield from (each for each in seen if isinstance(each, kind))


def of_selector(selector: Any) -> Iterator[str]:
    if selector.name not in SERIES:
        yield f"no metric {selector.name}"
        return
    for each in selector.matchers.matchers:
        if each.name not in SERIES[selector.name] | OF_THE_SCRAPE:
            yield f"{selector.name} has no label {each.name}"
        is_known = each.value in {"ok", "dropped"} or hasattr(errors, each.value)
        if each.name == "result" and not is_known:
            yield f"no result {each.value}"


def of_sum(aggregate: Any) -> Iterator[str]:
    """By labels that nothing in the aggregate has."""
    known = set(OF_THE_SCRAPE)
    for each in found(aggregate.expr, promql.VectorSelector):
        known |= SERIES.get(each.name, set())
    for label in set(aggregate.modifier.labels if aggregate.modifier else ()) - known:
        yield f"nothing in it has a label {label}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_can_fire(rule):
    assert problems(rule["expr"]) == []
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    parsed = promql.parse(rule["expr"])
    kept = [set(each.modifier.labels if each.modifier else ())
            for each in found(parsed, promql.AggregateExpr)]  # fmt: skip
    assert all(named <= each for each in kept), "a label that is summed away"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_shows_something(panel):
    assert panel["targets"]
    for target in panel["targets"]:
        assert problems(target["expr"]) == []
        legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        outermost = next(found(promql.parse(target["expr"].replace("$__rate_interval", "5m")),
                               promql.AggregateExpr), None)  # fmt: skip
        if outermost is not None:
            assert legend <= set(outermost.modifier.labels if outermost.modifier else ())
    assert panel["description"]


def test_every_metric_is_on_the_board():
    text = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    assert [each.name for each in EVENTS if each.metric not in text] == []


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    assert len({each["id"] for each in BOARD["panels"]}) == len(BOARD["panels"])
    places = [each["gridPos"] for each in BOARD["panels"]]
    cells = [(x, y) for place in places for x in range(place["x"], place["x"] + place["w"])
             for y in range(place["y"], place["y"] + place["h"])]  # fmt: skip
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_variables_of_the_board_are_declared_and_their_queries_exist():
    declared = {each["name"]: each for each in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(BOARD["panels"])))
    assert used == declared.keys()
    asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", declared["cluster"]["query"])
    assert asked.group(2) in SERIES[asked.group(1)]


def test_the_section_of_an_alert_says_what_it_means_and_what_to_do():
    text = (ROOT / "docs/runbook.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))
    for name in (rule["alert"] for rule in RULES):
        for part in ("Means", "Check", "Fix"):
            assert re.search(rf"^\*\*{part}\.\*\* \S", sections[name], re.MULTILINE), (name, part)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("sum(rate(scheduler_no_such_total[5m]))", "no metric scheduler_no_such_total"),
        ("scheduler_inflight{cluster='a'} > 0", "scheduler_inflight has no label cluster"),
        ('scheduler_requests_total{result="Oops"}', "no result Oops"),
        ("sum by (le) (scheduler_inflight)", "nothing in it has a label le"),
    ],
)
def test_a_wrong_expression_is_found(expression, problem):
    assert problems(expression) == [problem]
    assert problems(f"sum by (x ({expression})") != []


def test_promtool_accepts_the_alerts():
    command = [program("promtool"), "check", "rules", str(ALERTS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
