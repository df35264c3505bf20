"""Explanations, dry runs, the stock policies, the JSON Schema, and the examples of the manual."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from conformance import reading

from scheduler_worker.tuning import loader, reader
from scheduler_worker.tuning.dry_run import (
    dry_run,
    explanations,
    outputs_over_time,
    repeated,
    table,
)
from scheduler_worker.tuning.expressions import FUNCTIONS, KEYWORDS
from scheduler_worker.tuning.samples import Entity, EvaluatorState, Sample
from scheduler_worker.tuning.tuning_policy import Scope
from scheduler_worker.tuning.yaml_subset import Source
from tests.support.tuning import cycle_of, load, one_vm, rule

ROOT = Path(__file__).resolve().parents[3]
POLICIES = ROOT / "etc" / "scheduler_worker" / "tuning"
STOCK = sorted(POLICIES.rglob("*.yaml"))
MANUAL = (ROOT / "docs" / "tuning-language.md").read_text()
SCHEMA = json.loads((POLICIES / "policy.schema.json").read_text())
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)
VM1 = Entity("VM", "vm1")


def explained(*texts, out, elapsed_s=10.0):
    sample = one_vm(x={} if out is None else {"out": out})
    cycle = cycle_of(load(*texts), sample, EvaluatorState({VM1: 0.0}), elapsed_s)
    return [each.text for each in explanations(cycle)]


def test_an_explanation_has_votes_weights_and_limits():
    limited = rule("target: 0", "influence: 3", "max_absolute_change: 2")
    assert explained(limited, rule("target: 100", "when: true"), out=50) == [
        "vm1 x.out: 50 -> 47.5\n"
        "  1.yaml:r: weight 3, target 0, after 10 s: 0, limited by max_absolute_change, "
        "votes for 30\n"
        "  2.yaml:r: weight 1, target 100, after 10 s: 100, votes for 100"
    ]


def test_an_explanation_names_a_bound_that_limits_the_target():
    bounded = rule("target: 0", "min: [20, 10]", "max: 90", "max_absolute_change: 2")
    assert explained(bounded, out=50) == [
        "vm1 x.out: 50 -> 30\n"
        "  1.yaml:r: weight 1, target 20, after 10 s: 20, limited by min and max_absolute_change, "
        "votes for 30"
    ]
    assert "limited" not in str(explained(rule("min: 20"), out=50))


def test_an_explanation_says_that_a_change_is_held_back():
    assert explained(rule("target: 52", "min_absolute_change: 5"), out=50) == [
        "vm1 x.out: stays 50\n"
        "  1.yaml:r: weight 1, target 52, after 10 s: 52, held back: the change is too small yet"
    ]


def test_an_explanation_needs_no_present_value():
    [explanation] = explained(rule("target: 52"), out=None)
    assert explanation.startswith("vm1 x.out: unknown -> 52\n")


def test_a_dry_run_applies_the_outputs():
    program = load(rule("target: 0", "function: {name: linear, change: 1, time: 1 sec}"))
    cycles = dry_run(program, repeated([one_vm(x={"out": 100})], 4), interval_s=15)
    assert outputs_over_time(cycles) == {"vm1 x.out": [100, 85, 70, 55]}
    assert list(table(cycles, interval_s=15)) == [
        "seconds  vm1 x.out",
        "      0        100",
        "     15         85",
        "     30         70",
        "     45         55",
    ]


def test_a_dry_run_computes_averages_and_shows_unknown_values():
    program = load(rule("target: x.seen_avg", "when: x.seen > 1"))
    samples = [one_vm(x={"seen": seen}) for seen in (1, 2, 6)]
    cycles = dry_run(program, samples, interval_s=15)
    assert outputs_over_time(cycles) == {"vm1 x.out": [None, 1.5, 3]}
    assert list(table(cycles, interval_s=15))[1].split() == ["0", "-"]


def test_samples_are_repeated_to_the_number_of_cycles():
    samples = [one_vm(a={}), one_vm(b={})]
    assert [*repeated(samples, 3)] == [*samples, samples[-1]]
    assert [*repeated(samples, 1)] == samples[:1]
    assert [*repeated([], 3)] == []


@pytest.mark.parametrize("path", STOCK, ids=lambda path: path.stem)
def test_a_stock_policy_loads_alone_and_satisfies_the_schema(path):
    load(path.read_text())
    VALIDATOR.validate(yaml.safe_load(path.read_text()))


def test_all_stock_policies_load_together():
    assert len(STOCK) == 6
    load(*(path.read_text() for path in STOCK))


def test_the_schema_has_the_keys_and_reserved_words_of_the_language():
    definitions = SCHEMA["$defs"]
    assert set(definitions["rule"]["properties"]) == reader.RULE_KEYS
    assert set(SCHEMA["properties"]["scope"]["enum"]) == set(Scope)
    assert SCHEMA["properties"]["rules"]["maxProperties"] == reader.MAX_RULES
    time = re.compile(definitions["time"]["pattern"])
    assert all(time.fullmatch(f"30 {unit}") for unit in reader.UNITS_S)
    name = re.compile(definitions["name"]["pattern"])
    assert not any(name.match(word) for word in KEYWORDS | FUNCTIONS.keys())


def test_the_schema_accepts_what_loads_and_rejects_other_shapes():
    cases = [each.value for each in reading.documents(ROOT / "tests/cases/tuning/language.json")]
    shaped = {"err_unknown_top_level_key", "err_no_output", "err_output_not_dotted", "err_no_scope"}
    shaped |= {
        "err_no_target_two_bounds",
        "err_unknown_scope",
        "err_condition_any_and_all",
        "err_linear_without_change",
    }
    shaped |= {"err_constant_with_time", "err_limit_value_and_factor", "err_time_negative"}
    for case in cases:
        texts = case["policy_yaml"]
        for text in [texts] if isinstance(texts, str) else texts:
            if case["name"] in shaped:
                assert not VALIDATOR.is_valid(yaml.safe_load(text)), case["name"]
            elif "expected_error" not in case:
                VALIDATOR.validate(yaml.safe_load(text))


def test_the_policies_of_the_manual_load():
    policies = re.findall(r"```yaml\n(scope:.*?)```", MANUAL, re.DOTALL)
    assert len(policies) == 6
    for text in policies:
        load(text)


def test_the_program_of_the_manual_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    [program] = re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL)
    exec(program, {})


@pytest.mark.parametrize("name", ["cpu_load", "memory_balloon"])
def test_the_worked_example_of_the_manual_is_right(name):
    text = (POLICIES / "examples" / f"{name}.yaml").read_text()
    assert text[text.index("scope:") :] in MANUAL
    samples = [busy_web(1)] * 5 + [busy_web(0)] * 4
    if name == "memory_balloon":
        samples = [large_web(0.1)] * 4 + [large_web(0.5)] * 6
    program = loader.load([Source(f"{name}.yaml", text)])
    cycles = dry_run(program, samples, interval_s=15)
    assert "\n".join(table(cycles, interval_s=15)) in MANUAL
    if name == "memory_balloon":
        texts = [each.text for cycle in cycles[-2:] for each in explanations(cycle)]
        assert "\n".join(text for text in texts if " -> " in text) in MANUAL


def busy_web(load):
    return Sample(vms={"web": {
        "io": {"read_bytes_per_s": 900 * load, "write_bytes_per_s": 10},
        "net": {"throughput": 5},
        "policy": {"io_threshold": 500, "net_threshold": 500},
        "cpu": {"max_load": 100},
    }})  # fmt: skip


def large_web(free):
    host: dict[str, Any] = {"host": {"mem_free_avg": free * (1 << 24), "mem_available": 1 << 24}}
    vm: dict[str, Any] = {
        "memory": {"balloon": 4 << 20},
        "policy": {"balloon_min": 3 << 20, "balloon_max": 4 << 20},
    }
    return Sample(host, {"web": vm})
