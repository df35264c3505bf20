"""The files that say how clusters are tuned: policies, and where they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from scheduler_worker.ports import PolicyText, PolicyTexts

_MOST_BYTES = 1024 * 1024
"""More is not read; what is larger than a policy may be is refused by whoever reads the text."""


class Files:
    """Policies from files, and from each ``*.yaml`` of directories; named as the file is."""

    def __init__(self, paths: Iterable[str] = (), clusters: str | None = None) -> None:
        self._paths = [Path(each) for each in paths]
        self._clusters = None if clusters is None else Path(clusters)

    def read(self) -> PolicyTexts:
        """The files as they are now; whatever cannot be read is among the problems."""
        problems: list[str] = []
        found: dict[str, PolicyText] = {}
        for path in self._files(problems):
            policy = _text(path, problems)
            if policy is None:
                continue
            if policy.name in found:
                first = found[policy.name].place
                problems.append(f"{path}: {first} is a policy {policy.name!r} already; rename one")
            else:
                found[policy.name] = policy
        clusters = None if self._clusters is None else _text(self._clusters, problems)
        return PolicyTexts(
            policies=tuple(found.values()), clusters=clusters, problems=tuple(problems)
        )

    def _files(self, problems: list[str]) -> Iterator[Path]:
        for path in self._paths:
            try:
                yield from _policies_of(path) if path.is_dir() else [path]
            except OSError as error:
                problems.append(f"{path}: {error.strerror}")


def _text(path: Path, problems: list[str]) -> PolicyText | None:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode()
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
    except UnicodeDecodeError as error:
        problems.append(f"{path}: is no UTF-8 text: {error}")
    else:
        return PolicyText(path.stem, str(path), text)
    return None


def _policies_of(directory: Path) -> list[Path]:
    return sorted(each for each in directory.iterdir() if each.suffix == ".yaml")
