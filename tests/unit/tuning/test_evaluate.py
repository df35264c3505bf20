"""One evaluation of statistics: cases beyond the recorded ones."""

import math
from typing import Any

import pytest

from scheduler_worker.tuning.samples import (
    Entity,
    EvaluatorState,
    HeldChange,
    Sample,
)
from tests.support.tuning import cycle_of, diagnosed, load, one_vm, outputs, rule

VM1 = Entity("VM", "vm1")
LINEAR = "function: {name: linear, change: 1, time: 1 sec}"


def after_ten_seconds(text, out):
    """Return the new value of x.out."""
    cycle = cycle_of(load(text), one_vm(x={"out": out}), EvaluatorState({VM1: 0.0}), 10.0)
    return outputs(cycle)["vm1"]["x.out"]


def test_a_disk_sees_its_own_objects_then_those_of_its_vm_and_the_host():
    text = "scope: VM.disk\nrules:\n  r: {output: io.iops, target: policy.iops + vm.n + host.n}\n"
    disks: dict[str, Any] = {
        "vm1": {"vda": {"policy": {"iops": 500}, "io": {"iops": 1}}, "vdb": {}}
    }
    sample = Sample(
        host={"host": {"n": 10000}},
        vms={"vm1": {"policy": {"iops": 100}, "vm": {"n": 1}, "io": {"iops": 10101}}},
        disks=disks,
    )
    cycle = cycle_of(load(text), sample)
    assert outputs(cycle) == {"vm1/vda": {"io.iops": 10501}}


def test_a_fault_of_one_vm_affects_no_other_vm_and_no_other_rule():
    text = rule("target: 1 / x.n") + "  s: {output: y.out, target: 7}\n"
    sample = Sample(vms={"bad": {"x": {"n": 0}}, "good": {"x": {"n": 4}}, "poor": {}})
    cycle = cycle_of(load(text), sample)
    assert outputs(cycle) == {
        "bad": {"y.out": 7}, "good": {"x.out": 0.25, "y.out": 7}, "poor": {"y.out": 7},
    }  # fmt: skip
    found = {(str(each.entity), each.rule, each.kind) for each in cycle.diagnostics}
    assert found == {
        ("bad", "1.yaml:r", "division_by_zero"), ("poor", "1.yaml:r", "missing_property"),
    }  # fmt: skip


def test_a_diagnostic_names_the_property_and_its_place():
    [diagnostic] = cycle_of(load(rule("target: 1 + x.lost")), one_vm(x={})).diagnostics
    assert diagnostic.detail == "x.lost (1.yaml:5:17)"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["target: 1", "influence: x.n"], "negative_influence"),
        (["target: 1", "function: {name: exponential, factor: x.n, time: 1}"], "bad_factor"),
        (["target: 1", "max_absolute_change: x.n"], "bad_limit"),
        (["target: 1", "max_relative_change: {value: x.n, time: 1}"], "bad_limit"),
        (["target: 1", "max_relative_change: {factor: x.n, time: 1}"], "bad_limit"),
        (["target: 1", "min_relative_change: x.n"], "bad_limit"),
        (["target: 1", "when: x.text"], "type_error"),
        (["target: 1", "function: {name: linear, change: x.big, time: 1 ms}"], "non_finite"),
    ],
)
def test_a_rule_with_a_bad_value_is_skipped(lines, kind):
    sample = one_vm(x={"out": 1e308, "n": -1, "text": "t", "big": math.nan})
    cycle = cycle_of(load(rule(*lines)), sample, EvaluatorState({VM1: 0.0}), 10.0)
    assert diagnosed(cycle) == [kind]
    assert outputs(cycle) == {}


def test_an_observed_value_that_is_not_a_number_skips_its_rules():
    cycle = cycle_of(load(rule("target: 1")), one_vm(x={"out": "text"}))
    assert (diagnosed(cycle), outputs(cycle)) == (["type_error"], {})


def test_when_and_when_any_and_when_all_must_all_be_true():
    text = rule("target: 1", "when: x.a", "when_any: [x.b, x.c]", "when_all: [x.d, {any: [x.e]}]")
    flags = dict.fromkeys("abcde", 1)
    for off, expected in [("", 1), ("a", 0), ("b", 1), ("bc", 0), ("d", 0), ("e", 0)]:
        sample = one_vm(x=flags | dict.fromkeys(off, 0) | {"out": 0})
        assert outputs(cycle_of(load(text), sample)).get("vm1", {"x.out": 0})["x.out"] == expected


