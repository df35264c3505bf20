"""Scores between their bounds, and normalised to 0..1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.scheduling.scales import NormalizedScale, clamp, clamp_one
from scheduler_worker.scheduling.weighers.resources import NumInstancesWeigher, RAMWeigher
from tests.support.hosts import request_spec

SPEC = request_spec()
sizes = st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=20).map(np.array)


def test_clamp_applies_declared_bounds_only():
    values = np.array([-5, 0, 5, 10])
    assert clamp(values, 0).tolist() == [0, 0, 5, 10]
    assert clamp(values, None, 7).tolist() == [-5, 0, 5, 7]
    assert clamp(values) is values


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_non_finite_number_counts_as_0(value):
    assert clamp(np.array([3.0, value, -1.0])).tolist() == [3, 0, -1]
    assert clamp(np.array([value]), 2).tolist() == [2]
    assert clamp_one(value) == 0
    assert clamp_one(value, 2) == 2


@given(
    st.lists(st.floats() | st.integers(-9, 9).map(float), min_size=1).map(np.array),
    st.none() | st.integers(-5, 5),
    st.none() | st.integers(5, 9),
)
def test_clamp_one_equals_clamp(values, low, high):
    assert clamp(values, low, high).tolist() == [clamp_one(each, low, high) for each in values]


@given(sizes)
def test_without_bounds_the_extremes_are_0_and_1_and_the_order_stays(values):
    normalized = NormalizedScale(NumInstancesWeigher(), SPEC, 1.0, values).every_product()
    assert normalized.min() == 0
    assert normalized.max() == (1 if len(set(values.tolist())) > 1 else 0)
    assert (np.diff(normalized[np.argsort(values)]) >= 0).all()


@given(sizes)
def test_columns_are_not_written_to(values):
    before = values.tolist()
    NormalizedScale(RAMWeigher(), SPEC, 1.0, values)
    assert values.tolist() == before
