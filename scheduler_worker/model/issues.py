"""Issues of a text in a language of the worker: what is wrong, and where."""

from enum import StrEnum
from typing import NamedTuple

import msgspec

_WIDTH = 100
"""Characters of a line that are shown."""


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
