"""The issues of a policy: all of them at once, each with its place."""

from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

import msgspec

from scheduler_worker.errors import TuningPolicyError

MOST_ISSUES = 1000
"""Loading stops there."""
_WIDTH = 100
_MOST_COMPARED = 100


class Kind(StrEnum):
    """The kinds of issues."""

    YAML = "E_YAML"
    SCHEMA = "E_SCHEMA"
    SCOPE = "E_SCOPE"
    NAME = "E_NAME"
    CYCLE = "E_CYCLE"
    TIME = "E_TIME"
    FUNCTION = "E_FUNCTION"
    SYNTAX = "E_EXPR_SYNTAX"
    UNSUPPORTED = "E_EXPR_UNSUPPORTED"
    LIMIT = "E_LIMIT"


class Place(NamedTuple):
    """A position in a file; line and column count from 1."""

    file: str
    line: int
    column: int
    excerpt: str
    """The text of the line."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def caret(self) -> str:
        """Return the line, or the part of a long one, and a caret under the position."""
        start = max(0, min(self.column - 1 - _WIDTH // 2, len(self.excerpt) - _WIDTH))
        shown = self.excerpt[start : start + _WIDTH].expandtabs(1)
        return f"  {shown}\n  {' ' * (self.column - 1 - start)}^"


class Issue(msgspec.Struct, frozen=True):
    """One issue of a policy."""

    kind: Kind
    place: Place
    path: str
    """The keys from the top of the document: ``rules.cpu_limit.function.time``."""
    message: str

    @property
    def what(self) -> str:
        """Kind, path and message, without the place."""
        within = f"{self.path}: " if self.path else ""
        return f"{self.kind}: {within}{self.message}"

    @property
    def headline(self) -> str:
        """The issue in one line, without its source line."""
        return f"{self.place}: {self.what}"

    def __str__(self) -> str:
        """In the format of compilers: file, line and column, message, source line with a caret."""
        return f"{self.headline}\n{self.place.caret()}"


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
