"""Reads sentences: out of Markdown, and out of the docstrings and messages of Python.

A span of code counts as one word. Blocks of code, tables and
generated parts are left out.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

CODE = "``"
"""What stands for a span of code in a sentence."""
_FENCE = re.compile(r"^ *(```|~~~)")
_ITEM = re.compile(r"^\s*(?:[*+-]|\d+\.)\s+|^\s*>\s?")
_LEFT_OUT = re.compile(r"^\s*(?:\||#|:::|!!!|\[!\[)")
_GENERATED = "<!-- made by `make reference`: do not edit -->"
_END = "<!-- end -->"
_SPAN = re.compile(r"(`+)(?:(?!\1).)+?\1", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_STOP = re.compile(r"[.!?][\"')*\]]*\s+(?=[\"'(*\[]*(?:[A-Z0-9]|``))")
_SHORT = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|no)|\s\d)\.$", re.IGNORECASE)
_FIELD = re.compile(r"^\s*(?:[A-Z*]\w*(?: or \w+)?: |:\w+)|^ {4,}\S+: ")
_EXAMPLE = re.compile(r"^(?: {4,}|\t| {2,}\S+.*\S {2,}\S| {2,}scheduler-)")
_RULER = re.compile(r"^=+ +=")
"""The first line of a table in reStructuredText, which ends with an empty line."""
_LOGGED = {"debug", "info", "warning", "error", "exception", "critical", "log"}
_KEYWORDS = {"help", "description", "epilog", "summary", "text", "mend", "fix", "message", "reason"}


class Sentence(NamedTuple):
    """A sentence, and the line on which it begins."""

    line: int
    text: str

    @property
    def words(self) -> int:
        return sum(bool(re.search(r"\w|``", each)) for each in self.text.split())


class Block(NamedTuple):
    """Lines that belong together: a paragraph, or an item of a list."""

    line: int
    text: str

    def sentences(self) -> Iterator[Sentence]:
        """Its sentences; links have their titles left, and spans of code a mark."""
        text = _LINK.sub(_same_lines(r"\1"), _SPAN.sub(_same_lines(CODE), self.text))
        start = 0
        for stop in [*_STOP.finditer(text), None]:
            end = stop.end() if stop else len(text)
            if stop and _SHORT.search(text[start : stop.start() + 1]):
                continue
            if sentence := " ".join(text[start:end].split()):
                skipped = len(text[start:end]) - len(text[start:end].lstrip())
                yield Sentence(self.line + text.count("\n", 0, start + skipped), sentence)
            start = end


def _same_lines(template: str) -> Callable[[re.Match[str]], str]:
    """A replacement that has as many lines as what it replaces."""
    return lambda found: found.expand(template).replace("\n", " ") + "\n" * found[0].count("\n")


def of_markdown(text: str) -> Iterator[Block]:
    """The prose of a document."""
    lines: list[str] = []
    start = 0
    for number, line in enumerate([*without_code(text), ""], 1):
        is_item = _ITEM.match(line)
        if lines and (is_item or not line.strip() or _LEFT_OUT.match(line)):
            yield Block(start, "\n".join(lines))
            lines = []
        if line.strip() and not _LEFT_OUT.match(line):
            start = start if lines else number
            lines.append(_ITEM.sub("", line) if is_item else line)


def without_code(text: str) -> Iterator[str]:
    """The lines of a document; those of blocks of code and of generated parts are empty."""
    fence = end = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if end:
            end = "" if end in line else end
            yield ""
        elif fence or mark:
            if mark:
                fence = "" if fence == mark[1] else fence or mark[1]
            yield ""
        elif line.lstrip().startswith("<!--"):
            closing = _END if line.strip() == _GENERATED else "-->"
            end = "" if closing in line else closing
            yield ""
        else:
            yield line


def of_docstrings(tree: ast.AST) -> Iterator[Block]:
    """The paragraphs of all strings that stand alone: docstrings, also those of attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text), lineno=line)):
                yield from _paragraphs(text, line)


def _paragraphs(text: str, first: int) -> Iterator[Block]:
    lines: list[str] = []
    start = 0
    base = _indentation(text)
    is_after_blank = is_table = False
    for number, raw in enumerate([*text.splitlines(), ""], first):
        line = raw.removeprefix(base)
        if _RULER.match(line) or is_table:
            is_table = bool(line.strip())
            line = ""
        ends = not line.strip() or _ITEM.match(line) or _FIELD.match(line)
        if lines and ends:
            yield Block(start, "\n".join(lines))
            lines = []
        is_example = not lines and is_after_blank and _EXAMPLE.match(line)
        is_after_blank = not line.strip() or bool(is_example)
        if line.strip() and not is_example:
            start = start if lines else number
            lines.append(_ITEM.sub("", line))


def _indentation(text: str) -> str:
    """What all lines but the first begin with."""
    found = [len(line) - len(line.lstrip()) for line in text.splitlines()[1:] if line.strip()]
    return " " * min(found, default=0)


def of_messages(tree: ast.AST) -> Iterator[Block]:
    """The texts of errors and log lines, and what is given by a keyword such as ``help``."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(args=args)):
                yield from _texts(args)
            case ast.Call(func=ast.Attribute(attr=name), args=args) if name in _LOGGED:
                yield from _texts(args[:2])
        if isinstance(node, ast.Call):
            yield from _texts([each.value for each in node.keywords if each.arg in _KEYWORDS])


def _texts(expressions: Sequence[ast.expr]) -> Iterator[Block]:
    for each in expressions:
        match each:
            case ast.Constant(value=str(text), lineno=line):
                yield from of_markdown_at(text, line)
            case ast.JoinedStr(values=values, lineno=line):
                parts = [part.value if isinstance(part, ast.Constant) else "X" for part in values]
                yield from of_markdown_at("".join(map(str, parts)), line)
            case ast.BinOp(left=one, right=other) | ast.IfExp(body=one, orelse=other):
                yield from _texts([one, other])


def of_markdown_at(text: str, line: int) -> Iterator[Block]:
    """The blocks of a text, all on one line of the source: where its string begins."""
    yield from (Block(line, " ".join(each.text.split())) for each in of_markdown(text))
