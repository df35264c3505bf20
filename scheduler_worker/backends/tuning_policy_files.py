"""Reads the operator's tuning files: policies, and the clusters file."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from scheduler_worker.model.policies import TuningProblem, TuningText
from scheduler_worker.ports import TuningPolicyTexts

_MOST_BYTES = 1024 * 1024
"""The rest of a file is not read; the loader refuses what is larger than a policy may be."""


class TuningPolicyFiles:
    """Policies from files, and from each ``*.yaml`` of directories, under the file's name."""

    def __init__(self, paths: Iterable[str] = (), clusters: str | None = None) -> None:
        self._paths = [Path(path) for path in paths]
        self._clusters = None if clusters is None else Path(clusters)

    def read(self) -> TuningPolicyTexts:
        """Return the current contents; files that cannot be read are among the problems."""
        problems: list[TuningProblem] = []
        policies: dict[str, TuningText] = {}
        for path in self._files(problems):
            policy = _text(path, problems)
            if policy is None:
                continue
            if policy.name in policies:
                first = policies[policy.name].file
                twice = f"{first} is already a policy {policy.name!r}; rename one"
                problems.append(TuningProblem(twice, str(path)))
            else:
                policies[policy.name] = policy
        clusters = None if self._clusters is None else _text(self._clusters, problems)
        texts = tuple(policies.values())
        return TuningPolicyTexts(policies=texts, clusters=clusters, problems=tuple(problems))

    def _files(self, problems: list[TuningProblem]) -> Iterator[Path]:
        for path in self._paths:
            try:
                if path.is_dir():
                    yield from sorted(each for each in path.iterdir() if each.suffix == ".yaml")
                else:
                    yield path
            except OSError as error:
                problems.append(TuningProblem(str(error.strerror), str(path)))


def _text(path: Path, problems: list[TuningProblem]) -> TuningText | None:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode()
    except OSError as error:
        problems.append(TuningProblem(str(error.strerror), str(path)))
    except UnicodeDecodeError as error:
        problems.append(TuningProblem(f"is not UTF-8 text: {error}", str(path)))
    else:
        return TuningText(path.stem, text, str(path))
    return None
