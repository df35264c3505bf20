"""Durations by length: what is read from them is never too short, and at most 26 % too long."""

import pytest

from scheduler_worker.model.worker_reports import Spread, bucket_of


def spread(*durations_s: float) -> Spread:
    return Spread.summed(Spread({bucket_of(each): 1}) for each in durations_s)


def test_without_durations_there_is_nothing_to_read():
    assert Spread().total == 0
    assert Spread().reached(0.5) is None


def test_several_are_added_up():
    one, other = spread(0.001, 0.001), spread(0.001, 5.0)
    both = Spread.summed([one, other])
    assert both.total == 4
    assert both.reached(0.5) == pytest.approx(0.001)
    assert both.reached(0.99) == pytest.approx(5.01)
    assert one.total == 2
