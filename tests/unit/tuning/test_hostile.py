"""Malicious policies are refused after a bounded amount of work."""

import sys

import pytest

from scheduler_worker.tuning import expressions, yaml_subset
from scheduler_worker.tuning.issues import MOST_ISSUES
from scheduler_worker.tuning.yaml_subset import MAX_BYTES
from tests.support.tuning import issues, load, rule

FULL = MAX_BYTES - 100
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "parentheses": "(" * FULL,
    "parentheses in a rule": rule(f'target: "{"(" * FULL}"'),
    "as many parentheses as fit": rule(f'target: "{"(" * 2000}"'),
    "brackets": "[" * FULL,
    "braces": "{a: " * (FULL // 4),
    "dashes": "- " * (FULL // 2),
    "question marks": "? " * (FULL // 2),
    "anchors": "&a " * (FULL // 3),
    "laughs": LAUGHS,
    "one long number": rule(f"target: {'9' * FULL}"),
    "a huge number": rule("target: 1e999999999"),
    "a long time": rule("target: 1", f"function: {{name: linear, change: 1, time: {'9' * 999}}}"),
    "a long list": rule(f"target: 1\n    min: [{'1,' * 50_000}]"),
    "the same key": "a: 1\n" * 40_000,
    "keys": "".join(f"k{number}: 1\n" for number in range(20_000)),
    "too much": "#" * (MAX_BYTES + 1),
}


@pytest.fixture
def work(monkeypatch):
    """Counts the events read from the YAML parser, and the steps of expressions."""
    counts = {"events": 0, "steps": 0}
    parse_yaml, add_step = yaml_subset.yaml.parse, expressions._Parser._step  # type: ignore[attr-defined]

    def counting_parse(*args, **kwargs):
        for event in parse_yaml(*args, **kwargs):
            counts["events"] += 1
            yield event

    def counting_step(self, *args, **kwargs):
        counts["steps"] += 1
        return add_step(self, *args, **kwargs)

    monkeypatch.setattr(yaml_subset.yaml, "parse", counting_parse)  # type: ignore[attr-defined]
    monkeypatch.setattr(expressions._Parser, "_step", counting_step)
    return counts


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_is_refused_after_little_work(text, work):
    found = issues(text)
    assert sum(len(str(each)) for each in found) < 200 * MOST_ISSUES
    assert work["steps"] <= expressions.MAX_NODES
    if text is not HOSTILE["keys"]:  # each of them is an issue, up to the limit
        assert work["events"] < 4 * MOST_ISSUES


def test_an_unknown_name_is_compared_with_a_bounded_number_of_names(monkeypatch):
    compared = []
    monkeypatch.setattr(
        "scheduler_worker.tuning.issues.get_close_matches",
        lambda _name, known, _count: compared.extend(known) or [],
    )
    names = "".join(f"  v{number}: x{number}\n" for number in range(2000))
    assert len(issues(rule("target: 1", head=f"vars:\n{names}"))) == MOST_ISSUES
    assert len(compared) <= 100 * MOST_ISSUES


def test_a_long_chain_of_names_neither_recurses_nor_multiplies():
    links = "".join(f"  k{number + 1}: k{number} + k{number}\n" for number in range(5000))
    text = rule("target: k5000", head=f"vars:\n  k0: x.a\n{links}")
    recursion = sys.getrecursionlimit()
    assert recursion < 5000
    [plan] = load(text).plans.values()
    assert len(plan.live) < 5010
