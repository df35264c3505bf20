"""Builds the archives that are released, installs example packages, reads what is required."""

import shutil
import subprocess
import sys
from configparser import ConfigParser
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
_MADE_HERE = shutil.ignore_patterns(
    *(".git", ".venv*", ".run", ".*_cache", ".hypothesis"),
    *("__pycache__", "*.egg-info", "build", "dist"),
)


def install(folder: Path, *names: str) -> Path:
    """Install examples with pip, from copies of their sources; the directory of their modules."""
    sources, target = folder / "sources", folder / "site"
    for name in names:
        shutil.copytree(ROOT / "examples" / name, sources / name)
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


def requirements(*extras: str) -> dict[str, Requirement]:
    """What setup.cfg requires, with some extras, by the canonical names of distributions."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options"]["install_requires"].split("\n")
    for extra in extras:
        lines += setup["options.extras_require"][extra].split("\n")
    required = [Requirement(line) for line in lines if line.strip()]
    return {canonicalize_name(each.name): each for each in required}


def checkout(target: Path) -> Path:
    """Copy what is no product of a build or a test; the copy."""
    return Path(shutil.copytree(ROOT, target, ignore=_MADE_HERE))


def build(what: str, source: Path, into: Path) -> Path:
    """Let setuptools build an archive of a source tree, without an index to ask."""
    code = f"from setuptools import build_meta; print(build_meta.build_{what}({str(into)!r}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
    return into / done.stdout.splitlines()[-1]
