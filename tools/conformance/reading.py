"""Cases out of files: JSON values one after the other, or lists of them; gzip is seen through."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_GZIP = b"\x1f\x8b"
_BLANK = " \t\r\n"


class Malformed(Exception):
    """Raised for what cannot be read as a case; the message begins with file and line."""


class Document(NamedTuple):
    """One JSON value and where it begins."""

    place: str
    value: Any


def documents(path: Path) -> Iterator[Document]:
    """The documents of a file; those of a list come one by one.

    Raises:
        Malformed: it is not JSON, from there on.
        OSError: the file cannot be read.
    """
    raw = path.read_bytes()
    try:
        text = (gzip.decompress(raw) if raw.startswith(_GZIP) else raw).decode()
    except (EOFError, gzip.BadGzipFile, UnicodeError) as error:
        raise Malformed(f"{path}: {error}") from None
    reader = _Reader(text)
    try:
        for line, value in reader.values():
            yield Document(f"{path}:{line}", value)
    except json.JSONDecodeError as error:
        raise Malformed(f"{path}:{error.lineno}: is not JSON: {error.msg}") from None


class _Reader:
    """JSON values with the lines that they begin on, in one pass."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._decode = json.JSONDecoder().raw_decode
        self._at, self._counted, self._line = 0, 0, 1

    def values(self) -> Iterator[tuple[int, Any]]:
        while self._next(""):
            if self._text[self._at] == "[":
                yield from self._elements()
            else:
                yield self._value()

    def _elements(self) -> Iterator[tuple[int, Any]]:
        self._at += 1
        separators = ""
        while self._next(separators) != "]":
            yield self._value()
            separators = ","
        self._at += 1

    def _next(self, separators: str) -> str:
        """Skip white space and separators; the character that is there, or nothing."""
        while self._text[self._at : self._at + 1] in tuple(_BLANK + separators):
            self._at += 1
        return self._text[self._at : self._at + 1]

    def _value(self) -> tuple[int, Any]:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        value, self._at = self._decode(self._text, self._at)
        return self._line, value
