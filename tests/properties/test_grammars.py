"""The grammars of extra specs and JSON queries, with arbitrary texts."""

import json
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.scheduling.extra_specs import match
from scheduler_worker.scheduling.filters import json_filter
from tests.support.hosts import host_record, host_table

words = st.text("ab1.", min_size=1, max_size=3)
numbers = st.integers(-9, 9).map(str) | st.floats(-9, 9).map(str)
blanks = st.sampled_from([" ", "  ", "\t"])


@given(
    st.sampled_from(["=", ">=", "==", "!=", "<="]), numbers, numbers, blanks, st.text(max_size=3)
)
def test_numbers_are_compared_as_numbers(name, value, operand, blank, more):
    test = {"=": operator.ge, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}
    expected = test.get(name, operator.le)(float(value), float(operand))
    assert match(value, f"{name}{blank}{operand} {more}") is expected


@given(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), words, words, blanks)
def test_texts_are_compared_as_texts(name, value, operand, blank):
    tests = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
    tests |= {"==": operator.eq, "!=": operator.ne}
    assert match(value, f"s{name}{blank}{operand}") is tests[name](value, operand)


@given(words | st.lists(words, max_size=3), st.lists(words, min_size=1, max_size=3), blanks)
def test_words_are_searched_for(value, operands, blank):
    assert match(value, f"<in> {operands[0]}") is (operands[0] in value)
    every = match(value, f"<all-in>{blank}" + blank.join(operands))
    assert every is all(word in value for word in operands)
    assert match(value, "<or> " + " <or> ".join(operands)) is (value in operands)


@given(words, words, st.sampled_from(["", "<", ">", "<range-in>", "==", "<in>", "s="]))
def test_a_text_without_an_operator_is_a_literal(value, text, prefix):
    assert match(value, prefix + text) is (value == prefix + text)


@given(st.none() | st.text(max_size=8) | st.lists(words), st.text(max_size=8) | st.text("<or> =in"))
def test_a_requirement_is_met_or_not_or_invalid(value, text):
    try:
        assert match(value, text) in {True, False}
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("value", "requirement", "matches"),
    [
        (["b"], "s== ['b']", False),
        (["b"], "s!= b", True),
        (["aes", "avx2"], "<in> avx", False),
        ("<or>", "<or> a <or> b", False),
        (None, "s== None", False),
        (None, "<or> None", False),
        ("4", ">=", False),
        ("a", "<in>", False),
        ("a", "<all-in>", False),
    ],
)
def test_a_value_meets_a_requirement(value, requirement, matches):
    assert match(value, requirement) is matches


@pytest.mark.parametrize(
    ("value", "requirement"), [("4", "<or>"), (["b"], "s< c"), (["4"], ">= 3")]
)
def test_an_invalid_requirement_is_an_error(value, requirement):
    with pytest.raises(ValueError, match=r"alternatives|list"):
        match(value, requirement)


HOST = host_table(
    [
        host_record(
            host="h1",
            memory_mb_used=192,
            vcpus_used=3,
            hypervisor_type="QEMU",
            stats={"rack": "7", "num_instances": "2"},
        )
    ]
).state(0)
PROPERTIES = {
    "$free_ram_mb": 8000,
    "$vcpus_used": 3,
    "$host": "h1",
    "$stats.rack": "7",
    "$hypervisor_type": "QEMU",
    "$nothing": None,
    "$stats.nothing": None,
    "$stats.nothing.x": None,
    "$": None,
}

KEYS_OF_SCALARS = {"$num_instances.x", "$hypervisor_type.x"}

leaves = (
    st.sampled_from(sorted(PROPERTIES.keys() | KEYS_OF_SCALARS))
    | st.sampled_from([None, "", True, False, 0, 3, 7.5, 8000, "h1", "7", {"a": 1}])
)  # fmt: skip
calls = st.recursive(
    st.builds(lambda name, some: [name, *some], st.sampled_from(["=", "<", "in", "or", "and"]),
              st.lists(leaves, max_size=3)),
    lambda inner: st.builds(
        lambda name, some: [name, *some],
        st.sampled_from(["=", "<=", ">=", ">", "in", "or", "and", "not"]),
        st.lists(inner | leaves | st.just([]), max_size=3),
    ),
    max_leaves=6,
)  # fmt: skip


def expected_of(query):
    """Return the expected result of a call; TypeError where values have no order, or no keys."""
    if any(isinstance(each, str) and each in KEYS_OF_SCALARS for each in query[1:]):
        raise TypeError
    values = [PROPERTIES.get(each, each) if isinstance(each, str) else each for each in query[1:]]
    values = [(expected_of(each) if each else True) if isinstance(each, list) else each
              for each in values]  # fmt: skip
    values = [each for each in values if each is not None and each != ""]
    if query[0] in {"or", "and"}:
        return any(values) if query[0] == "or" else all(values)
    if query[0] == "not":
        return [not each for each in values]
    if len(values) < 2:
        return False
    first, *others = values
    if query[0] == "in":
        return first in others
    test = {"=": operator.eq, "<": operator.lt, ">": operator.gt, "<=": operator.le}
    results = [test.get(query[0], operator.ge)(first, each) for each in others]  # type: ignore[arg-type]
    return all(results)


@given(calls)
def test_a_query_has_the_result_that_the_grammar_defines(query):
    try:
        expected = expected_of(query)
    except TypeError:
        expected = False
    read = json_filter.read(json.dumps(query))
    assert json_filter.matches(read, HOST) is (
        any(expected) if isinstance(expected, list) else bool(expected)
    )  # fmt: skip


@given(st.text(max_size=30) | st.recursive(leaves, st.lists, max_leaves=8).map(json.dumps))
def test_any_text_is_a_query_or_is_refused(text):
    try:
        query = json_filter.read(text)
    except ValueError as error:
        assert str(error).startswith(("is ", "has "))
    else:
        assert json_filter.matches(query, HOST) in {True, False}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a":' * 9_000, "is not JSON"),
        ('["not", ' * 33 + "1" + "]" * 33, "calls within calls"),
        (json.dumps(["or"] + [["=", 1, 1]] * json_filter.MAX_CALLS), "has more than 64 calls"),
        ('["=", NaN, 1]', "is not JSON"),
        ('["=", 1' + "0" * 5_000 + "]", "is not JSON"),
        ('["AND", true]', "operator 'AND'; known are =, <,"),
        ('[["=", 1, 1]]', "operator"),
        ('{"a": 1}', "is not a list"),
    ],
    ids=lambda text: text[:12],
)
def test_a_query_is_bounded(text, why):
    with pytest.raises(ValueError, match=why):
        json_filter.read(text)
