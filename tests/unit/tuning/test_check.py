"""Policies that do not load: all their issues, at once."""

import pytest

from tests.support.tuning import issues, kinds, load, rule

GOOD = "scope: VM\nrules:\n  r: {output: a.b, target: 1}\n"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["when: 1"], "E_SCHEMA"),
        (["target:"], "E_SCHEMA"),
        (["target: null"], "E_SCHEMA"),
        (["target: [1]"], "E_SCHEMA"),
        (["target: {a: 1}"], "E_SCHEMA"),
        (["min: []"], "E_SCHEMA"),
        (["min: [1, {a: 1}]"], "E_SCHEMA"),
        (["target: 1", "maximum: 2"], "E_SCHEMA"),
        (["target: 1", "when: [1]"], "E_SCHEMA"),
        (["target: 1", "when: {some: [1]}"], "E_SCHEMA"),
        (["target: 1", "when: {any: 1}"], "E_SCHEMA"),
        (["target: 1", "when_any: 1"], "E_SCHEMA"),
        (["target: 1", "when_all: []"], "E_SCHEMA"),
        (["target: 1", "influence: 1 - 2"], "E_SCHEMA"),
        (["target: 1", "min_absolute_change: -1"], "E_SCHEMA"),
        (["target: 1", "max_absolute_change: -1"], "E_SCHEMA"),
        (["target: 1", "max_absolute_change: 0"], "E_SCHEMA"),
        (["target: 1", "max_absolute_change: {value: 1}"], "E_SCHEMA"),
        (["target: 1", "max_absolute_change: {time: 1}"], "E_SCHEMA"),
        (["target: 1", "max_absolute_change: {factor: 1, time: 1}"], "E_SCHEMA"),
        (["target: 1", "max_absolute_change: [1]"], "E_SCHEMA"),
        (["target: 1", "max_relative_change: 1"], "E_SCHEMA"),
        (["target: 1", "max_relative_change: {value: 0, time: 1}"], "E_SCHEMA"),
        (["target: 1", "max_relative_change: {factor: 1, time: 1}"], "E_SCHEMA"),
        (["target: 1", "max_relative_change: {factor: 2, time: soon}"], "E_TIME"),
        (["target: 1", "function: linear"], "E_FUNCTION"),
        (["target: 1", "function: [constant]"], "E_FUNCTION"),
        (["target: 1", "function: {}"], "E_FUNCTION"),
        (["target: 1", "function: {name: sigmoid}"], "E_FUNCTION"),
        (["target: 1", "function: {name: constant, type: linear}"], "E_FUNCTION"),
        (["target: 1", "function: {name: linear, change: 1}"], "E_FUNCTION"),
        (["target: 1", "function: {name: linear, change: 1, time: 1, factor: 2}"], "E_FUNCTION"),
        (["target: 1", "function: {name: exponential, factor: 0, time: 1}"], "E_FUNCTION"),
        (["target: 1", "function: {name: exponential, factor: -2, time: 1}"], "E_FUNCTION"),
    ],
)
def test_an_invalid_rule_is_refused(lines, kind):
    found = issues(rule(*lines))
    assert {str(each.kind) for each in found} == {kind}
    assert all(each.path.startswith("rules.r") for each in found)


@pytest.mark.parametrize("change", ["0", "1 - 1", "-0.0"])
def test_a_function_that_never_moves_is_refused(change):
    [issue] = issues(rule("target: 1", f"function: {{name: linear, change: {change}, time: 1}}"))
    assert (str(issue.kind), issue.path) == ("E_FUNCTION", "rules.r.function.change")


