"""Values and faults of expressions, and their syntax errors."""

import math

import pytest

from tests.support.tuning import issues, kinds, rule, value_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10 - 2 - 3", 5),
        ("16 / 4 / 2", 2),
        ("-2 * -3", 6),
        ("- - 2", 2),
        ("+2 - +1", 1),
        ("7 % 3", 1),
        ("-7 % 3", 2),
        ("1e3 + 0.5", 1000.5),
        ("1 if 1 > 2 else 5 if 1 > 2 else 9", 9),
        ("1 + 2 if true else 3", 3),
        ("not 0 and 1", 1),
        ("1 or 0 and 0", 1),
        ("5 and 7", 1),
        ("0 or 7", 1),
        ("(1 < 2) + (2 <= 2) + (3 > 4) + (4 >= 4)", 3),
        ("min(3, 1, 2) + max(3, 1, 2)", 4),
        ("abs(-2) + floor(1.9) + ceil(1.1) + floor(-0.5)", 4),
        ("'a' == 'a'", 1),
        ('"a" != "b"', 1),
        ("vm.os == 'linux'", 1),
        ("('a' if vm.on else 'b') == 'a'", 1),
        ("default(vm.nothing, 'x') == 'x'", 1),
        ("default(vm.on, 5)", 1),
        ("valid(vm.on) + valid(vm.nothing) + valid(vm.on, vm.nothing, vm.os)", 1),
        ("vm.on + 1", 2),
        ("vm.deep.er.x", 3),
        ("default(vm.on.x, 4)", 4),
    ],
)
def test_an_expression_has_its_value(text, value):
    quoted = "'" + text.replace("'", "''") + "'"
    objects = {"os": "linux", "on": True, "deep": {"er": {"x": 3}}, "null": None}
    assert value_of(quoted, vm=objects) == value


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("vm.null + 1", "missing_property"),
        ("1 % vm.zero", "division_by_zero"),
        ("0 / vm.zero", "division_by_zero"),
        ("1 / 0", "division_by_zero"),
        ("vm.big * vm.big", "non_finite"),
        ("vm.big * vm.big - vm.big * vm.big", "non_finite"),
        ("vm.nan", "non_finite"),
        ("vm.huge", "non_finite"),
        ("vm.os < 'x'", "type_error"),
        ("vm.os == 1", "type_error"),
        ("vm.os and 1", "type_error"),
        ("not vm.os", "type_error"),
        ("1 if vm.os else 2", "type_error"),
        ("max(vm.os)", "type_error"),
        ("vm.os", "type_error"),
        ("vm.list", "type_error"),
        ("vm.nothing / vm.zero", "missing_property"),
        ("1 / vm.zero + vm.nothing", "division_by_zero"),
        ("default(1 / vm.zero, 5)", "division_by_zero"),
    ],
)
def test_the_first_fault_from_the_left_is_reported(text, fault):
    objects = {"os": "linux", "zero": 0, "null": None, "big": 1e200, "list": [1]}
    objects |= {"nan": math.nan, "huge": 10**400}
    assert value_of(text, vm=objects) == fault


@pytest.mark.parametrize(
    ("text", "kind", "column"),
    [
        ("1 +", "E_EXPR_SYNTAX", 4),
        ("", "E_EXPR_SYNTAX", 1),
        ("1 2", "E_EXPR_SYNTAX", 3),
        ("(1", "E_EXPR_SYNTAX", 3),
        ("1)", "E_EXPR_SYNTAX", 2),
        ("1 if 2", "E_EXPR_SYNTAX", 7),
        ("1 < 2 < 3", "E_EXPR_SYNTAX", 7),
        ("1 == 2 != 3", "E_EXPR_SYNTAX", 8),
        ("1 + not 2", "E_EXPR_SYNTAX", 5),
        ("-not 2", "E_EXPR_SYNTAX", 2),
        ("2 ** 3", "E_EXPR_SYNTAX", 4),
        ("2 // 3", "E_EXPR_SYNTAX", 4),
        ("a.b && c.d", "E_EXPR_SYNTAX", 5),
        ("a.b = 1", "E_EXPR_SYNTAX", 5),
        ("a.b[0]", "E_EXPR_SYNTAX", 4),
        ("lambda x.y", "E_EXPR_SYNTAX", 8),
        ("a. b", "E_EXPR_SYNTAX", 2),
        ("a.1", "E_EXPR_SYNTAX", 2),
        ("010", "E_EXPR_SYNTAX", 1),
        ("0x1F", "E_EXPR_SYNTAX", 1),
        ("1_000", "E_EXPR_SYNTAX", 1),
        ("1.", "E_EXPR_SYNTAX", 1),
        (".5", "E_EXPR_SYNTAX", 1),
        ("1e999", "E_EXPR_SYNTAX", 1),
        ("abs + 1", "E_EXPR_SYNTAX", 1),
        ("not.x", "E_EXPR_SYNTAX", 1),
        ("min()", "E_EXPR_SYNTAX", 5),
        ("min(1,)", "E_EXPR_SYNTAX", 7),
        ("min(1 2)", "E_EXPR_SYNTAX", 7),
        ("default(1)", "E_EXPR_UNSUPPORTED", 1),
        ("default(1, 2, 3)", "E_EXPR_UNSUPPORTED", 1),
        ("eval(1)", "E_EXPR_UNSUPPORTED", 1),
        ("a.b(1)", "E_EXPR_UNSUPPORTED", 1),
        ("(1)(2)", "E_EXPR_SYNTAX", 4),
        ("valid(1)", "E_EXPR_UNSUPPORTED", 7),
        ("valid(a.b + 1)", "E_EXPR_UNSUPPORTED", 7),
        ("x", "E_NAME", 1),
        ("1 + True", "E_NAME", 5),
    ],
)
def test_a_syntax_error_is_reported_with_its_place(text, kind, column):
    [issue] = issues(rule(f'target: "{text}"'))
    assert issue.kind == kind
    assert issue.place.column == column + len('    target: "')
    assert issue.path == "rules.r.target"


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        ("(" * 40 + "1" + ")" * 40, "(" * 41 + "1" + ")" * 41),
        ("not " * 40 + "1", "not " * 41 + "1"),
        ("-" * 40 + "1", "-" * 41 + "1"),
        ("1 if 1 else " * 40 + "1", "1 if 1 else " * 41 + "1"),
        ("max(" + "1, " * 498 + "1)", "max(" + "1, " * 499 + "1)"),
        ("1+" * 249 + "1", "1+" * 250 + "1"),
        ("(1) + " * 124 + "(1)", "(1) + " * 250 + "(1)"),
        (" " * 1999 + "1", " " * 2000 + "1"),
    ],
)
def test_limits_are_enforced(fits, does_not):
    assert value_of(f'"{fits}"') in {0, 1, -1, 125, 250}
    assert kinds(rule(f'target: "{does_not}"')) == ["E_LIMIT"]
