"""The order of hosts: subset, shuffle, and replay with the same random source."""

import random

import numpy as np
import pytest

from scheduler_worker.scheduling.selectors import Ranking


def order(totals, *, subset=1, shuffle=False, seed=1):
    rows = np.arange(len(totals)) * 10
    rng = random.Random(seed)
    ranking = Ranking(rows, np.array(totals), subset=subset, shuffle=shuffle, rng=rng)
    found = list(ranking)
    assert found[0] == ranking.first
    assert sorted(found) == rows.tolist(), "each host once"
    return [row // 10 for row in found]


def test_best_first_and_ties_in_order():
    assert order([1.0, 3.0, 2.0, 3.0]) == [1, 3, 2, 0]
    many = [float(number % 7) for number in range(500)]
    assert order(many) == sorted(range(500), key=lambda at: -many[at])


def test_totals_that_are_infinite_come_first_and_last():
    inf = float("inf")
    assert order([-inf, 1.0, -inf, inf, -inf]) == [3, 1, 0, 2, 4]
    assert order([-inf] * 9) == list(range(9))
    assert order([-inf, 2.0, -inf], subset=9, seed=2) in [[1, 0, 2], [0, 1, 2], [2, 1, 0]]


@pytest.mark.parametrize("count", [0, 1, 3, 40, 500, 600])
def test_the_head_is_that_of_the_whole_order_and_is_read_again(count):
    totals = np.array([float(number % 7) for number in range(500)])
    rows = np.arange(500) * 10
    ranking = Ranking(rows, totals, subset=3, shuffle=True, rng=random.Random(1))
    head = ranking.head(count)
    whole = list(ranking)
    assert len(head) == min(count, 500)
    assert rows[head].tolist() == whole[: len(head)]
    assert list(ranking) == whole
    assert ranking.head(count) == head


def test_the_subset_draws_the_first_and_leaves_the_rest_in_order():
    firsts = {order([5.0, 4.0, 3.0, 2.0, 1.0], subset=3, seed=seed)[0] for seed in range(50)}
    assert firsts == {0, 1, 2}
    drawn = order([5.0, 4.0, 3.0, 2.0, 1.0], subset=3, seed=4)
    assert drawn[1:] == [each for each in range(5) if each != drawn[0]]
    assert set(order([2.0, 1.0], subset=10)) == {0, 1}


def test_shuffle_moves_only_the_best_ties():
    totals = [9.0, 9.0, 9.0, 1.0, 9.0, 5.0]
    seen = {tuple(order(totals, shuffle=True, seed=seed)) for seed in range(50)}
    assert len(seen) > 5
    assert {each[4:] for each in seen} == {(5, 3)}