@pytest.mark.parametrize(
    "time",
    ["0", "-1", "0 sec", "1:30", "1 fortnight", "sec", "1 s s", "1e999", "010", "[1]", "1 SEC",
     "1.", "9" * 101],
)  # fmt: skip
def test_an_invalid_time_is_refused(time):
    text = rule("target: 1", f"function: {{name: linear, change: 1, time: {time}}}")
    assert kinds(text) == ["E_TIME"]


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("2", 2), ("1.5 min", 90), ("10ms", 0.01), ("2 hours", 7200), ("1 d", 86400), ("'3'", 3)],
)
def test_a_time_is_in_seconds(time, seconds):
    text = rule("target: 1", f"function: {{name: linear, change: 1, time: {time}}}")
    [plan] = load(text).plans.values()
    assert plan.outputs[0].rules[0].function.time_s == seconds


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("scope: vm\nrules: {r: {output: a.b, target: 1}}", "E_SCOPE"),
        ("scope: [VM]\nrules: {r: {output: a.b, target: 1}}", "E_SCOPE"),
        ("scope:\nrules: {r: {output: a.b, target: 1}}", "E_SCOPE"),
        ("scope: VM", "E_SCHEMA"),
        ("scope: VM\nrules: {}", "E_SCHEMA"),
        ("scope: VM\nrules: [a]", "E_SCHEMA"),
        ("scope: VM\nrules: {r: 1}", "E_SCHEMA"),
        ("scope: VM\nrules: {r: }", "E_SCHEMA"),
        ("scope: VM\nvars: [a]\nrules: {r: {output: a.b, target: 1}}", "E_SCHEMA"),
        ("scope: VM\nvars: {a: {any: [1]}}\nrules: {r: {output: a.b, target: 1}}", "E_SCHEMA"),
        ("scope: VM\nrules: {r-1: {output: a.b, target: 1}}", "E_NAME"),
        ("scope: VM\nrules: {if: {output: a.b, target: 1}}", "E_NAME"),
        ("scope: VM\nvars: {abs: 1}\nrules: {r: {output: a.b, target: 1}}", "E_NAME"),
        ("scope: VM\nvars: {a.b: 1}\nrules: {r: {output: a.b, target: 1}}", "E_NAME"),
        ("scope: VM\nvars: {x: 1}\nconditions: {x: 1}\nrules: {r: {output: a.b, target: x}}",
         "E_NAME"),
        ("scope: VM\nvars: {x: y}\nrules: {r: {output: a.b, target: 1}}", "E_NAME"),
        ("scope: VM\nconditions: {x: {all: [x]}}\nrules: {r: {output: a.b, target: 1}}", "E_CYCLE"),
    ],
)  # fmt: skip
def test_an_invalid_document_is_refused(text, kind):
    assert kinds(text + "\n") == [kind]


@pytest.mark.parametrize(
    ("length", "end"), [(10, "'v9' uses 'v0'"), (11, "'v9' uses ...")], ids=["whole", "cut"]
)
def test_the_message_of_a_long_cycle_is_cut(length, end):
    names = "".join(f"  v{number}: v{(number + 1) % length}\n" for number in range(length))
    [issue] = issues(f"vars:\n{names}{GOOD}")
    assert str(issue.kind) == "E_CYCLE"
    assert issue.message.endswith(end)


def of_condition(condition, *lines, names=""):
    return rule(*lines, head=f"{names}conditions:\n  c: {condition}\n")


@pytest.mark.parametrize(
    "condition",
    ["host.free", "host.free - 1", "2", "-(a.b < 1)", "max(a.b, 1)", "a.b if a.c else true",
     "default(a.b, 1)", "\"'text'\""],
)  # fmt: skip
@pytest.mark.parametrize(
    "line",
    ["target: c", "target: c + 1", "target: 1 if c == 1 else 2", "target: default(c, 1)",
     "target: 2 if a.b else c", "min: [1, abs(c)]", "max: min(1, c)", "influence: c",
     "min_absolute_change: c", "max_absolute_change: {value: c, time: 1}",
     "max_relative_change: {factor: c, time: 1}", "when: c > 0",
     "function: {name: linear, change: c, time: 1}"],
)  # fmt: skip
def test_a_condition_that_is_a_number_cannot_be_used_as_a_number(condition, line):
    lines = [line] if line.startswith("target") else ["target: 1", line]
    [issue] = issues(of_condition(condition, *lines))
    assert (str(issue.kind), issue.place.line) == ("E_NAME", 6 + len(lines))
    assert "'c' is a condition, and a number is needed here" in issue.message


@pytest.mark.parametrize(
    "line",
    ["when: c", "when: not c or a.b", "when: {any: [c, a.b]}", "when_all: [c, valid(c)]",
     "min: 2 if c else 3"],
)  # fmt: skip
def test_a_condition_that_is_a_number_can_be_tested(line):
    load(of_condition("host.free", "target: 1", line))


@pytest.mark.parametrize(
    "condition",
    ["a.b < 1", "not a.b", "a.b and a.c", "valid(a.b)", "true", "{any: [a.b]}", "{all: [a.b]}",
     "a.b > 1 if a.c else false", "default(a.b > 1, 0)"],
)  # fmt: skip
def test_a_boolean_condition_can_be_used_as_a_number(condition):
    load(of_condition(condition, "target: c * 2", "influence: c"))


@pytest.mark.parametrize(
    ("names", "condition"),
    [
        ("vars: {v: host.free}\n", "v"),
        ("vars: {v: host.free}\n", "{any: [v]}"),
        ("vars: {v: host.free > 1}\n", "v"),
    ],
)
def test_a_condition_has_the_type_of_the_var_that_it_names(names, condition):
    text = of_condition(condition, "target: c", names=names)
    if condition == "v" and ">" not in names:
        assert kinds(text) == ["E_NAME"]
    else:
        load(text)


