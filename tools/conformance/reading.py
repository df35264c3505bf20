"""Cases out of files: JSON values one after the other, or lists of them; gzip is seen through."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_GZIP = b"\x1f\x8b"
_BLANK = " \t\r\n"


class Malformed(Exception):
    """Raised for a malformed case; the message begins with file and line."""


class Skipped(Exception):
    """Raised for a case of a kind that is known and not run; says why."""


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
            yield from _cases(Document(f"{path}:{line}", value))
    except json.JSONDecodeError as error:
        raise Malformed(f"{path}:{error.lineno}: is not JSON: {error.msg}") from None


def _cases(document: Document) -> Iterator[Document]:
    """The cases of an object that says where they come from; else the document itself.

    What the object says of all cases is in each of them, unless a case says it itself.
    """
    value = document.value
    if not isinstance(value, dict) or not isinstance(value.get("cases"), list):
        yield document
        return
    common = {key: said for key, said in value.items() if key != "cases"}
    for number, case in enumerate(value["cases"], 1):
        name = case.get("name", number) if isinstance(case, dict) else number
        each = common | case if isinstance(case, dict) else case
        yield Document(f"{document.place} ({name})", each)


class _Reader:
    """JSON values, each with the line that it begins on."""

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
