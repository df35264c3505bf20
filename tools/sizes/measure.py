"""Counts lines of code: of files, and of functions and methods.

A line of code has something on it besides blanks, comments and docstrings, so that explaining the
code never costs anything.
"""

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

MAX_FILE = 450
MAX_FUNCTION = 60
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


class Size(NamedTuple):
    """The lines of code of a file, or of one function in it."""

    lines: int
    place: str
    """``path``, or ``path:line name`` of a function."""
    path: str
    is_function: bool

    @property
    def bound(self) -> int:
        return MAX_FUNCTION if self.is_function else MAX_FILE


def sizes(text: str, path: str) -> Iterator[Size]:
    """The size of the file, and of each function in it; a function includes those inside it."""
    tree = ast.parse(text)
    code = _code_lines(text) - _docstring_lines(tree)
    yield Size(len(code), path, path, is_function=False)
    for node in _statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            place = f"{path}:{node.lineno} {node.name}"
            yield Size(len(code & set(lines)), place, path, is_function=True)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All that are in it. The expressions in them, most of the tree, are left alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from _statements(child)


def _code_lines(text: str) -> set[int]:
    return {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }


def _docstring_lines(tree: ast.AST) -> set[int]:
    """The lines of strings that stand alone: docstrings, also those of attributes."""
    return {
        line
        for node in _statements(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def sources(root: Path, folders: Sequence[str]) -> Iterator[Path]:
    """The Python files below the folders: ``*.py``, and scripts without a suffix."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix == ".py" or (not path.suffix and _is_script(path)):
                yield path


def _is_script(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline()
    return first.startswith(b"#!") and b"python" in first


def measured(root: Path, folders: Sequence[str]) -> list[Size]:
    """The sizes of all files and functions below the folders, the largest first."""
    found = [
        size
        for path in sources(root, folders)
        for size in sizes(path.read_text(), str(path.relative_to(root)))
    ]
    return sorted(found, key=lambda size: (-size.lines / size.bound, size.place))


def problems(found: Sequence[Size], exceptions: dict[str, str]) -> list[str]:
    """A sentence for each file or function above its bound, and each exception without need."""
    large = [size for size in found if size.lines > size.bound]
    found_large = [
        f"{size.place}: {size.lines} lines of code, at most {size.bound}; split it"
        for size in large
        if size.path not in exceptions
    ]
    needed = {size.path for size in large}
    return found_large + [
        f"{path} is within the bounds; delete its exception from tools/sizes/__main__.py"
        for path in exceptions
        if path not in needed
    ]
