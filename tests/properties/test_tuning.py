"""The tuning language with arbitrary policies and arbitrary statistics."""

import json
import math
import operator
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from scheduler_worker.errors import TuningPolicyError
from scheduler_worker.model.issues import Kind
from scheduler_worker.tuning import movement
from scheduler_worker.tuning.dry_run import dry_run
from scheduler_worker.tuning.evaluate import evaluate
from scheduler_worker.tuning.expressions import parse
from scheduler_worker.tuning.issues import Issues
from scheduler_worker.tuning.samples import Entity, EvaluatorState, Sample, entity_groups
from scheduler_worker.tuning.yaml_subset import Scalar, Source
from tests.support.trials import examples
from tests.support.tuning import cycle_of, load, one_vm, outputs, rule, value_of

ROOT = Path(__file__).resolve().parents[2]
STOCK = [path.read_text() for path in (ROOT / "etc/scheduler_worker/tuning").rglob("*.yaml")]
CASES = json.loads((ROOT / "tests/cases/tuning/language.json").read_text())
TEXTS = [each for case in CASES if isinstance(each := case["policy_yaml"], str)] + STOCK
VM1 = Entity("VM", "vm1")

WORDS = """1 2.5 0 x.a x.b x.t x.lost v 'text' + - * / % < <= > >= == != and or not if else ( )
    , . min max abs floor ceil valid default true false ** [ ] " ' & : # 1e308 999 _"""
words = st.sampled_from(WORDS.split())
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
    | st.sampled_from([0, 1, -1, 10**400, 1e308, 5e-324]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abt"), inner),
    max_leaves=3,
)  # fmt: skip
finite = st.floats(-1e6, 1e6).filter(lambda each: each == 0 or abs(each) > 1e-6)
factors = st.floats(0.1, 10).filter(lambda each: abs(each - 1) > 1e-3)
times = st.floats(0, 1000)


def loaded(*texts):
    """Return the program, or None if the text is refused with proper issues."""
    try:
        return load(*texts)
    except TuningPolicyError as error:
        assert error.issues
        assert all(each.kind in Kind and each.place.line > 0 for each in error.issues)
        assert str(error)
        return None


@given(st.text())
@example("'")
@example("a: |1-\n  x")
def test_any_text_is_a_policy_or_has_issues(text):
    loaded(text)


@examples(150)
@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False))
def test_any_damaged_document_is_a_policy_or_has_issues(text, rng):
    for _ in range(rng.randint(1, 4)):
        start = rng.randint(0, len(text))
        end = min(len(text), start + rng.choice([0, 1, 1, 2, 20]))
        piece = rng.choice(
            ["", "", " ", "\n", "  ", ":", "- ", "[", "}", '"', "&a ", "*a", "\t", "é"]
        )
        text = text[:start] + piece + text[end:]
    loaded(text)


@examples(150)
@given(st.lists(words, max_size=25).map(" ".join) | st.text(max_size=30))
def test_any_text_is_an_expression_or_has_an_issue(text):
    issues = Issues()
    source = Source("p", text)
    expr = parse(Scalar(source, 0, len(text), text, plain=False), "here", issues)
    assert len(issues.found) <= 1
    for number, step in enumerate(expr.steps):
        assert all(each < number for each in step.args)


RUNS = {
    "everything": rule(
        "target: x.t", "min: [x.a, 0]", "max: x.b", "influence: x.w",
        "function: {name: exponential, factor: x.f, time: 1}", "when_any: [x.a > 1, not x.b]",
        "min_absolute_change: x.a", "min_relative_change: x.b",
        "max_absolute_change: x.a", "max_relative_change: {value: x.b, time: 2}",
    ) + "  s: {output: x.out, target: x.a / x.b % x.t, max_relative_change: "
    "{factor: x.f, time: 3}}\n  l: {output: x.t, target: x.out, function: "
    "{name: linear, change: x.a, time: 1}}\n",
    "truth": rule("target: default(x.a, 1) if valid(x.b) else -x.t", "when: x.a == x.b or x.t"),
    "deep": rule("target: x.a.b + x.a.a.t", "when: x.a.b != 'text'"),
}  # fmt: skip
PROGRAMS = {name: load(text) for name, text in RUNS.items()}


@examples(100)
@given(
    st.sampled_from(sorted(PROGRAMS)),
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b", "t", "f", "w", "out"]), anything) | anything,
        min_size=1,
        max_size=4,
    ),
    st.lists(st.floats(-10, 1e300), min_size=1, max_size=3),
)
def test_any_statistics_make_finite_changes_or_diagnostics(name, objects, clock):
    sample = Sample(vms={f"vm{number}": {"x": each} for number, each in enumerate(objects)})
    state = EvaluatorState()
    for now_s in clock:
        cycle = cycle_of(PROGRAMS[name], sample, state, now_s)
        state = cycle.state
        made = [value for each in cycle.changes.values() for value in each.values()]
        assert all(isinstance(value, float) and math.isfinite(value) for value in made)
        assert all(each.kind for each in cycle.diagnostics)