def test_a_var_that_is_a_numeric_condition_is_refused_where_it_is_defined():
    [issue] = issues(of_condition("host.free", "target: v", names="vars: {v: c}\n"))
    assert (str(issue.kind), issue.path) == ("E_NAME", "vars.v")


def test_a_condition_with_an_issue_has_no_second_one():
    assert kinds(of_condition("1 +", "target: c")) == ["E_EXPR_SYNTAX"]


def test_more_rules_than_a_file_may_have_are_refused():
    def file(count):
        rules = "".join(f"  r{number}: {{output: a.b, target: 1}}\n" for number in range(count))
        return f"scope: VM\nrules:\n{rules}"

    load(file(1000))
    assert kinds(file(1001)) == ["E_LIMIT"]


def test_conditions_are_nested_eight_levels_deep_and_no_deeper():
    def nested(depth):
        return "{any: [" * depth + "1" + "]}" * depth

    condition = f"conditions: {{c: {nested(8)}}}\n"
    load(condition + GOOD)
    assert kinds(condition.replace(nested(8), nested(9)) + GOOD) == ["E_LIMIT"]


def test_all_issues_of_all_files_are_reported_in_their_order():
    first = "scope: Nowhere\nvars: {x: 1 +}\nrules:\n  r: {output: a, target: zz, maximum: 1}\n"
    found = [
        (each.place.file, each.place.line, str(each.kind)) for each in issues(first, "a: [\n", GOOD)
    ]
    assert found == [
        ("1.yaml", 1, "E_SCOPE"),
        ("1.yaml", 2, "E_EXPR_SYNTAX"),
        ("1.yaml", 4, "E_SCHEMA"),
        ("1.yaml", 4, "E_NAME"),
        ("1.yaml", 4, "E_SCHEMA"),
        ("2.yaml", 2, "E_YAML"),
    ]


def test_an_issue_has_the_format_of_compiler_messages():
    [issue] = issues(rule("target: 1", "functio: constant"))
    assert str(issue) == (
        "1.yaml:6:5: E_SCHEMA: rules.r.functio: 'functio' is not known here; "
        "did you mean function?\n"
        "      functio: constant\n"
        "      ^"
    )


def test_uses_of_a_name_with_an_issue_have_none():
    assert kinds(rule("target: x + 1", head="vars: {x: 1 +}\n")) == ["E_EXPR_SYNTAX"]


@pytest.mark.parametrize(
    "text",
    [
        rule("<<: {target: 1}"),
        GOOD.replace("r:", "1:"),
        GOOD.replace("scope", "1"),
        rule("target: !t 1", "function: !t linear"),
        rule("target: 1", "when: {1: [true]}"),
        rule("target: 1", "function: {<<: 1, name: linear}"),
        rule("target: x", head="vars: {<<: {x: 1}}\n"),
        rule("target: x", head="vars: *v\n"),
    ],
)
def test_unsupported_yaml_causes_no_second_issue(text):
    assert set(kinds(text)) == {"E_YAML"}


@pytest.mark.parametrize("line", ["target: v", "min: [1, v]", "max: \"'x'\""])
def test_a_text_is_refused_where_a_number_is_needed(line):
    [issue] = issues(rule(line, head="vars: {v: \"'text'\"}\n"))
    assert (str(issue.kind), issue.message) == (
        "E_SCHEMA",
        "is a text; a number is needed here",
    )


def test_a_tab_is_named():
    [issue] = issues("scope: VM\nrules:\n\tr: {output: a.b, target: 1}\n")
    assert (str(issue.kind), issue.message) == ("E_YAML", "there is a tab; indent with spaces")


def test_names_are_local_to_their_file():
    with_name = rule("target: x", head="vars: {x: 1}\n")
    assert [each.place.file for each in issues(with_name, rule("target: x"))] == ["2.yaml"]


def test_common_subexpressions_are_evaluated_once():
    text = rule(
        "target: q", "when: q > 1", head="vars: {q: x.a / x.b}\nconditions: {c: x.a / x.b}\n"
    )
    [plan] = load(text).plans.values()
    assert [step.op for step in plan.steps].count("/") == 1


def test_unused_expressions_are_not_evaluated():
    [plan] = load(rule("target: 1", head="vars: {unused: x.a / x.b}\n")).plans.values()
    assert [plan.steps[number].op for number in plan.live] == ["constant", "property"]
