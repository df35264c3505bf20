"""The runner's own code: for which Python it is, and how it reads what a class prints."""

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.backends.sandbox import runner
from scheduler_worker.backends.sandbox.runner import read_printed


def test_the_runner_is_for_python_3_9_too():
    source = Path(runner.__file__).read_text()
    _, first, *_ = ast.parse(source, feature_version=(3, 9)).body
    assert ast.unparse(first) == "from __future__ import annotations"


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("['a', 'b']\n", "filter", ["a", "b"]),
        ("connecting\n['a']\n", "filter", ["a"]),
        ("['a',\n 'b']", "filter", ["a", "b"]),
        ("[('a', 1.5)]", "weight", [("a", 1.5)]),
        ("('vm', ['a'])", "balance", ("vm", ["a"])),
        ("vm-1 ['a']", "balance", ("vm-1", ["a"])),
        ("noise\n['x']\n", "balance", ["x"]),
        (" []", "balance", []),
        ("('a')", "filter", "a"),
        ("['a(b)', \"it's\"]", "filter", ["a(b)", "it's"]),
        ("1\n2\n", "filter", 2),
    ],
)
def test_the_literal_is_found(text, kind, expected):
    assert _as_json(read_printed(text, kind)) == _as_json(expected)


def _as_json(value):
    """Tuples and lists are the same in an answer."""
    return json.loads(json.dumps(value))


@given(
    st.recursive(
        st.text(alphabet="ab-'()[],.\\\"", max_size=5) | st.integers() | st.none() | st.booleans(),
        lambda inner: st.lists(inner, max_size=4) | st.tuples(inner) | st.tuples(inner, inner),
        max_leaves=20,
    )
)
def test_what_python_prints_is_read_back(value):
    assert _as_json(read_printed(repr(value), "filter")) == _as_json(value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "filter"),
        ("  \n", "filter"),
        ("hello world", "filter"),
        ("vm-1 ['a']", "filter"),
        ("__import__('os').getpid()", "filter"),
        ("['a'", "filter"),
        ("['a']\nlater noise", "filter"),
    ],
)
def test_what_is_no_literal_is_refused(text, kind):
    with pytest.raises((ValueError, SyntaxError)):
        read_printed(text, kind)


@pytest.mark.parametrize("text", ["[('a', nan)]", "[('a', 1), ('b', -inf)]"])
def test_a_score_that_is_no_number_is_named(text):
    with pytest.raises(ValueError, match="a score is nan or inf, and must be a finite number"):
        read_printed(text, "weight")
