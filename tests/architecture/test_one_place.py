"""A field that is added to a resource in one place is on every edge and in the reference."""

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


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("docs", "scheduler_worker", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("etc", "examples", "tests"):
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


def test_a_field_of_a_resource_is_added_in_one_place(copy: Path) -> None:
    resource = copy / "scheduler_worker/operations/reservations.py"
    place = "    expires_at: datetime | None\n"
    text = resource.read_text()
    assert text.count(place) == 1
    resource.write_text(text.replace(place, f'{place}    shelf: str = "upper"\n'))
    found = json.loads(run(copy, "-c", PROGRAM))
    assert found.pop("OpenAPI")["shelf"] == {"type": "string", "default": "upper"}
    assert {edge: each["shelf"] for edge, each in found.items()} == dict.fromkeys(
        ("RPC", "REST", "command line"), "upper"
    )
    run(copy, "tools/reference")
    assert "`shelf`" in (copy / "docs/rest-v1.md").read_text()
