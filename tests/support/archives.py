"""Builds the archives that are released, from a clean copy of the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_MADE_HERE = shutil.ignore_patterns(
    *(".git", ".venv*", ".run", ".*_cache", ".hypothesis"),
    *("__pycache__", "*.egg-info", "build", "dist"),
)


def checkout(target: Path) -> Path:
    """Copy what is no product of a build or a test; the copy."""
    return Path(shutil.copytree(ROOT, target, ignore=_MADE_HERE))


def build(what: str, source: Path, into: Path) -> Path:
    """Let setuptools build an archive of a source tree, without an index to ask."""
    code = f"from setuptools import build_meta; print(build_meta.build_{what}({str(into)!r}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
    return into / done.stdout.splitlines()[-1]