@given(st.lists(st.dictionaries(st.sampled_from("abtfw"), anything), min_size=1, max_size=5))
def test_vms_evaluated_together_get_what_each_gets_alone(objects):
    vms = {f"vm{number}": {"x": each | {"out": 3.0}} for number, each in enumerate(objects)}
    state = EvaluatorState(dict.fromkeys((Entity("VM", name) for name in vms), 0.0))
    for program in PROGRAMS.values():
        together = evaluate(program, entity_groups({"h": Sample(vms=vms)}), state, 5.0)
        alone = [
            evaluate(program, entity_groups({"h": Sample(vms={name: vm})}), state, 5.0)
            for name, vm in vms.items()
        ]
        assert together.changes == {
            key: made for each in alone for key, made in each.changes.items()
        }
        diagnostics = [each for cycle in alone for each in cycle.diagnostics]
        assert sorted(map(str, together.diagnostics)) == sorted(map(str, diagnostics))


@given(st.permutations(range(4)), finite, finite)
def test_the_order_of_rules_and_files_has_no_meaning(order, out, target):
    texts = [
        rule("target: x.t", "influence: 2"),
        rule("target: 0", "function: {name: linear, change: 1, time: 1}"),
        rule("target: x.out").replace("x.out\n", "x.other\n", 1),
        rule("min: x.t", "max_absolute_change: 3"),
    ]
    sample, state = one_vm(x={"out": out, "t": target}), EvaluatorState({VM1: 0.0})
    one = outputs(cycle_of(load(*texts), sample, state, 7.0))
    other = outputs(cycle_of(load(*(texts[index] for index in order)), sample, state, 7.0))
    assert one.keys() == other.keys()
    for name, made in one.items():
        assert other[name] == pytest.approx(made, rel=1e-12)


BINARY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "<": operator.lt,
          "<=": operator.le, "==": operator.eq, "!=": operator.ne}  # fmt: skip


@given(st.integers(0, 2**32))
def test_an_expression_has_the_value_of_its_tree(seed):
    text, value = _tree(random.Random(seed), depth=5)
    assume(len(text) < 1900)
    assert value_of(f'"{text}"', x={"a": 3}) == pytest.approx(value, rel=1e-12)


def _tree(rng, depth):
    """Return an expression in parentheses, and its value."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(
            [("x.a", 3.0), ("true", 1.0), *((str(each), each) for each in (0, 1, 2.5))]
        )
    left, first = _tree(rng, depth - 1)
    right, second = _tree(rng, depth - 1)
    kind = rng.choice(["if", "and", "or", "not", "-", "max", *BINARY, *BINARY])
    if kind == "if":
        third, condition = _tree(rng, depth - 1)
        return f"({left} if {third} else {right})", first if condition else second
    if kind in {"and", "or"}:
        both = first and second if kind == "and" else first or second
        return f"({left} {kind} {right})", float(bool(both))
    if kind == "not":
        return f"(not {left})", float(not first)
    if kind == "max":
        return f"max({left}, {right})", max(first, second)
    return f"({left} {kind} {right})", float(BINARY[kind](first, second))


MOVEMENTS = {
    "linear": st.floats(0, 1e3),
    "exponential": factors,
    "within_amount": st.floats(0, 1e3),
    "within_fraction": st.floats(0, 2),
    "within_factor": factors,
}
periods = st.floats(0, 20)


@pytest.mark.parametrize("kind", MOVEMENTS)
@given(current=finite, target=finite, first=periods, second=periods, data=st.data())
def test_two_steps_equal_one_step(kind, current, target, first, second, data):
    amount = data.draw(MOVEMENTS[kind])

    def moved(start, periods):
        ends = (target, start) if kind.startswith("within") else (start, target)
        columns = (np.array([value], np.float64) for value in (*ends, amount, periods))
        with np.errstate(all="ignore"):
            return float(getattr(movement, kind)(*columns)[0])

    twice, once = moved(moved(current, first), second), moved(current, first + second)
    tolerance = 1e-300 if kind == "exponential" else 1e-6
    assert twice == pytest.approx(once, rel=1e-9, abs=tolerance)


@given(
    finite, finite, factors, times,
    st.sampled_from(["", "max_absolute_change: 3", "max_relative_change: {value: 0.3, time: 5}"]),
    st.sampled_from(["constant", "{name: linear, change: 7, time: 2}", "exponential"]),
)  # fmt: skip
def test_no_output_overshoots_its_target_or_moves_away_from_it(
    out, target, factor, elapsed_s, limit, name
):
    function = (
        f"{{name: exponential, factor: {factor}, time: 3}}" if name == "exponential" else name
    )
    program = load(rule("target: x.t", f"function: {function}", *([limit] if limit else [])))
    sample = one_vm(x={"out": out, "t": target})
    cycle = cycle_of(program, sample, EvaluatorState({VM1: 0.0}), elapsed_s)
    value = outputs(cycle).get("vm1", {"x.out": out})["x.out"]
    assert min(out, target) <= value <= max(out, target)


@given(finite, finite)
def test_a_dry_run_that_is_long_enough_reaches_the_target(out, target):
    program = load(rule("target: x.t", "function: {name: linear, change: 1000, time: 1}"))
    cycles = dry_run(program, [one_vm(x={"out": out, "t": target})] * 4, interval_s=1000)
    assert cycles[-1].changes == {}
    assert float(cycles[-1].results["VM"][0].current.values[0]) == target
