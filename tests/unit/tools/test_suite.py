"""The lanes of the suite: what is too dear is named, and no failure or skip is lost."""

import json
from pathlib import Path

import pytest
from suite import cli
from suite.lanes import DEEP, GATE, Lane, Part
from suite.reaper import CANNOT_START
from suite.running import Outcome
from suite.yardstick import STANDARD_S, Yardstick

TESTS = Path(__file__).resolve().parents[2]
LANES = {"quick": Lane([Part("lint", ()), Part("unit", ())], budget_s=100)}


@pytest.fixture
def play(monkeypatch, tmp_path):
    """Runs the gate with these outcomes of its parts, on cores that are this much slower."""

    def run(*outcomes: Outcome, inflation: float = 1.0) -> int:
        monkeypatch.setattr(Yardstick, "inflation", inflation)
        monkeypatch.setattr(cli, "run_lanes", lambda _: outcomes)
        monkeypatch.setattr(cli, "GATE", LANES)
        for each in outcomes:
            each.part.log.write_text(f"all that {each.part.name} printed\n")
        return cli.main(["gate"])

    monkeypatch.setattr("suite.lanes.REPORTS", tmp_path)
    return run


def outcome(name: str, cpu_s: float = 1, status: int = 0) -> Outcome:
    return Outcome("quick", Part(name, ("pytest", "--seed=7")), status, cpu_s, elapsed_s=cpu_s)


@pytest.mark.parametrize(
    ("cpu_s", "inflation", "is_named", "status"),
    [
        (59, 1.0, False, 0),
        (61, 1.0, True, 0),
        (109, 1.0, True, 0),
        (111, 1.0, True, 1),
        (111, 1.2, True, 0),  # by other load on the cores
    ],
)
def test_a_lane_above_its_budget_is_named_and_fails_far_above_it(
    play, capsys, cpu_s, inflation, is_named, status
):
    assert play(outcome("lint", 40), outcome("unit", cpu_s), inflation=inflation) == status
    printed = capsys.readouterr()
    assert ("of 100: make its dearest tests cheaper" in printed.out) is is_named
    assert ("lane quick is more than 1.5 times its budget" in printed.err) is bool(status)


@pytest.mark.parametrize(("slower", "inflation"), [(0.5, 1.0), (1.0, 1.0), (1.5, 1.5)])
def test_faster_cores_do_not_make_budgets_smaller(slower, inflation):
    yardstick = Yardstick()
    assert yardstick.inflation == 1.0
    yardstick._taken_s += [slower * STANDARD_S] * 3
    assert yardstick.inflation == pytest.approx(inflation)


def test_every_folder_of_tests_is_in_the_gate_and_in_the_rest():
    folders = {f"tests/{each.parent.name}" for each in TESTS.glob("*/test_*.py")} - {"tests/nova"}
    words = {word for lane in GATE.values() for part in lane.parts for word in part.command}
    assert folders - words == set()
    deep = {word for lane in DEEP.values() for part in lane.parts for word in part.command}
    assert folders - deep == {"tests/unit", "tests/architecture"}  # which have nothing deep


@pytest.mark.parametrize(
    ("status", "how"),
    [(1, "failed"), (-9, "failed"), (CANNOT_START, "could not start, so everything was ended")],
)
def test_the_end_names_what_failed_its_output_and_what_repeats_it(play, capsys, status, how):
    assert play(outcome("lint"), outcome("unit", status=status)) == 1
    printed = capsys.readouterr()
    assert "all that unit printed" in printed.out
    assert "all that lint printed" not in printed.out
    log = Part("unit", ()).log
    assert printed.err == f"unit {how}: {log}\n  pytest --seed=7\n"


def test_the_end_counts_what_was_skipped_by_its_reason(play, capsys):
    for name, skips in {"lint": {"no moon": 1}, "unit": {"no sun": 3, "no moon": 1}}.items():
        Part(name, ()).report.write_text(json.dumps({"costs": {}, "skips": skips}))
    assert play(outcome("lint"), outcome("unit")) == 0
    assert capsys.readouterr().out.endswith("Skipped 3: no sun\nSkipped 2: no moon\n")


def test_an_order_of_tests_can_be_repeated():
    commands = [part.command for lane in (*GATE.values(), *DEEP.values()) for part in lane.parts]
    tests = [each for each in commands if "pytest" in each]
    assert len(tests) > 10
    for word in ("--randomly-seed=", "--hypothesis-seed="):
        assert all(any(each.startswith(word) for each in command) for command in tests)
