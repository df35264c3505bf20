"""Benchmarks: beside Nova the same choice; a round of every balance."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = [sys.executable, "tools/bench"]
SMALL = ["--hosts", "60", "--seconds", "0.1"]


@pytest.mark.parametrize("words", [["--peer"], ["decision", "--peer"]])
def test_without_nova_the_message_says_how_to_install_it(words, tmp_path):
    asked = [*BENCH, *words, *SMALL, "--peer-python", str(tmp_path / "python")]
    ran = subprocess.run(asked, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "-m pip install nova==34.0.0" in ran.stderr


def test_every_balance_has_a_round(tmp_path):
    figures = tmp_path / "figures.json"
    asked = [*BENCH, "balances", "--hosts", "60", "--json", str(figures)]
    subprocess.run(asked, check=True, capture_output=True)
    rows = json.loads(figures.read_text())["balances"]
    proposed = {row["balance"]: row["proposals"] for row in rows if row["room"] == "some"}
    assert proposed.pop("None") == 0
    assert len(proposed) == 4
    assert min(proposed.values()) > 0
    assert max(row["proposals"] for row in rows if row["room"] == "none") == 0


@pytest.mark.deep
def test_the_path_of_a_request_is_as_architecture_names_it():
    asked = [*BENCH, "trace", "--list", "--requests", "60"]
    ran = subprocess.run(asked, check=True, capture_output=True, text=True)
    passed = re.findall(r"^scheduler_worker/(\S+)\.py$", ran.stdout, re.MULTILINE)
    text = Path("ARCHITECTURE.md").read_text()
    table = text.partition("these are its files:")[2].partition("\n## ")[0].replace("\\", "")
    named = {
        str(Path(folder, name))
        for folder, names in re.findall(r"`([a-z_/.]+/)` ([\w, ]+)", table)
        for name in names.strip().split(", ")
    }
    assert named == set(passed)


@pytest.mark.deep
def test_nova_chooses_the_same_hosts(nova_installation, tmp_path):
    figures = tmp_path / "figures.json"
    asked = [*BENCH, "--peer", *SMALL, "--instances", "1", "3", "--json", str(figures)]
    asked += ["--peer-python", str(nova_installation.python)]
    subprocess.run(asked, check=True, capture_output=True)
    rows = json.loads(figures.read_text())["decision"]
    assert {row["request"] for row in rows} == {"plain", "constrained", "numa", "inventories"}
    assert [row for row in rows if not row["same_hosts"] or not row["ratio"] > 0] == []
