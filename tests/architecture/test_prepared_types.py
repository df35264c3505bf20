"""msgspec prepares types in one place alone, under a lock."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "scheduler_worker"
PREPARING = {"msgspec.convert", "msgspec.json.Decoder"}


def preparing(tree: ast.AST) -> Iterator[int]:
    """The lines that let msgspec prepare a type by itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = ast.unparse(node.func)
            is_typed = any(each.arg == "type" for each in node.keywords)
            if called in PREPARING or (called == "msgspec.json.decode" and is_typed):
                yield node.lineno


def test_nothing_else_prepares_types():
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "conversion.py"
        for line in preparing(ast.parse(path.read_text()))
    ]
    assert found == []
