"""Giving items places of their own."""

from __future__ import annotations

from scheduler_worker.scheduling.numa.fit import Matching


def matching(*rows: str) -> Matching:
    """One row for each item, with an x for each place that it fits."""
    return Matching(len(rows[0]), lambda item, place: rows[item][place] == "x")


def test_an_item_gets_the_first_free_place_and_moves_others_only_if_it_must():
    some, owners = matching("xx.", "x..", "xxx"), {}
    assert some.grow(owners, 0)
    assert owners == {0: 0}
    assert some.grow(owners, 1)
    assert some.grow(owners, 2)
    assert owners == {0: 1, 1: 0, 2: 2}


def test_items_without_places_for_all_do_not_grow():
    some, owners = matching("xx.", "xx.", "xx."), {}
    assert [some.grow(owners, item) for item in range(3)] == [True, True, False]


def test_a_place_is_settled_if_later_items_can_move():
    some, owners = matching("xxx", "xxx", ".xx"), {0: 0, 1: 1, 2: 2}
    assert some.settled(owners, 0, 1) == {1: 0, 0: 1, 2: 2}
    assert some.settled(owners, 0, 2) == {2: 0, 0: 1, 1: 2}
    assert some.settled(owners, 1, 1) == owners
    assert matching("x..", "xxx", "x.x").settled(owners, 1, 2) is None, "item 0 stays"
