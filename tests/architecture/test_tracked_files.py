"""What git tracks is the project's own: nothing that a tool made, no link to another place."""

import subprocess
from pathlib import Path

from tests.support.servers import ServerMissing

ROOT = Path(__file__).resolve().parents[2]
LINK = "120000"
"""The mode by which git's index marks a symbolic link."""


def listed(*arguments: str) -> list[str]:
    if not (ROOT / ".git").exists():
        raise ServerMissing("not a git checkout")
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_no_tracked_file_is_one_that_git_ignores():
    assert listed("--cached", "--ignored", "--exclude-standard") == []


def test_no_link_is_tracked():
    # A link to an absolute path works where it was made and breaks in every other checkout.
    assert [entry for entry in listed("--stage") if entry.startswith(LINK)] == []
