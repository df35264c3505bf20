"""What is added in one place is everywhere: a field, a fact of hosts, an event with its alert."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import contextlib, io, json
from scheduler_worker.operations.reservations import get_reservation
from tests.support.edges import Edges
from tests.support.rest import Rest

rest = Rest("east")
rest.world.place("one")
edges = Edges(rest)
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    edges.command("reservation", "show", "one", "-f", "json")
described = json.loads(rest.request("GET", "/v1/openapi.json").data)
print(json.dumps({
    "RPC": edges.rpc(get_reservation, {"id": "one"}),
    "REST": edges.http(get_reservation, {"id": "one"}).json,
    "OpenAPI": described["components"]["schemas"]["ReservationView"]["properties"],
    "command line": json.loads(printed.getvalue()),
}))
"""

HAPPENS = """
import json
from scheduler_worker import events
from scheduler_worker.model.worker_reports import WorkerReport
from scheduler_worker.monitoring.health import Load
from scheduler_worker.monitoring.metrics import Metrics
from scheduler_worker.service.health import rules

worker = Metrics(Load)
worker.count(events.SHELVES, "upper")
[finding] = rules._troubles({"one": WorkerReport(lately=worker.lately())})
print(json.dumps({
    "metrics": 'scheduler_shelves_total{shelf="upper"} 1.0' in worker.exposition()[1].decode(),
    "Health": [finding.check, finding.message, finding.fix],
}))
"""


EVENT = """
_FALL: Final = Alert(name="SchedulerShelvesFall", expression=f"{rate('5m', 'shelf')} > 0",
    summary="{{ $labels.shelf }} falls", text="It was loose.")
SHELVES: Final = Count("shelves_total", "shelves that fell", ("shelf",),
    troubles={"": Trouble("shelves fell", _FALL, "Put them up")}, alerts=(_FALL,),
    curves=(per_second(Panel("Workers", "Shelves", "All.", "cps"), "{{shelf}}", "shelf"),))
"""
FACT = """
    shelf: Annotated[int, Fact("capacity", Size, column="shelves", attribute=OWN, text="floor")] = 0
"""
REPORTED = """
import json
import msgspec
from scheduler_worker.model.host_reports import HostReport, fields_of, source_of
from scheduler_worker.scheduling.host_attributes import attribute
from tests.support.hosts import host_record, host_table

reported = fields_of(msgspec.convert({"host": "h", "shelf": 3}, HostReport))
table = host_table([host_record(**reported)])
print(json.dumps({
    "report": reported,
    "group": source_of({"shelf": 3}),
    "record": table.records[0].shelf,
    "column": table.shelves.tolist(),
    "attribute": attribute(table.state(0), "shelf"),
}))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("docs", "scheduler_worker", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("grafana", "prometheus"):
        shutil.copytree(ROOT / "etc" / name, tmp_path / "etc" / name)
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def run(copy: Path, *words: str) -> str:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        check=True,
    ).stdout


def insert(module: Path, before: str, line: str) -> None:
    text = module.read_text()
    assert text.count(before) == 1
    module.write_text(text.replace(before, f"{line}\n{before}"))


def test_a_field_of_a_resource_is_added_in_one_place(copy: Path) -> None:
    resource = copy / "scheduler_worker/operations/reservations.py"
    insert(resource, "    vcpus: int\n", '    shelf: str = "upper"')
    found = json.loads(run(copy, "-c", PROGRAM))
    assert found.pop("OpenAPI")["shelf"] == {"type": "string", "default": "upper"}
    assert {edge: each["shelf"] for edge, each in found.items()} == dict.fromkeys(
        ("RPC", "REST", "command line"), "upper"
    )
    run(copy, "tools/reference")
    assert "`shelf`" in (copy / "docs/rest-v1.md").read_text()


def test_a_fact_of_hosts_is_added_in_one_place(copy: Path) -> None:
    insert(copy / "scheduler_worker/model/host_records.py", "    cell_uuid: Annotated[", FACT)
    assert json.loads(run(copy, "-c", REPORTED)) == {
        "report": {"host": "h", "shelf": 3},
        "group": "compute",
        "record": 3,
        "column": [3],
        "attribute": 3,
    }
    run(copy, "tools/reference")
    assert "| `shelf` | floor |" in (copy / "docs/rpc.md").read_text()


def test_an_event_is_added_in_one_place(copy: Path) -> None:
    insert(copy / "scheduler_worker/events/bus.py", "STATE_ERRORS: Final", EVENT)
    found = json.loads(run(copy, "-c", HAPPENS))
    assert found["metrics"]
    assert found["Health"] == [
        "worker one",
        "shelves fell: 1 in the last five minutes",
        "Put them up (docs/runbook.md, SchedulerShelvesFall)",
    ]
    runbook = copy / "docs/runbook.md"
    runbook.write_text(f"{runbook.read_text()}\n## SchedulerShelvesFall\n")
    run(copy, "tools/reference")
    row = "| `scheduler_shelves_total` | counter | `shelf` | shelves that fell |"
    assert row in (copy / "docs/monitoring.md").read_text()
    rate = "sum by (shelf) (rate(scheduler_shelves_total[{}]))"
    assert f"{rate.format('5m')} > 0" in (copy / "etc/prometheus/alerts.yaml").read_text()
    board = (copy / "etc/grafana/scheduler_worker.json").read_text()
    assert rate.format("$__rate_interval") in board


def test_an_alert_needs_its_section_of_the_runbook(copy: Path) -> None:
    insert(copy / "scheduler_worker/events/bus.py", "STATE_ERRORS: Final", EVENT)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(copy, "tools/reference")
    assert "SchedulerShelvesFall" in failed.value.stderr


def test_a_remedy_is_changed_in_one_place(copy: Path) -> None:
    remedies = copy / "scheduler_worker/remedies.py"
    remedies.write_text(remedies.read_text() + '\nSTATE = "Put the shelf up"\n')
    (copy / "w.conf").write_text(
        "[DEFAULT]\ntransport_url = rabbit://127.0.0.1:1/\n[state]\nurl = redis://127.0.0.1:1/\n"
    )
    doctor = (
        "from scheduler_worker.cli.ctl import main; main(['doctor', '--config-file', 'w.conf'])"
    )
    assert ". Put the shelf up" in run(copy, "-c", doctor)
    health = HAPPENS.replace('SHELVES, "upper"', "STATE_ERRORS")
    assert "Put the shelf up (" in json.loads(run(copy, "-c", health))["Health"][2]
