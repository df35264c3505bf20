"""The conformance cases of the language, and runs recorded from MOM."""

from collections import Counter
from pathlib import Path

import pytest
from conformance import reading, registry

CASES = Path(__file__).resolve().parents[2] / "cases" / "tuning"
DOCUMENTS = [
    each for name in ("language.json", "mom.json.gz") for each in reading.documents(CASES / name)
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: each.value["name"])
def test_the_case_passes(document):
    assert not registry.run(document).differences


def test_all_cases_are_there():
    counts = Counter(registry.kind_of(each).name for each in DOCUMENTS)
    assert counts == {"tuning": 86, "mom": 28}


def differences(case):
    return registry.run(reading.Document("here", case)).differences


def test_a_wrong_expectation_is_noticed():
    cases = {each.value["name"]: each.value for each in DOCUMENTS}
    language = cases["page_influence"] | {"expected": {"vm1": {"cpu.max_load": 50.34}}}
    refused = cases["err_cycle"] | {"expected_error": "E_NAME"}
    loads = cases["page_influence"] | {"expected_error": "E_NAME"}
    mom = cases["balloon_shrink"]
    cycle = mom["expected"][0] | {"guests": {"vm": {"balloon_target": 3984587.8}}}
    for wrong in (language, refused, loads, mom | {"expected": [cycle]}):
        assert differences(wrong)


def step(elapsed, *, vms=None, **outputs):
    expected = {"vm1": {f"x.{name}": value for name, value in outputs.items()}} if outputs else {}
    return {"elapsed": elapsed, "expected": expected, "inputs": {} if vms is None else {"vms": vms}}


LINEAR = "scope: VM\nrules: {r: {output: x.out, target: 0, function: FUNCTION}}\n".replace(
    "FUNCTION", "{name: linear, change: 1, time: 1}"
)
THERE = {"vm1": {"x": {"out": 100}}}


@pytest.mark.parametrize(
    "steps",
    [
        [step(10, vms=THERE, out=90), step(10, vms={}), step(10, vms=THERE)],
        [step(10, vms=THERE, out=90), step(None), step(5, out=95)],
    ],
    ids=["all VMs leave and come back", "a first evaluation again"],
)
def test_a_case_can_restart_entities(steps):
    assert not differences({"name": "anew", "policy_yaml": LINEAR, "steps": steps})


def test_a_refused_policy_may_have_other_issues_too():
    case = {"name": "two", "policy_yaml": "a: &x 1\n" + LINEAR, "expected_error": "E_YAML"}
    assert not differences(case)
    assert differences(case | {"expected_error": "E_NAME"})
