"""Defaults of options: each is stated once, where the option is declared."""

import ast
from collections.abc import Iterator
from pathlib import Path

_SAYS_LITTLE = {"None", "False", "True", "()", "''", "0", "1", "0.0", "1.0", "0.5", "{}", "[]"}
"""Defaults that many other things have."""


def repeated_defaults(root: Path, package: str) -> Iterator[str]:
    """A complaint for each parameter or field with an option's name and its default, written anew.

    An option is a field with ``Opt(...)``. Names of several options, as of ``timeout_s``, say too
    little: they are left out.
    """
    paths = sorted((root / package).rglob("*.py"))
    trees = {path: ast.parse(path.read_text()) for path in paths}
    options: dict[str, list[tuple[str, str]]] = {}
    for path, tree in trees.items():
        for field in _fields(tree):
            if _is_option(field):
                place = f"{path.relative_to(root)}:{field.lineno}"
                options.setdefault(_name(field), []).append((_text(field.value), place))
    for path, tree in trees.items():
        for name, value, line in _defaults(tree):
            found, is_named = options.get(name, []), isinstance(value, ast.Name | ast.Attribute)
            if len(found) == 1 and found[0][0] == _text(value) not in _SAYS_LITTLE and not is_named:
                yield (
                    f"{path.relative_to(root)}:{line}: the default of {name} is that of the option "
                    f"at {found[0][1]}; name it, or have callers say it"
                )


def _fields(tree: ast.AST) -> Iterator[ast.AnnAssign]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and each.value is not None:
                    yield each


def _name(field: ast.AnnAssign) -> str:
    return ast.unparse(field.target)


def _text(value: ast.expr | None) -> str:
    return ast.unparse(value) if value is not None else ""


def _is_option(field: ast.AnnAssign) -> bool:
    return "Opt(" in ast.unparse(field.annotation)


def _defaults(tree: ast.AST) -> Iterator[tuple[str, ast.expr, int]]:
    """Name, default and line of parameters, and of fields that are no options."""
    for field in _fields(tree):
        if not _is_option(field) and field.value is not None:
            yield _name(field), field.value, field.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            last = given.args[len(given.args) - len(given.defaults) :]
            for parameter, value in (
                *zip(last, given.defaults, strict=True),
                *zip(given.kwonlyargs, given.kw_defaults, strict=True),
            ):
                if value is not None:
                    yield parameter.arg, value, parameter.lineno
