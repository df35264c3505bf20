"""The tutorial, word for word: its commands run in order, and print what it says."""

import subprocess
from collections.abc import Iterator

import pytest
from nova_cloud.installation import PROJECT, Installation

from tests.support.pages import missing, steps
from tests.support.servers import ServerMissing

PAGE = PROJECT / "docs" / "nova-tutorial.md"
CLOUD = PROJECT / ".run" / "nova-cloud"
COMMAND_S = 900
"""The longest that a command may take: the first one makes databases, on a machine that is busy."""


@pytest.fixture
def no_cloud(nova_installation: Installation) -> Iterator[None]:
    """Nothing of the tutorial's cloud is there, before and after."""
    if (CLOUD / "fleet.json").exists():
        raise ServerMissing(f"A cloud is in {CLOUD}; end it: tools/nova_cloud down --wipe")
    yield
    if (CLOUD / "fleet.json").exists():
        run(".venv/bin/python tools/nova_cloud down --wipe")


def run(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], cwd=PROJECT, capture_output=True, text=True, timeout=COMMAND_S,
        check=False,
    )  # fmt: skip


@pytest.mark.few
@pytest.mark.usefixtures("no_cloud")
def test_the_tutorial_does_what_it_says():
    found = steps(PAGE.read_text())
    assert len(found) >= 20
    for command, expected in found:
        done = run(command)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        line = missing(expected, done.stdout)
        assert line is None, f"$ {command}\nprinted, without {line!r}:\n{done.stdout}{done.stderr}"
