"""The tutorial, word for word: its commands run in order, and print what it promises."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from nova_cloud.installation import PROJECT, Installation

from tests.conftest import needing_servers
from tests.support.servers import ServerMissing

PAGE = PROJECT / "docs" / "nova-tutorial.md"
CLOUD = PROJECT / ".run" / "nova-cloud"
COMMAND_S = 900
"""The longest that a command may take: the first one makes databases, on a machine that is busy."""


def steps(text: str) -> list[tuple[str, list[str]]]:
    """Each command of the page, and the lines that it is promised to print."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            else:
                found[-1][1].append(line)
    return found


def missing(promised: list[str], printed: list[str]) -> str | None:
    """The first promised line that is not printed after those before it; ``...`` is any text.

    A line of dots alone stands for any number of lines, as do all between two promised lines.
    """
    left = iter(printed)
    for line in promised:
        pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
        if line != "..." and not any(pattern.fullmatch(each) for each in left):
            return line
    return None


@pytest.fixture
def no_cloud(nova_installation: Installation) -> Iterator[None]:
    """Nothing of the tutorial's cloud is there, before and after."""
    with needing_servers():
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
    for command, promised in found:
        done = run(command)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        line = missing(promised, done.stdout.splitlines())
        assert line is None, f"$ {command}\nprinted, without {line!r}:\n{done.stdout}{done.stderr}"


def test_a_promise_that_is_not_kept_is_noticed():
    assert missing(["a ... c", "...", "d"], ["a b c", "x", "d"]) is None
    assert missing(["a ... c"], ["a b d"]) == "a ... c"
    assert missing(["d", "a"], ["a", "d"]) == "a"
    assert steps("```console\n$ one\nx\n$ two\n```\n```sh\n$ no\n```") == [
        ("one", ["x"]), ("two", []),
    ]  # fmt: skip
