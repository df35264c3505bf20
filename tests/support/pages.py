"""The commands that pages of the documentation print, run in a shell as they stand there."""

import re
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.patience import PROCESS_S


class Step(NamedTuple):
    """A command of a page, with what the page says that it prints."""

    command: str
    printed: str


def steps(page: str) -> list[Step]:
    """The commands of the ``console`` blocks of a page.

    A command goes on in the next line after a backslash, and to the end of a here-document.
    """
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [step for block in blocks for step in _steps(block.splitlines())]


def _steps(lines: list[str]) -> Iterator[Step]:
    rest = iter(lines)
    command, printed = "", []
    for line in rest:
        if not line.startswith("$ "):
            printed.append(f"{line}\n")
            continue
        if command:
            yield Step(command, "".join(printed))
        command, printed = line.removeprefix("$ "), []
        while command.endswith("\\"):
            command += "\n" + next(rest)
        if here := re.search(r"<<'(\w+)'", command):
            for each in rest:
                command += "\n" + each
                if each == here.group(1):
                    break
    if command:
        yield Step(command, "".join(printed))


def missing(expected: str, printed: str) -> str | None:
    """The first expected line that is not printed after those before it; None: all are there.

    ``...`` in a line is any text. A line of dots alone is any number of lines.
    """
    lines = iter(printed.splitlines())
    for line in expected.splitlines():
        pattern = re.compile(".*".join(map(re.escape, line.rstrip().split("..."))))
        if line != "..." and not any(pattern.fullmatch(each.rstrip()) for each in lines):
            return line
    return None


class Shell:
    """One bash for all commands of a page."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def close(self) -> None:
        self._bash.communicate(timeout=PROCESS_S)

    def run(self, command: str) -> tuple[str, int]:
        """What a command prints, and its status."""
        assert self._bash.stdin
        assert self._bash.stdout
        marker = uuid.uuid4().hex
        self._bash.stdin.write(f"{command}\nstatus=$?; echo; echo {marker} $status\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        for line in self._bash.stdout:
            if line.startswith(marker):
                return "".join(lines).removesuffix("\n"), int(line.split()[1])
            lines.append(line)
        raise AssertionError(f"bash ended during {command!r}: {''.join(lines)}")

    def follow(self, page: str) -> None:
        """Run all commands of a page; each succeeds and prints what the page says."""
        found = steps(page)
        assert found
        for command, expected in found:
            printed, status = self.run(command)
            assert status == 0, f"$ {command}\n{printed}"
            line = missing(expected, printed)
            assert line is None, f"$ {command}\nprinted, without {line!r}:\n{printed}"


def section(page: str, title: str) -> str:
    """The part of a page below a heading, without the sections below that."""
    _, heading, rest = page.partition(f"# {title}\n")
    assert heading, f"there is no section {title!r}"
    return rest.partition("\n#")[0]
