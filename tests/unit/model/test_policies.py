"""Policies as values: JSON round trips, and invalid documents are refused."""

import pytest

from scheduler_worker.errors import ClusterPolicyError
from scheduler_worker.model.policies import (
    BalanceUse,
    ClusterPolicy,
    FilterUse,
    SelectorUse,
    WeightUse,
    from_plain,
    read_policy,
    to_plain,
    write_policy,
)

FULL = ClusterPolicy(
    id="5f0c",
    name="packing",
    version=7,
    description="Fills hosts one after the other",
    filters=(
        FilterUse(unit="RamFilter", position="last"),
        FilterUse(unit="IoOpsFilter", name="busy", parameters={"max_io_ops_per_host": "3"}),
        FilterUse(unit="ComputeFilter", position="first"),
    ),
    weights=(WeightUse(unit="RAMWeigher", factor=-2.5),),
    balance=BalanceUse(unit="Even"),
    selector=SelectorUse(unit="RankSum"),
    parameters={"HighUtilization": "80"},
)


def test_a_policy_round_trips_through_json():
    assert read_policy(write_policy(FULL)) == FULL
    assert from_plain(to_plain(FULL)) == FULL
    smallest = ClusterPolicy(id="a", name="b", version=1)
    assert read_policy(write_policy(smallest)) == smallest


def test_equal_policies_have_equal_bytes():
    plain = to_plain(FULL)
    turned = from_plain(dict(reversed(plain.items())))
    assert write_policy(turned) == write_policy(FULL)


def test_filters_are_ordered_by_position():
    assert [each.label for each in FULL.ordered_filters] == ["ComputeFilter", "busy", "RamFilter"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{", "truncated"),
        (b"\xff", "malformed"),
        (b"[]", "Expected `object`"),
        (b'{"id": "a", "name": "b"}', "required field `version`"),
        (b'{"id": "a", "name": "b", "version": 0}', r"`int` >= 1 - at `\$.version`"),
        (b'{"id": "a", "name": "", "version": 1}', r"at `\$.name`"),
        (b'{"id": "a", "name": "b", "version": 1, "filter": []}', "unknown field `filter`"),
        (
            b'{"id": "a", "name": "b", "version": 1, "filters": [{"unit": "x", "position": 1}]}',
            r"at `\$.filters\[0\].position`",
        ),
        (
            b'{"id": "a", "name": "b", "version": 1, "weights": [{"unit": "x", "factor": "2"}]}',
            r"Expected `float`, got `str` - at `\$.weights\[0\].factor`",
        ),
        (
            b'{"id": "a", "name": "b", "version": 1, "parameters": {"a b": "c"}}',
            r"at `key` in `\$.parameters`",
        ),
    ],
)
def test_an_invalid_document_names_the_field(text, problem):
    with pytest.raises(ClusterPolicyError, match=problem):
        read_policy(text)