def test_equal_bounds_do_not_conflict():
    cycle = cycle_of(load(rule("target: 1", "min: 5", "max: 5")), one_vm(x={"out": 1}))
    assert (diagnosed(cycle), outputs(cycle)) == ([], {"vm1": {"x.out": 5}})


def test_a_change_of_direction_discards_the_accumulated_time():
    state = EvaluatorState({VM1: 100.0}, {}, {"1.yaml:r": {VM1: HeldChange(99, -1)}})
    text = rule("target: x.t", LINEAR, "min_absolute_change: 5")
    program = load(text)
    for target, expected in ((0, 80 - 109 + 29), (1000, 90)):
        cycle = cycle_of(program, one_vm(x={"out": 80, "t": target}), state, 110.0)
        assert outputs(cycle) == {"vm1": {"x.out": expected}}


def test_the_state_of_entities_that_are_gone_is_dropped():
    program = load(
        rule("target: 0", "min_absolute_change: 200"), rule("target: 5").replace("x.out", "x.new")
    )
    state = cycle_of(program, Sample(vms={"a": {"x": {"out": 1}}, "b": {"x": {"out": 1}}})).state
    assert {each.name for each in state.evaluated_at_s} == {"a", "b"}
    state = cycle_of(program, Sample(vms={"b": {"x": {"out": 1}}}), state, 1.0).state
    parts = [state.evaluated_at_s, state.emitted["x.new"], state.held["1.yaml:r"]]
    assert all([each.name for each in part] == ["b"] for part in parts)  # type: ignore[attr-defined]


def test_zero_is_not_stuck_at_a_target_of_zero():
    lines = ["function: {name: exponential, factor: 2, time: 1}"]
    lines += ["max_relative_change: {value: 0.5, time: 1}"]
    cycle = cycle_of(
        load(rule("target: 0", *lines)), one_vm(x={"out": 0}), EvaluatorState({VM1: 0.0}), 1.0
    )
    assert (diagnosed(cycle), outputs(cycle)) == ([], {})


def test_constant_with_a_limit_equals_the_function():
    limited = rule("target: 0", "max_absolute_change: {value: 3, time: 2}")
    linear = rule("target: 0", "function: {name: linear, change: 3, time: 2}")
    assert after_ten_seconds(limited, 100) == after_ten_seconds(linear, 100) == 85
    limited = rule("target: 900", "max_relative_change: {factor: 0.5, time: 5}")
    function = rule("target: 900", "function: {name: exponential, factor: 2, time: 5}")
    assert after_ten_seconds(limited, 100) == after_ten_seconds(function, 100) == 400


def test_without_entities_there_are_no_changes():
    cycle = cycle_of(load(rule("target: 1")), Sample())
    assert (cycle.changes, cycle.diagnostics) == ({}, [])


def test_each_change_names_the_rules_that_voted_for_it():
    texts = (
        rule("target: 1", "when: x.first"),
        rule("target: 2", "when: x.second") + "  s: {output: y.out, target: 7}\n",
    )
    vms: dict[str, dict[str, Any]] = {
        "both": {"x": {"first": 1, "second": 1}},
        "second": {"x": {"first": 0, "second": 1}},
        "none": {"x": {"first": 0, "second": 0, "out": 5}, "y": {"out": 7}},
        "first": {"x": {"first": 1, "second": 0}, "y": {"out": 7}},
        "stays": {"x": {"first": 1, "second": 0, "out": 1}, "y": {"out": 7}},
    }
    cycle = cycle_of(load(*texts), Sample(vms=vms))
    of_y = {"y.out": ("2.yaml:s",)}
    assert {entity.name: made for entity, made in cycle.changed_by.items()} == {
        "both": {"x.out": ("1.yaml:r", "2.yaml:r")} | of_y,
        "second": {"x.out": ("2.yaml:r",)} | of_y,
        "first": {"x.out": ("1.yaml:r",)},
    }
    assert cycle.changes.keys() == cycle.changed_by.keys()
