"""Reads a strict subset of YAML: text to nodes with their places.

One document, a mapping. No anchors, aliases, merge keys or tags; keys are unique texts. The types
that YAML gives scalars are ignored: the reader of an expression, a time or a name gets the text, so
``yes``, ``010`` and ``1:30`` never silently change their meaning.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import NoReturn

import msgspec
import yaml

from scheduler_worker.model.issues import Kind, Place
from scheduler_worker.tuning.issues import Issues, below, quoted

MAX_BYTES = 256 * 1024
MAX_NESTING = 20
MAX_LIST = 100
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BREAKS = "\r\n\x85\u2028\u2029"
_BREAK = re.compile(f"\r\n|[{_BREAKS}]")
_BLANK = f" \t{_BREAKS}"
_LONGEST_EXCERPT = 10_000
_NULLS = {"", "~", "null"}
_NOT_TEXT = re.compile(r"~|null|true|false|[-+]?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?|")


class Source:
    """The text of a policy, and its name in issues."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text.removeprefix("\ufeff")

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _BREAK.finditer(self.text))]

    def place(self, offset: int) -> Place:
        """Return the place of the character at an offset."""
        line = bisect_right(self._starts, offset)
        start = self._starts[line - 1]
        end = self._starts[line] if line < len(self._starts) else len(self.text)
        excerpt = self.text[start : min(end, start + _LONGEST_EXCERPT)].rstrip(_BREAKS)
        return Place(self.name, line, offset - start + 1, excerpt)


class Node(msgspec.Struct, frozen=True, eq=False):
    """A part of the text. A bare ``Node``, not of a subclass, marks what has an issue already."""

    source: Source
    start: int
    end: int

    @property
    def place(self) -> Place:
        """The place of its first character."""
        return self.source.place(self.start)


class Scalar(Node, frozen=True, eq=False):
    """A text, quoted or not."""

    text: str
    plain: bool

    @property
    def is_null(self) -> bool:
        """Whether it is empty, ``~`` or ``null``."""
        return self.plain and self.text in _NULLS

    def place_of(self, at: int) -> Place:
        """Return the place of a character of ``text``; that of the scalar if escapes hide it."""
        return self.source.place(self.start + self._raw_offset(at))

    def _raw_offset(self, at: int) -> int:
        """Walk through text and source, which differ in white space where lines are folded."""
        raw = self.source.text[self.start : self.end]
        reached = _opening(raw)
        for letter in self.text[: at + 1].rstrip(_BLANK):
            if letter in _BLANK:
                continue
            while raw[reached : reached + 1] in tuple(_BLANK):
                reached += 1
            if raw[reached : reached + 1] != letter:
                return 0
            reached += 1
        skipped = 1 if self.text[at : at + 1].strip(_BLANK) else 0
        return reached - skipped


class Sequence(Node, frozen=True, eq=False):
    """A list."""

    items: tuple[Node, ...]


class Mapping(Node, frozen=True, eq=False):
    """Keys and values, in the order of the text."""

    entries: dict[str, tuple[Scalar, Node]]
    complete: bool = True
    """Whether no key was dropped because of an issue."""


def read(source: Source, issues: Issues) -> Mapping | None:
    """Return the nodes of a document; None, with issues, when it cannot be read."""
    try:
        if len(source.text.encode()) > MAX_BYTES:
            issues.add(Kind.LIMIT, source.place(0), "", f"is larger than {MAX_BYTES // 1024} KiB")
            return None
        return _Composer(source, issues).document()
    except _GivenUp:
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "is not valid YAML"
        if mark and source.text[mark.index : mark.index + 1] == "\t":
            problem = "there is a tab; indent with spaces"
        issues.add(Kind.YAML, source.place(mark.index if mark else 0), "", problem)
    except (yaml.YAMLError, UnicodeError) as error:
        problem = str(error).splitlines()[0][:200]
        issues.add(Kind.YAML, source.place(0), "", f"cannot be read: {problem}")
    return None


