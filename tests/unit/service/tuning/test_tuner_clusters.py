"""The clusters file: where tuning policies apply, and with which parameters."""

import pytest

from scheduler_worker.errors import TuningPolicyError
from scheduler_worker.service.tuning.policies import read_clusters
from scheduler_worker.tuning.yaml_subset import Source


def test_policies_apply_everywhere_unless_restricted():
    found = read_clusters(Source("f", "clusters: {a: [east, west], b: []}"))
    assert found.applies("a", "east") and not found.applies("a", "north")
    assert not found.applies("b", "east")
    assert found.applies("c", "north")


def test_parameters_of_a_cluster_take_precedence_over_common_ones():
    found = read_clusters(
        Source("f", 'parameters: {"*": {x: 1, y: yes}, east: {x: -2.5e1, z: true}}')
    )
    assert found.parameters_of("west") == {"x": 1.0, "y": "yes"}
    assert found.parameters_of("east") == {"x": -25.0, "y": "yes", "z": True}


def test_either_part_may_be_missing_or_empty():
    assert read_clusters(Source("f", "clusters:")).parameters_of("east") == {}


@pytest.mark.parametrize(
    ("text", "issue"),
    [
        ("clusterz: {}", "f:1:11: E_SCHEMA: clusterz: is not known here"),
        ("clusters: [a]", "f:1:11: E_SCHEMA: clusters: must be a mapping"),
        ("clusters: {a: east}", "f:1:15: E_SCHEMA: clusters.a: must be a list of clusters"),
        ("clusters: {a: [[east]]}", "f:1:15: E_SCHEMA: clusters.a: must be a list of names"),
        ("parameters:\n  east: {x: 010}", "f:2:13: E_SCHEMA: parameters.east.x: '010' is not a"),
        ("parameters: {east: {x: 1e999}}", "parameters.east.x: '1e999' is not a number"),
        (
            "parameters: {east: {x: [1]}}",
            "parameters.east.x: must be a number, true, false or a text",
        ),
        (
            "parameters: {east: {x: 1, x: 2}}",
            "E_YAML: parameters.east.x: duplicate key 'x'",
        ),
        ("a: &b {}", "E_YAML: a: anchors are not supported"),
    ],
)
def test_issues_have_their_places(text, issue):
    with pytest.raises(TuningPolicyError) as refused:
        read_clusters(Source("f", text))
    assert issue in str(refused.value)


def test_a_node_with_an_issue_has_no_second_one():
    with pytest.raises(TuningPolicyError) as refused:
        read_clusters(Source("f", "clusters: {a: *b}\nparameters: {east: {x: !t 1}}\n"))
    assert [str(each.kind) for each in refused.value.issues] == ["E_YAML", "E_YAML"]
