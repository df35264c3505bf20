"""What is wrong with a policy, and where: all of it at once."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

import msgspec

from scheduler_worker.errors import PolicyError

MOST_ISSUES = 1000
"""Reading stops there: whoever has so many does not miss the next."""
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
    """A character of a file; line and column count from 1."""

    file: str
    line: int
    column: int
    excerpt: str
    """The text of that line."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def caret(self) -> str:
        """The line, or the part of a long one, and a caret under the character."""
        start = max(0, min(self.column - 1 - _WIDTH // 2, len(self.excerpt) - _WIDTH))
        shown = self.excerpt[start : start + _WIDTH].expandtabs(1)
        return f"  {shown}\n  {' ' * (self.column - 1 - start)}^"


class Issue(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    kind: Kind
    place: Place
    path: str
    """The way down from the top of the document: ``rules.cpu_limit.function.time``."""
    message: str

    def __str__(self) -> str:
        """As compilers say it: a line to click on, and the source with a caret."""
        within = f"{self.path}: " if self.path else ""
        return f"{self.place}: {self.kind}: {within}{self.message}\n{self.place.caret()}"


class Issues:
    """Collects issues; whoever finds one reports it and carries on."""

    def __init__(self) -> None:
        self.found: list[Issue] = []

    def add(self, kind: Kind, place: Place, path: str, message: str) -> None:
        """Note an issue. Raises PolicyError when there are too many to go on."""
        self.found.append(Issue(kind, place, path, message))
        if len(self.found) >= MOST_ISSUES:
            raise PolicyError(self.found)

    def settle(self) -> None:
        """Raise PolicyError if there is any issue."""
        if self.found:
            raise PolicyError(sorted(self.found, key=lambda issue: issue.place))


def closest(name: str, known: Iterable[str]) -> str:
    """The name that was probably meant, or nothing; of many names only the first are compared."""
    return "".join(get_close_matches(name[:60], islice(known, _MOST_COMPARED), 1))


def hinted(name: str) -> str:
    """The end of a message that proposes a name."""
    return f"; did you mean {name[:60]}?" if name else ""


def below(path: str, name: str) -> str:
    """The path of an entry: on one line, and not too long."""
    shown = name[:60] if name.isprintable() else quoted(name)
    return f"{path}.{shown}" if path else shown


def quoted(text: str) -> str:
    """A piece of a policy for a message: on one line, and not too long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
