"""Budgets of lines: each folder has at most so many, and its budget follows the size down."""

from collections.abc import Iterator, Mapping
from pathlib import Path

SLACK = 0.02
"""How far a budget may be above the size, as a share of the size."""


def folder_lines(root: Path, folders: Mapping[str, int]) -> dict[str, int]:
    """The physical lines of ``*.py`` by folder; a file counts for the innermost of the folders."""
    lines = dict.fromkeys(folders, 0)
    for top in {folder.partition("/")[0] for folder in folders}:
        for path in (root / top).rglob("*.py"):
            parents = [str(parent) for parent in path.relative_to(root).parents]
            innermost = next(folder for folder in parents if folder in lines or folder == top)
            lines[innermost] = lines.get(innermost, 0) + len(path.read_bytes().splitlines())
    return lines


def table(lines: Mapping[str, int], budgets: Mapping[str, int]) -> Iterator[str]:
    width = max(map(len, lines), default=0)
    yield f"{'package':{width}}   lines  budget"
    for folder, count in sorted(lines.items()):
        yield f"{folder:{width}}  {count:6}  {budgets.get(folder, 0):6}"


def problems(lines: Mapping[str, int], budgets: Mapping[str, int]) -> Iterator[str]:
    """A sentence for each folder above its budget, and for each budget too far above its size."""
    for folder, count in sorted(lines.items()):
        budget = budgets.get(folder, 0)
        if count > budget:
            yield f"{folder}: {count} lines, at most {budget}; delete some, or say why it grows"
        elif budget > count * (1 + SLACK):
            yield f"{folder}: {count} lines, budget {budget}; lower it with tools/sizes --lower"


def text(lines: Mapping[str, int], budgets: Mapping[str, int]) -> str:
    """The file of the budgets, each lowered to the size; none is raised."""
    lowered = {folder: min(budget, lines[folder]) for folder, budget in sorted(budgets.items())}
    return "".join(f'"{folder}" = {budget}\n' for folder, budget in lowered.items() if budget)
