"""Every process is made of the same parts, each of which is made in one place."""

import ast
from collections import Counter
from pathlib import Path

import scheduler_worker

PACKAGE = Path(scheduler_worker.__file__).parent
ONCE = ("Fleet", "Scheduler", "open_state", "Capacity", "Balancer", "Tuner")


def called(path: Path) -> list[str]:
    """The names of what a module calls."""
    calls = [each.func for each in ast.walk(ast.parse(path.read_text())) if type(each) is ast.Call]
    return [each.attr if type(each) is ast.Attribute else ast.unparse(each) for each in calls]


def test_a_part_is_made_in_one_place():
    found = Counter(name for path in PACKAGE.rglob("*.py") for name in called(path))
    assert {name: found[name] for name in ONCE} == dict.fromkeys(ONCE, 1)
