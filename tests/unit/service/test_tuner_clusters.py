"""Where policies hold, and with which parameters, read from an operator's file."""

import pytest

from scheduler_worker.errors import PolicyError
from scheduler_worker.service.tuner_clusters import read
from scheduler_worker.tuning.yaml_subset import Source


def test_policies_hold_everywhere_unless_they_are_limited():
    found = read(Source("f", "clusters: {a: [east, west], b: []}"))
    assert found.holds("a", "east") and not found.holds("a", "north")
    assert not found.holds("b", "east")
    assert found.holds("c", "north")


def test_a_clusters_parameters_go_before_everybodys():
    found = read(Source("f", 'parameters: {"*": {x: 1, y: yes}, east: {x: -2.5e1, z: true}}'))
    assert found.parameters_of("west") == {"x": 1.0, "y": "yes"}
    assert found.parameters_of("east") == {"x": -25.0, "y": "yes", "z": True}


def test_either_part_may_be_missing_or_empty():
    assert read(Source("f", "clusters:")).parameters_of("east") == {}


@pytest.mark.parametrize(
    ("text", "issue"),
    [
        ("clusterz: {}", "f:1:11: E_SCHEMA: clusterz: is neither"),
        ("clusters: [a]", "f:1:11: E_SCHEMA: clusters: is a mapping"),
        ("clusters: {a: east}", "f:1:15: E_SCHEMA: clusters.a: is a list of clusters"),
        ("clusters: {a: [[east]]}", "f:1:15: E_SCHEMA: clusters.a: is a list of names"),
        ("parameters:\n  east: {x: 010}", "f:2:13: E_SCHEMA: parameters.east.x: '010' is no"),
        ("parameters: {east: {x: 1e999}}", "parameters.east.x: '1e999' is no number"),
        ("parameters: {east: {x: [1]}}", "parameters.east.x: is a number, true, false or a text"),
        (
            "parameters: {east: {x: 1, x: 2}}",
            "E_YAML: parameters.east.x: the key 'x' was there before",
        ),
        ("a: &b {}", "E_YAML: a: anchors are not taken"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text, issue):
    with pytest.raises(PolicyError) as refused:
        read(Source("f", text))
    assert issue in str(refused.value)


def test_what_has_an_issue_already_has_no_second_one():
    with pytest.raises(PolicyError) as refused:
        read(Source("f", "clusters: {a: *b}\nparameters: {east: {x: !t 1}}\n"))
    assert [str(each.kind) for each in refused.value.issues] == ["E_YAML", "E_YAML"]
