"""The commands of the first pages run as they are printed, and print what the pages say."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import Shell, section

ROOT = Path(__file__).resolve().parents[2]


def patient(page: str) -> str:
    """The page, with conditions in place of times, which are too short on a busy machine."""
    text = (ROOT / page).read_text()
    until = r"$ for _ in $(seq 200); do {} && break; done;".format
    serves = until("scheduler-workerctl worker list 2>&1 | grep -q serving")
    recorded = until(r"\1 > /dev/null 2>&1")
    return re.sub(r"\$ sleep 1; (.*)", rf"{recorded} \1", text.replace("$ sleep 5;", serves))


README, FIRST = patient("README.md"), patient("docs/first-placement.md")
POLICIES = (ROOT / "docs" / "cluster-policies.md").read_text()
TUNING = (ROOT / "docs" / "tuning.md").read_text()
SECTIONS = re.findall(r"^## (\d\. .*)$", FIRST, re.MULTILINE)


@pytest.fixture
def checkout(tmp_path) -> Path:
    """Where the commands run: a checkout with what they need, and a ``.run`` of its own."""
    for name in ("examples", "tests", "etc"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "dev-services", tmp_path / "tools")
    return tmp_path


@pytest.fixture
def shell(checkout):
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    with contextlib.closing(Shell(checkout, environment)) as found:
        yield found
        found.run("kill $(jobs -p)")
    subprocess.run([sys.executable, "tools/dev-services", "stop"], cwd=checkout, check=False)


def test_the_first_placement_and_a_policy_that_packs(shell, redis_server, rabbit_server):
    assert len(SECTIONS) > 3
    for title in SECTIONS[:-1]:
        shell.follow(section(FIRST, title).replace("$ make venv\n", ""))
    shell.follow(section(POLICIES, "Pack or spread"))
    shell.follow(section(FIRST, SECTIONS[-1]))


def test_a_tuning_policy_from_scratch(shell):
    shell.run(f"export PATH={Path(sys.executable).parent}:$PATH")
    shell.follow(section(TUNING, "A policy from scratch"))


def test_the_placement_of_the_readme(shell, redis_server, rabbit_server):
    shell.follow(section(README, "First placement").replace("$ make venv\n", ""))
