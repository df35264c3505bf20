"""Runs the commands of the README on a fresh checkout."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A copy of the files that git tracks or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.deep
@pytest.mark.timeout(3600)  # it installs, and only a hang takes so long
def test_make_demo(checkout):
    done = subprocess.run(
        ["make", "demo"], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"placed [\d,]+ of [\d,]+", done.stdout), done.stdout
    assert "decisions/s" in done.stdout
    assert "p99" in done.stdout
    assert "Filter" in done.stdout, "the explanation names a filter"


def test_ci_calls_the_readmes_test_command():
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "$ make test" in (ROOT / "README.md").read_text()
