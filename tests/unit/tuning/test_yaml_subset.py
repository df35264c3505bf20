"""The strict subset of YAML, and the places of its nodes."""

import contextlib

import pytest

from scheduler_worker.errors import TuningPolicyError
from scheduler_worker.tuning.issues import Issues
from scheduler_worker.tuning.yaml_subset import Source, read


def issues_of(text):
    issues = Issues()
    with contextlib.suppress(TuningPolicyError):
        read(Source("p.yaml", text), issues)
    return [(str(each.kind), each.place.line, each.place.column) for each in issues.found]


def scalar(text, key="a"):
    return read(Source("p.yaml", text), Issues()).entries[key][1]


@pytest.mark.parametrize(
    ("text", "kind", "line", "column"),
    [
        ("", "E_YAML", 1, 1),
        ("- a\n", "E_YAML", 1, 1),
        ("a: 1\na: 2\n", "E_YAML", 2, 1),
        ("a: 1\n1: 2\n", "E_YAML", 2, 1),
        ("[a]: 2\n", "E_YAML", 1, 1),
        ("null: 2\n", "E_YAML", 1, 1),
        ("<<: {a: 1}\n", "E_YAML", 1, 1),
        ("a: &x 1\n", "E_YAML", 1, 4),
        ("a: !!int 1\n", "E_YAML", 1, 4),
        ("a: 1\n---\nb: 2\n", "E_YAML", 2, 1),
        ("a: [1\n", "E_YAML", 2, 1),
        ("a: \x00\n", "E_YAML", 1, 1),
        ("a: \ud800\n", "E_YAML", 1, 1),
        ("a: " + "[" * 20 + "]" * 20, "E_LIMIT", 1, 23),
        ("a: [" + "1," * 101 + "]", "E_LIMIT", 1, 205),
        ("#" * 262145, "E_LIMIT", 1, 1),
    ],
)
def test_what_is_not_supported_is_reported_with_its_place(text, kind, line, column):
    assert issues_of(text) == [(kind, line, column)]


def test_reading_goes_on_after_an_issue():
    assert issues_of("a: &x 1\nb: *x\nb: !t 2\n") == [
        ("E_YAML", 1, 4), ("E_YAML", 2, 4), ("E_YAML", 3, 4), ("E_YAML", 3, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("rules: {r: {a: 1, a: 2}}\n", "rules.r.a"),
        ("rules: {r: {a: [1, &x 2]}}\n", "rules.r.a[1]"),
        ("rules: {r: {1: 2}}\n", "rules.r.1"),
        ("rules: {r: {a: [" + "1," * 101 + "]}}\n", "rules.r.a"),
        ("a: &x 1\n", "a"),
        ('a: {"b\\nc": &x 1}\n', r"a.'b\nc'"),
        ("a: {[b]: 1}\n", "a"),
    ],
)
def test_what_is_not_supported_is_reported_with_its_path(text, path):
    issues = Issues()
    read(Source("p.yaml", text), issues)
    assert [each.path for each in issues.found] == [path]


@pytest.mark.parametrize("text", ["yes", "010", "0x1F", "1_000", "1:30", ".inf", "1e3", "on"])
def test_a_scalar_keeps_its_text(text):
    assert scalar(f"a: {text}\n").text == text


def test_only_empty_tilde_and_null_are_null():
    nulls = read(Source("p", "a:\nb: ~\nc: null\nd: ''\ne: Null\n"), Issues())
    found = {key: value.is_null for key, (_, value) in nulls.entries.items()}
    assert found == {"a": True, "b": True, "c": True, "d": False, "e": False}


def test_twenty_levels_are_supported():
    assert issues_of("a: " + "[" * 19 + "1" + "]" * 19) == []


@pytest.mark.parametrize(
    "text",
    ["a:\n  one\n  two", "a: >-\n  one\n  two", "a: |\n  one\n  two", "a:\r\n  one\r\n  two"],
)
def test_a_word_on_a_later_line_is_found_there(text):
    lines = len(text.splitlines())
    place = scalar(text).place_of(4)
    assert (place.line, place.column, place.excerpt) == (lines, 3, "  two")


def test_after_an_escape_the_place_is_that_of_the_scalar():
    place = scalar('a: "\\x6fne two"').place_of(4)
    assert (place.line, place.column) == (1, 4)


def test_the_caret_stands_under_its_character():
    text = "a: " + "x" * 200 + "! " + "y" * 200
    place = Source("p.yaml", text).place(203)
    shown, caret = place.caret().splitlines()
    assert shown[caret.index("^")] == "!"
    assert str(place) == "p.yaml:1:204"
