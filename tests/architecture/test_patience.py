"""No test passes or fails by speed, and no thread of a failed test keeps pytest from going on."""

import ast
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


def lasting_threads(tree: ast.AST) -> Iterator[str]:
    """Threads that the interpreter waits for when it ends; a pool of them, when its block does."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        made = ast.unparse(node.func)
        is_daemon = any(each.arg == "daemon" for each in node.keywords)
        if made == "threading.Thread" and not is_daemon:
            yield f"{node.lineno}: the thread is no daemon"
        if made.rpartition(".")[2] == "ThreadPoolExecutor":
            yield f"{node.lineno}: tests.support.threads has a pool of daemons"


@pytest.mark.parametrize(
    "path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS))
)
def test_no_test_fails_on_a_slow_machine_and_none_leaves_a_thread(path):
    tree = ast.parse(path.read_text())
    assert [*time_bounds(tree), *lasting_threads(tree)] == []


@pytest.mark.parametrize(
    ("line", "rule", "is_wrong"),
    [
        ("assert time.monotonic() - began < 3", time_bounds, True),
        ("answer.get(timeout=5)", time_bounds, True),
        ("thread.join(2.0)", time_bounds, True),
        ("assert 0.2 < time.monotonic() - began", time_bounds, False),
        ("answer.get(timeout=SOON_S)", time_bounds, False),
        ("', '.join(x)", time_bounds, False),
        ("threading.Thread(target=f).start()", lasting_threads, True),
        ("with ThreadPoolExecutor(1): pass", lasting_threads, True),
        ("threading.Thread(target=f, daemon=True).start()", lasting_threads, False),
        ("with Threads(1): pass", lasting_threads, False),
    ],
)
def test_violations_are_found(line, rule, is_wrong):
    assert bool(list(rule(ast.parse(line)))) is is_wrong


def test_the_metadata_names_the_interpreter_that_runs_the_tests():
    metadata = ConfigParser()
    metadata.read(TESTS.parent / "setup.cfg")
    classifiers = metadata["metadata"]["classifiers"].splitlines()
    named = [each.rpartition(" ")[2] for each in classifiers if " Python :: 3." in each]
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in named
    assert metadata["options"]["python_requires"] == f">={named[0]}"