class _GivenUp(Exception):
    """Raised after an issue that makes continuing pointless."""


class _Composer:
    """Builds nodes from the parser's events."""

    def __init__(self, source: Source, issues: Issues) -> None:
        self._source = source
        self._issues = issues
        self._events: Iterator[yaml.Event] = yaml.parse(source.text, Loader=_LOADER)

    def document(self) -> Mapping | None:
        next(self._events)
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            self._report(event, "", "the document is empty; write a mapping")
            return None
        root = self._node(next(self._events), "", depth=1)
        next(self._events)
        event = next(self._events)
        if not isinstance(event, yaml.StreamEndEvent):
            self._report(event, "", "a second document begins; a file must have one")
        if isinstance(root, Mapping):
            return root
        self._issues.add(Kind.YAML, root.place, "", "the document must be a mapping")
        return None

    def _node(self, event: yaml.NodeEvent, path: str, depth: int) -> Node:
        """``node = scalar | sequence | mapping``."""
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.AliasEvent):
            self._report(event, path, "aliases are not supported; write the value out")
            return Node(self._source, start, end)
        if event.anchor is not None:
            self._report(event, path, "anchors are not supported")
        if event.tag is not None:
            self._report(event, path, f"tags are not supported: {quoted(event.tag)}")
        if isinstance(event, yaml.ScalarEvent):
            if event.tag is not None:
                return Node(self._source, start, end)
            return Scalar(self._source, start, end, event.value, event.style in {None, ""})
        if depth > MAX_NESTING:
            self._give_up(event, path, f"is nested deeper than {MAX_NESTING} levels")
        if isinstance(event, yaml.SequenceStartEvent):
            return Sequence(self._source, start, end, tuple(self._items(path, depth)))
        entries, complete = self._entries(path, depth)
        return Mapping(self._source, start, end, entries, complete)

    def _items(self, path: str, depth: int) -> Iterator[Node]:
        """``sequence = "[" { node } "]"``."""
        count = 0
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            if count == MAX_LIST:
                self._give_up(event, path, f"a list has at most {MAX_LIST} items")
            yield self._node(event, f"{path}[{count}]", depth + 1)
            count += 1

    def _entries(self, path: str, depth: int) -> tuple[dict[str, tuple[Scalar, Node]], bool]:
        """``mapping = "{" { scalar node } "}"``; the entries, and whether no key was dropped."""
        entries: dict[str, tuple[Scalar, Node]] = {}
        complete = True
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, path, depth + 1)
            within = below(path, key.text) if isinstance(key, Scalar) else path
            value = self._node(next(self._events), within, depth + 1)
            if refused := _refused(key):
                self._report(event, within, refused)
            if refused or not isinstance(key, Scalar):
                complete = False
            elif key.text in entries:
                self._report(event, within, f"duplicate key {quoted(key.text)}")
            else:
                entries[key.text] = key, value
        return entries, complete

    def _report(self, event: yaml.Event, path: str, message: str) -> None:
        self._issues.add(Kind.YAML, self._source.place(event.start_mark.index), path, message)

    def _give_up(self, event: yaml.Event, path: str, message: str) -> NoReturn:
        self._issues.add(Kind.LIMIT, self._source.place(event.start_mark.index), path, message)
        raise _GivenUp


def _refused(key: Node) -> str:
    """Return why a node cannot be a key; "" if it can, or has an issue already."""
    if isinstance(key, Scalar):
        if key.plain and key.text == "<<":
            return "merge keys are not supported"
        return "a key must be a text" if key.plain and _NOT_TEXT.fullmatch(key.text) else ""
    return "" if type(key) is Node else "a key must be a text"


def _opening(raw: str) -> int:
    """Return the length of what precedes the text: a quote, or the line of ``|`` or ``>``."""
    if raw[:1] in {"'", '"'}:
        return 1
    match = _BREAK.search(raw) if raw[:1] in {"|", ">"} else None
    return match.end() if match else 0
