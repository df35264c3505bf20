"""No thread of a failed test keeps pytest from going on, or from ending."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def lasting_threads(tree: ast.AST) -> Iterator[str]:
    """Threads that the interpreter waits for when it ends; a pool of them, when its block does."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        made = ast.unparse(node.func).rpartition(".")[2]
        is_daemon = any(each.arg == "daemon" for each in node.keywords)
        if ast.unparse(node.func) == "threading.Thread" and not is_daemon:
            yield f"{node.lineno}: the thread is no daemon"
        if made == "ThreadPoolExecutor":
            yield f"{node.lineno}: tests.support.threads has a pool of daemons"


@pytest.mark.parametrize(
    "path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS))
)
def test_no_thread_outlives_a_failed_test(path):
    assert list(lasting_threads(ast.parse(path.read_text()))) == []


def test_lasting_threads_are_found():
    lasting = "threading.Thread(target=f).start()\nwith ThreadPoolExecutor(1): pass\n"
    ending = "threading.Thread(target=f, daemon=True).start()\nwith Threads(1): pass\n"
    assert len(list(lasting_threads(ast.parse(lasting)))) == 2
    assert list(lasting_threads(ast.parse(ending))) == []
