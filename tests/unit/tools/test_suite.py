"""The lanes of the suite: what is too dear is named, and a failure is not lost."""

from pathlib import Path

import pytest
from suite import cli
from suite.lanes import DEEP, GATE, Lane, Part
from suite.running import Outcome

TESTS = Path(__file__).resolve().parents[2]
LANES = {"quick": Lane([Part("lint", ()), Part("unit", ())], budget_s=100)}


def outcome(lane: str, name: str, cpu_s: float, status: int = 0) -> Outcome:
    return Outcome(lane, Part(name, ()), status, cpu_s, elapsed_s=cpu_s)


def test_a_lane_above_its_budget_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("suite.lanes.REPORTS", tmp_path)
    parts = [outcome("quick", "lint", 40), outcome("quick", "unit", 61)]
    for each in parts:
        each.part.log.write_text("")
    monkeypatch.setattr(cli, "run_lanes", lambda _: parts)
    monkeypatch.setattr(cli, "GATE", LANES)
    assert cli.main(["gate"]) == 0
    assert "Lane quick: 101 of 100 CPU s, above its budget" in capsys.readouterr().out


def test_every_folder_of_tests_is_in_the_gate_and_in_the_rest():
    folders = {f"tests/{each.parent.name}" for each in TESTS.glob("*/test_*.py")} - {"tests/nova"}
    words = {word for lane in GATE.values() for part in lane.parts for word in part.command}
    assert folders - words == set()
    deep = {word for lane in DEEP.values() for part in lane.parts for word in part.command}
    assert folders - deep == {"tests/unit", "tests/architecture"}  # which have nothing deep


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (1, 1), (-9, 1)])
def test_the_status_says_whether_a_part_failed(monkeypatch, tmp_path, status, expected):
    monkeypatch.setattr("suite.lanes.REPORTS", tmp_path)
    (tmp_path / "lint.log").write_text("one\ntwo\n")
    monkeypatch.setattr(cli, "run_lanes", lambda _: [outcome("quick", "lint", 1, status)])
    assert cli.main(["gate"]) == expected
