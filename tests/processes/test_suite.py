"""How the suite of tests runs: parts that cannot start, orders that fail, missing programs."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from suite import cli
from suite.lanes import Lane, Part
from suite.running import run_lanes

from tests.support import servers
from tests.support.databases import MariaServer

ROOT = Path(__file__).resolve().parents[2]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "suite.reports", "-p", "no:cacheprovider"]
FAILING = """
import pytest

@pytest.mark.parametrize("number", range(6))
def test_numbers(number):
    print(f"ran {number}")
    assert False
"""
MISSING = """
import pytest
from tests.conftest import pytest_runtest_call, pytest_runtest_setup
from tests.support.servers import ServerMissing

@pytest.fixture
def server():
    raise ServerMissing("no moon")

def test_with_a_server(server): ...

def test_with_a_program():
    raise ServerMissing("no moon")
"""


@pytest.fixture
def reports(monkeypatch, tmp_path):
    monkeypatch.setattr("suite.lanes.REPORTS", tmp_path)
    return tmp_path


def python(name: str, text: str) -> Part:
    return Part(name, (sys.executable, "-c", text))


@pytest.mark.parametrize("wrong", [("no-such-program",), (*PYTEST, "--no-such-option")])
def test_a_part_that_cannot_start_ends_the_others(reports, wrong):
    begun = reports / "begun"
    os.mkfifo(begun)
    lanes = {
        "one": Lane([python("waits", f"open({str(begun)!r}).read()"), Part("wrong", wrong)]),
        "two": Lane([
            python("long", f"import signal; open({str(begun)!r}, 'w').close(); signal.pause()"),
            python("later", ""),
        ]),
    }  # fmt: skip
    outcomes = list(run_lanes(lanes))
    assert [(each.part.name, each.has_started) for each in outcomes] == [
        ("waits", True),
        ("wrong", False),
    ]
    assert "KeyboardInterrupt" in (reports / "long.log").read_text()
    assert not (reports / "later.log").exists()


def test_a_suite_that_cannot_keep_output_ends_and_says_so(reports, monkeypatch, capsys):
    (reports / "one.log").mkdir()
    monkeypatch.setattr(cli, "GATE", {"lane": Lane([python("one", ""), python("two", "")])})
    assert cli.main(["gate"]) == 1
    assert "the suite cannot go on: [Errno 21] Is a directory" in capsys.readouterr().err


def run(folder: Path, *command: str, **environment: str) -> list[str]:
    """The lines that pytest prints in the folder."""
    paths = f"{ROOT}:{ROOT / 'tools'}"
    variables = os.environ | {"PYTHONPATH": paths} | environment
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("order", [(), ("-p", "no:randomly")], ids=["random", "usual"])
def test_a_failing_run_ends_with_what_repeats_its_order(tmp_path, order):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_some.py").write_text(FAILING)
    first = run(tmp_path, *PYTEST, *order, "test_some.py")
    again = run(tmp_path, *shlex.split(first[-1].removeprefix("Repeat it: ")))
    orders = [[line for line in each if line.startswith("ran ")] for each in (first, again)]
    assert len(orders[0]) == 6
    assert orders[0] == orders[1]
    assert again[-1] == first[-1]


@pytest.mark.parametrize(("ci", "failures", "skips"), [("true", 2, {}), ("", 0, {"no moon": 2})])
def test_what_is_missing_fails_ci_and_is_a_reported_skip_at_a_desk(tmp_path, ci, failures, skips):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(MISSING.partition("@")[0])
    (tmp_path / "test_some.py").write_text(MISSING)
    printed = run(tmp_path, *PYTEST, "--report=report.json", "test_some.py", CI=ci)
    named = [line for line in printed if line.startswith(("FAILED", "ERROR"))]
    assert len([line for line in named if line.endswith("Failed: no moon")]) == failures
    assert json.loads((tmp_path / "report.json").read_text())["skips"] == skips


def test_no_port_is_given_twice_before_a_server_listens(monkeypatch):
    monkeypatch.setattr(servers, "_PORTS", (20_000, 20_200))
    ports = [servers.free_port() for _ in range(100)]
    assert len(set(ports)) == 100


def test_a_database_leaves_the_temporary_tables_of_others_alone(monkeypatch, tmp_path):
    server = MariaServer(tmp_path / "maria")
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(server, "_run", commands.append)
    server.take_ports()
    server.initialize()
    commands.append(server.command())
    assert [f"--tmpdir={tmp_path}/maria/tmp" in each for each in commands] == [True, True]
