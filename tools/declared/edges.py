"""Finds edges that name a resource: RPC, REST, the client and the command line are made for all.

A resource is a module of the operations with a decorated ``@operation``. An edge may neither import
it nor have the name of an operation, as a name or as a text.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

OPERATIONS = "scheduler_worker/operations"
EDGES = (
    "scheduler_worker/api/application.py",
    "scheduler_worker/api/bind.py",
    "scheduler_worker/api/openapi.py",
    "scheduler_worker/api/problems.py",
    "scheduler_worker/cli/bind.py",
    "scheduler_worker/client.py",
    "scheduler_worker/rpc",
)
"""Beside oVirt's API, which has resources of its own."""


def edges_that_name_resources(root: Path) -> list[str]:
    """A sentence for each place of an edge that names a resource."""
    names = set(_names(root / OPERATIONS))
    return [
        f"{path.relative_to(root)}:{line} names {name}; what all operations share says it too"
        for edge in EDGES
        for path in _modules(root / edge)
        for line, name in _said(ast.parse(path.read_text()))
        if name in names
    ]


def _names(folder: Path) -> Iterator[str]:
    """The modules that declare operations, in full, and the names of these operations."""
    for path in _modules(folder):
        found = [
            node.name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef)
            and any(ast.unparse(each).startswith("operation(") for each in node.decorator_list)
        ]
        yield from found
        if found:
            yield f"{OPERATIONS.replace('/', '.')}.{path.stem}"


def _modules(place: Path) -> list[Path]:
    return [place] if place.suffix else sorted(place.rglob("*.py"))


def _said(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines with the modules, names and texts of a module."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield node.lineno, module
                yield from ((node.lineno, f"{module}.{each.name}") for each in names)
            case ast.Import(names=names):
                yield from ((node.lineno, each.name) for each in names)
            case ast.Constant(value=str(text)):
                yield node.lineno, text
            case ast.Attribute(attr=name) | ast.Name(id=name):
                yield node.lineno, name
