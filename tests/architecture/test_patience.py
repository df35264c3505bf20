"""No test passes or fails by speed; ``tests/support/patience.py`` says how they wait instead."""

import ast
import os
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.support.patience import SOON_S

TESTS = Path(__file__).resolve().parents[1]
CLOCKS = {"monotonic", "perf_counter", "time", "monotonic_s", "time_s"}
WAITS = {"result", "get", "join"}


def is_elapsed(node: ast.expr) -> bool:
    """Whether it is a difference of clocks."""
    return any(
        isinstance(each, ast.BinOp)
        and isinstance(each.op, ast.Sub)
        and isinstance(each.left, ast.Call)
        and isinstance(each.left.func, ast.Attribute)
        and each.left.func.attr in CLOCKS
        for each in ast.walk(node)
    )


def time_bounds(tree: ast.AST) -> Iterator[str]:
    """The statements that fail on a slow machine."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            for each in ast.walk(node):
                if isinstance(each, ast.Compare):
                    sides = [each.left, *each.comparators]
                    for at, op in enumerate(each.ops):
                        if isinstance(op, ast.Lt | ast.LtE) and is_elapsed(sides[at]):
                            yield f"{node.lineno}: an elapsed time has an upper bound"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            arguments = [
                *node.args,
                *(each.value for each in node.keywords if each.arg == "timeout"),
            ]
            for each in arguments:
                if not isinstance(each, ast.Constant) or type(each.value) not in {int, float}:
                    continue
                if node.func.attr in WAITS and 1 <= each.value < SOON_S:  # type: ignore[operator]
                    yield f"{node.lineno}: {node.func.attr}() waits for {each.value} s only"  # type: ignore[str-bytes-safe]


@pytest.mark.parametrize(
    "path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS))
)
def test_no_test_fails_on_a_slow_machine(path):
    assert list(time_bounds(ast.parse(path.read_text()))) == []


def test_time_bounds_are_found():
    bounded = "assert time.monotonic() - began < 3\nanswer.get(timeout=5)\nthread.join(2.0)\n"
    patient = "assert 0.2 < time.monotonic() - began\nanswer.get(timeout=SOON_S)\n', '.join(x)\n"
    assert len(list(time_bounds(ast.parse(bounded)))) == 3
    assert list(time_bounds(ast.parse(patient))) == []


@pytest.mark.skipif(not os.environ.get("CI"), reason="describes what CI has tested")
def test_the_metadata_names_the_interpreters_that_are_tested():
    metadata = ConfigParser()
    metadata.read(TESTS.parent / "setup.cfg")
    classifiers = metadata["metadata"]["classifiers"].splitlines()
    named = [each.rpartition(" ")[2] for each in classifiers if " Python :: 3." in each]
    assert named == [f"{sys.version_info.major}.{sys.version_info.minor}"]
