"""Installs example packages into a directory of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def install(folder: Path, *names: str) -> Path:
    """Install examples with pip, from copies of their sources; the directory of their modules."""
    sources, target = folder / "sources", folder / "site"
    for name in names:
        shutil.copytree(EXAMPLES / name, sources / name)
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
    quiet = ["--quiet", "--no-index", "--disable-pip-version-check", "--target", str(target)]
    done = subprocess.run(
        [*command, *quiet, *map(str, sorted(sources.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


def registered_in(target: Path, group: str) -> list[EntryPoint]:
    """The entry points of a group in a directory."""
    found = (entry for each in distributions(path=[str(target)]) for entry in each.entry_points)
    return [entry for entry in found if entry.group == group]
