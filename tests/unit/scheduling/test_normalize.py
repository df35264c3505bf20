"""Raw weights to 0..1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_worker.scheduling.normalize import clamp, normalize

sizes = st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=20).map(np.array)


@pytest.mark.parametrize(
    ("values", "bounds", "expected"),
    [
        ([], {}, []),
        ([5], {}, [0]),
        ([5, 5], {}, [0, 0]),
        ([0, 5, 10], {}, [0, 0.5, 1]),
        ([5, 10], {"minval": 0}, [0.5, 1]),
        ([5, 5], {"minval": 0}, [1, 1]),
        ([0, 0], {"minval": 0}, [0, 0]),
        ([0, 5], {"maxval": 10}, [0, 0.5]),
        ([2, 3], {"minval": 1, "maxval": 5}, [0.25, 0.5]),
    ],
)
def test_normalize(values, bounds, expected):
    assert normalize(np.array(values, "i8"), **bounds).tolist() == expected


def test_clamp_cuts_to_declared_bounds_only():
    values = np.array([-5, 0, 5, 10])
    assert clamp(values, 0).tolist() == [0, 0, 5, 10]
    assert clamp(values, None, 7).tolist() == [-5, 0, 5, 7]
    assert clamp(values) is values


@given(sizes)
def test_without_bounds_the_extremes_are_0_and_1_and_the_order_stays(values):
    normalized = normalize(values)
    assert normalized.min() == 0
    assert normalized.max() == (1 if len(set(values.tolist())) > 1 else 0)
    assert (np.diff(normalized[np.argsort(values)]) >= 0).all()


@given(sizes)
def test_columns_are_not_written_to(values):
    before = values.tolist()
    normalize(clamp(values, 0), 0)
    assert values.tolist() == before
