"""Policies that do not load: everything that is wrong with them, at once."""

import pytest

from scheduler_worker.errors import SchedulerWorkerError
from scheduler_worker.tuning.issues import MOST_ISSUES
from tests.support.tuning import issues, kinds, load, rule

GOOD = "scope: VM\nrules:\n  r: {output: a.b, target: 1}\n"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["min: 1", "max: 2"], "E_SCHEMA"),
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
        (["target: 1", "max_absolute_change: {value: 1}"], "E_SCHEMA"),
        (["target: 1", "max_absolute_change: {time: 1}"], "E_SCHEMA"),
        (["target: 1", "max_absolute_change: {factor: 1, time: 1}"], "E_SCHEMA"),
        (["target: 1", "max_absolute_change: [1]"], "E_SCHEMA"),
        (["target: 1", "max_relative_change: 1"], "E_SCHEMA"),
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
def test_a_rule_is_refused(lines, kind):
    found = issues(rule(*lines))
    assert {str(each.kind) for each in found} == {kind}
    assert all(each.path.startswith("rules.r") for each in found)


@pytest.mark.parametrize(
    "time",
    ["0", "-1", "0 sec", "1:30", "1 fortnight", "sec", "1 s s", "1e999", "010", "[1]", "1 SEC",
     "1.", "9" * 101],
)  # fmt: skip
def test_a_time_is_refused(time):
    text = rule("target: 1", f"function: {{name: linear, change: 1, time: {time}}}")
    assert kinds(text) == ["E_TIME"]


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("2", 2), ("1.5 min", 90), ("10ms", 0.01), ("2 hours", 7200), ("1 d", 86400), ("'3'", 3)],
)
def test_a_time_is_in_seconds(time, seconds):
    text = rule("target: 1", f"function: {{name: linear, change: 1, time: {time}}}")
    [plan] = load(text).plans.values()
    assert plan.outputs[0].rules[0].movement.time_s == seconds


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
def test_a_document_is_refused(text, kind):
    assert kinds(text + "\n") == [kind]


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


def test_all_issues_of_all_files_are_told_in_their_order():
    first = "scope: Nowhere\nvars: {x: 1 +}\nrules:\n  r: {output: a, target: zz, maximum: 1}\n"
    told = [
        (each.place.file, each.place.line, str(each.kind)) for each in issues(first, "a: [\n", GOOD)
    ]
    assert told == [
        ("1.yaml", 1, "E_SCOPE"),
        ("1.yaml", 2, "E_EXPR_SYNTAX"),
        ("1.yaml", 4, "E_SCHEMA"),
        ("1.yaml", 4, "E_NAME"),
        ("1.yaml", 4, "E_SCHEMA"),
        ("2.yaml", 2, "E_YAML"),
    ]


def test_an_issue_looks_as_compilers_tell_it():
    [issue] = issues(rule("target: 1", "functio: constant"))
    assert str(issue) == (
        "1.yaml:6:5: E_SCHEMA: rules.r.functio: 'functio' is not known here; "
        "did you mean function?\n"
        "      functio: constant\n"
        "      ^"
    )


def test_a_name_with_an_issue_makes_no_second_one():
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
def test_what_is_no_yaml_of_ours_makes_no_second_issue(text):
    assert set(kinds(text)) == {"E_YAML"}


def test_a_file_that_is_nested_too_deeply_hides_no_issue_of_another():
    assert kinds("a: " + "[" * 30, rule("target: x")) == ["E_LIMIT", "E_NAME"]


def test_a_cycle_is_told_once_with_its_members():
    [issue] = issues(rule("target: a", head="vars: {a: b, b: c, c: b + d, d: 1}\n"))
    assert issue.message == "'b' uses 'c' uses 'b'"


def test_a_constant_out_of_range_is_found_through_a_var():
    [issue] = issues(rule("target: 1", "influence: w", head="vars: {v: 2, w: 1 - v}\n"))
    assert (str(issue.kind), issue.path) == ("E_SCHEMA", "rules.r.influence")


def test_names_belong_to_their_file():
    with_name = rule("target: x", head="vars: {x: 1}\n")
    assert [each.place.file for each in issues(with_name, rule("target: x"))] == ["2.yaml"]


def test_what_is_said_twice_is_done_once():
    text = rule(
        "target: q", "when: q > 1", head="vars: {q: x.a / x.b}\nconditions: {c: x.a / x.b}\n"
    )
    [plan] = load(text).plans.values()
    assert [step.op for step in plan.steps].count("/") == 1


def test_what_nobody_needs_is_not_done():
    [plan] = load(rule("target: 1", head="vars: {unused: x.a / x.b}\n")).plans.values()
    assert [plan.steps[number].op for number in plan.live] == ["constant", "property"]


def test_there_is_an_end_to_issues():
    text = "".join(f"k{number}: 1\n" for number in range(MOST_ISSUES + 5))
    assert len(issues(text)) == MOST_ISSUES


def test_a_policy_error_is_ours_and_shows_everything():
    from scheduler_worker.errors import PolicyError

    assert issubclass(PolicyError, SchedulerWorkerError)
    found = issues("a: 1\n")
    assert str(PolicyError(found)) == "\n".join(map(str, found))
