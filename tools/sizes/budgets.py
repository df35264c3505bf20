"""Budgets of lines: each top folder has a base, each feature adds what it says, and a little slack.

A change that is no feature stays within the slack; deleting gives it back. A feature adds a section
of its own to ``budgets.toml`` with the lines that its commit states.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

SLACK = 0.02
"""Of base and features together."""
Figures = Mapping[str, Mapping[str, int]]
"""``base``, and each feature by name: top folder -> lines."""


def folder_lines(root: Path, folders: Mapping[str, int]) -> dict[str, int]:
    """The physical lines of ``*.py`` below each folder."""
    return {
        folder: sum(len(path.read_bytes().splitlines()) for path in (root / folder).rglob("*.py"))
        for folder in folders
    }


def stated(folder: str, figures: Figures) -> int:
    """Base and features."""
    return sum(each.get(folder, 0) for each in figures.values())


def table(lines: Mapping[str, int], figures: Figures) -> Iterator[str]:
    width = max(map(len, lines))
    yield f"{'folder':{width}}   lines  stated   spare"
    for folder, count in sorted(lines.items()):
        sum_of = stated(folder, figures)
        yield f"{folder:{width}}  {count:6}  {sum_of:6}  {int(sum_of * (1 + SLACK)) - count:6}"


def problems(lines: Mapping[str, int], figures: Figures) -> Iterator[str]:
    """A sentence for each folder above what was stated and the slack."""
    for folder, count in sorted(lines.items()):
        most = int(stated(folder, figures) * (1 + SLACK))
        if count > most:
            yield (
                f"{folder}: {count} lines, at most {most}; delete some, or state a feature's lines "
                "in tools/sizes/budgets.toml"
            )
