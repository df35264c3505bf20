"""The issues of a policy: all of them at once, each with its place."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

from scheduler_worker.errors import TuningPolicyError
from scheduler_worker.model.issues import Issue, Kind, Place

MOST_ISSUES = 1000
"""Loading stops there."""
_MOST_COMPARED = 100


class Issues:
    """Collects issues, so that reading goes on after each."""

    def __init__(self) -> None:
        self.found: list[Issue] = []

    def add(self, kind: Kind, place: Place, path: str, message: str) -> None:
        """Add an issue. Raises TuningPolicyError when there are too many to continue."""
        self.found.append(Issue(kind, place, path, message))
        if len(self.found) >= MOST_ISSUES:
            raise TuningPolicyError(self.found)

    def raise_if_any(self) -> None:
        """Raise TuningPolicyError if there is any issue."""
        if self.found:
            raise TuningPolicyError(sorted(self.found, key=lambda issue: issue.place))


def closest(name: str, known: Iterable[str]) -> str:
    """Return the most similar name, or ""; of many names only the first 100 are compared."""
    return "".join(get_close_matches(name[:60], islice(known, _MOST_COMPARED), 1))


def hinted(name: str) -> str:
    """Return the end of a message that suggests a name; "" for ""."""
    return f"; did you mean {name[:60]}?" if name else ""


def below(path: str, name: str) -> str:
    """Return the path of an entry, shortened to one line."""
    shown = name[:60] if name.isprintable() else quoted(name)
    return f"{path}.{shown}" if path else shown


def quoted(text: str) -> str:
    """Return an excerpt of a policy for a message, shortened to one line."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
